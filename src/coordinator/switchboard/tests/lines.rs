//! Lifetimes of durable jobs, as their watchers see them.

use std::sync::Arc;
use std::time::Duration;

use super::super::departures::Departures;
use super::super::lines::Lines;
use super::job;
use crate::clock::wall_clock;
use crate::dispatch::{Facts, Outcome, Timing};
use muster_protocol::job::{FinishReason, Job, UnixMillis, Usage};

const LIFE: Duration = Duration::from_secs(600);

fn facts(job: &Arc<Job>, outcome: Outcome) -> Facts {
    Facts {
        job: job.clone(),
        outcome,
        parts: Vec::new(),
        attempts: 1,
        model: None,
        dropped: Vec::new(),
        usage: None,
        timing: Timing::default(),
        output: None,
    }
}

/// Lifetime after a request for settlement.
fn lives_until(outcome: Outcome) -> UnixMillis {
    let mut job = job("hello");
    (job.durable, job.limits.life) = (true, Some(LIFE));
    let (job, departures) = (Arc::new(job), Arc::<Departures>::default());
    let mut lines = Lines::default();
    let streams = lines.open(vec![job.clone()], &departures);
    let watch = streams[0].watch().unwrap();
    lines.settle(&facts(&job, outcome));
    let until = watch.until();
    lines.settle(&facts(&job, Outcome::Cancelled));
    assert_eq!(watch.until(), until, "asked again, nothing is new");
    until
}

#[test]
fn what_was_brought_lives_on_from_there_though_the_store_has_not_answered() {
    let delivered = Outcome::Delivered {
        finish: FinishReason::Stop,
        usage: Usage::default(),
    };
    let now = wall_clock();
    assert!(lives_until(delivered) >= now.after(LIFE));
    assert_eq!(lives_until(Outcome::Expired), UnixMillis::default());
}
