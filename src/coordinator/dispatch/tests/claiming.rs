//! Submits of jobs without a lease in this process: an earlier process leased them.

use std::sync::Arc;

use super::{Desk, done, failed, is_delivered, secs, token};
use crate::dispatch::{
    Effect, Input, MOST_ATTEMPTS, Offer, SessionId, Standing, Submission, Wants,
};
use muster_protocol::job::{AccountId, Job, JobId, ModelChoice, UnixMillis};

impl Desk {
    fn claim(&mut self, session: SessionId, job: JobId) -> Vec<Offer> {
        self.take();
        let wants = Wants::only(vec![job]);
        self.put(Input::Pop { session, wants });
        self.offers()
    }

    /// A job as a new process restores it.
    pub fn restored(&mut self, job: Job) -> JobId {
        let id = job.id;
        self.put(Input::Submit(Submission {
            jobs: vec![Arc::new(job)],
            standing: Standing {
                since: Some(UnixMillis(1_799_999_999_000)),
                ..Standing::default()
            },
        }));
        id
    }
}

#[test]
fn a_job_that_waits_is_taken_from_the_worker_that_brings_it_whatever_it_serves() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let mut job = desk.stored_job();
    job.model = ModelChoice(vec!["other".into()]);
    let id = desk.restored(job);
    let offer = desk.claim(poller, id).remove(0);
    assert_eq!((offer.job.id, &*offer.model), (id, "other"));
    desk.say(&offer, token(1)).say(&offer, done());
    let ended = desk.take();
    // The job's start is unknown.
    let began = ended.iter().find_map(|effect| match effect {
        Effect::Settle(facts) => Some(facts.timing.queued),
        _ => None,
    });
    assert_eq!(began, Some(None));
    let outcome = ended.iter().find_map(|effect| match effect {
        Effect::End { outcome, .. } => Some(outcome),
        _ => None,
    });
    assert!(is_delivered(outcome.unwrap()));
    desk.assert_nothing_left();
}

#[test]
fn who_is_not_believed_brings_unasked_what_its_owner_wants_and_nothing_else() {
    for (account, is_taken) in [(1, false), (101, true)] {
        let mut desk = Desk::new();
        let session = desk.poller(1);
        let mut job = desk.stored_job();
        job.account = AccountId(account);
        let wants = Wants {
            own_only: true,
            ..Wants::only(vec![desk.restored(job)])
        };
        desk.take();
        desk.put(Input::Pop { session, wants });
        assert_eq!(!desk.offers().is_empty(), is_taken);
    }
}

#[test]
fn attempts_of_an_earlier_process_have_numbers_of_their_own() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let job = desk.stored_job();
    desk.restored(job);
    assert_eq!(desk.pop(poller, 1)[0].attempt, MOST_ATTEMPTS + 1);
}

#[test]
fn only_what_waits_on_disk_can_be_brought_unasked() {
    let mut desk = Desk::new();
    let (first, second) = (desk.poller(1), desk.poller(2));
    let job = desk.stored_job();
    let job = desk.restored(job);
    let offer = desk.pop(first, 1).remove(0);
    assert!(desk.claim(second, job).is_empty(), "somebody has it");
    desk.say(&offer, token(1)).say(&offer, done());
    assert!(is_delivered(&desk.end()));
    assert!(desk.claim(second, job).is_empty(), "it has ended");
}

#[test]
fn what_was_never_out_before_is_not_brought_unasked() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let job = desk.stored();
    assert!(desk.claim(poller, job).is_empty());
    assert_eq!(desk.pop(poller, 1)[0].job.id, job);
}

#[test]
fn who_has_failed_a_job_or_was_too_slow_does_not_get_it_back_by_bringing_it() {
    for is_from_before in [false, true] {
        let mut desk = Desk::new();
        let (failing, slow) = (desk.poller(1), desk.poller(2));
        let job = desk.stored_job();
        let job = match is_from_before {
            true => desk.restored(job),
            false => desk.submit(job),
        };
        let offer = desk.pop(failing, 1).remove(0);
        desk.say(&offer, failed());
        assert!(desk.claim(failing, job).is_empty());
        assert_eq!(desk.pop(slow, 1)[0].job.id, job);
        desk.wait(secs(151));
        assert!(desk.claim(failing, job).is_empty());
        assert!(desk.claim(slow, job).is_empty());
    }
}

#[test]
fn what_a_client_has_read_the_beginning_of_is_not_brought_unasked() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let socket = desk.ours(2);
    let job = desk.stored_job();
    let job = desk.restored(job);
    let offer = desk.offer();
    assert_eq!(offer.session, socket);
    desk.say(&offer, token(0));
    desk.say(&offer, failed());
    assert!(desk.claim(poller, job).is_empty());
}
