//! Clients and the promises to them: one end, in time, nothing after it, and an output that counts up from zero without
//! a gap or a repetition.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::dispatch::{Facts, Mono, Outcome};
use muster_protocol::job::{Event, FailureKind, JobId};

/// How long after its timeout a job may end at the latest.
const SLACK: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct Clients {
    pub jobs: BTreeMap<JobId, Client>,
    /// Accepted jobs that have not ended, in no order.
    pub open: Vec<JobId>,
}

#[derive(Debug)]
pub struct Client {
    /// Tokens of the whole output.
    pub length: u32,
    pub expires: Mono,
    pub durable: bool,
    accepted: bool,
    seen: u32,
    /// Events with output.
    heard: u64,
    started: bool,
    /// Cancelled, or a slow client.
    pub left: bool,
    ended: bool,
}

impl Clients {
    pub fn expect(&mut self, job: JobId, length: u32, expires: Mono, durable: bool) {
        let client = Client {
            length,
            expires,
            durable,
            accepted: false,
            seen: 0,
            heard: 0,
            started: false,
            left: false,
            ended: false,
        };
        self.jobs.insert(job, client);
    }

    pub fn accepted(&mut self, job: JobId) {
        self.jobs.get_mut(&job).unwrap().accepted = true;
        self.open.push(job);
    }

    pub fn refused(&mut self, job: JobId) {
        self.jobs.remove(&job);
    }

    /// `polled`: on a polling worker, which cannot be cancelled and may submit after the client has left.
    pub fn relay(&mut self, job: JobId, event: &Event, polled: bool) {
        let client = self.jobs.get_mut(&job).unwrap();
        assert!(
            client.accepted && !client.ended,
            "{job}: {event:?} for {client:?}"
        );
        assert!(
            polled || !client.left,
            "{job}: {event:?} after the client had left"
        );
        match event {
            Event::Started { .. } => {
                assert!(!client.started, "{job} started twice");
                client.started = true;
            }
            Event::Token(token) => {
                client.heard += 1;
                for number in token.text.split_inclusive(' ') {
                    assert_eq!(
                        number,
                        format!("{} ", client.seen),
                        "{job}: a gap or a repetition"
                    );
                    client.seen += 1;
                }
            }
            Event::Media(_) => {
                client.heard += 1;
                client.seen += 1;
            }
            Event::Done { .. } | Event::Failed(_) => {
                panic!("{job}: {event:?} before its settlement")
            }
            _ => {}
        }
    }

    /// P2: exactly the delivered output is paid.
    pub fn check_parts(&self, facts: &Facts) {
        let (job, client) = (facts.job.id, &self.jobs[&facts.job.id]);
        assert!(
            client.accepted && !client.ended,
            "{job} is settled after its end"
        );
        let made: u64 = facts.parts.iter().map(|part| part.events).sum();
        assert_eq!(made, client.heard, "{job}: {:?}", facts.parts);
    }

    /// Checks the end, and returns its name.
    pub fn end(&mut self, job: JobId, outcome: &Outcome, settled: bool, now: Mono) -> &'static str {
        let client = self.jobs.get_mut(&job).unwrap();
        assert!(client.accepted && !client.ended, "{job} ended twice");
        assert!(
            now <= client.expires + SLACK,
            "{job} ended too late: {outcome:?}"
        );
        client.ended = true;
        self.open.retain(|open| *open != job);
        match outcome {
            Outcome::Delivered { .. } => {
                assert!(
                    settled,
                    "{job} was reported delivered before its settlement"
                );
                assert_eq!(
                    client.seen, client.length,
                    "{job}: part of the output is missing"
                );
                "delivered"
            }
            Outcome::Cancelled => "cancelled",
            Outcome::Expired => "expired",
            Outcome::Failed(failure) => {
                assert_ne!(failure.kind, FailureKind::Internal);
                failure.code()
            }
        }
    }

    /// A durable job left on disk, or any that is handed over, has not ended; the next process takes over.
    pub fn park(&mut self, job: JobId, is_handed_over: bool) {
        let client = self.jobs.get_mut(&job).unwrap();
        assert!(
            (client.durable || is_handed_over) && !client.ended,
            "{job} was parked: {client:?}"
        );
        client.ended = true;
        self.open.retain(|open| *open != job);
    }

    /// P1, checked after a job's timeout.
    pub fn assert_ended(&self, job: JobId) {
        if let Some(client) = self.jobs.get(&job) {
            assert!(client.ended, "{job} has not ended: {client:?}");
        }
    }
}
