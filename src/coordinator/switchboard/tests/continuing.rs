//! Jobs that an earlier coordinator began, whose workers connect to this one later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{OURS, Rig, done, job, ledger, next, outcome, text};
use crate::dispatch::{Outcome, Prefill, Refusal, Settings, Standing, Submission};
use crate::switchboard::{Delivery, Switchboard};
use muster_process::tasks::Tasks;
use muster_protocol::job::Event;

#[tokio::test]
async fn a_begun_job_goes_on_behind_its_output_once_a_worker_connects() {
    let (tasks, mut ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let board = board.with_workers_by(Instant::now() + Duration::from_secs(60));
    let submission = Submission {
        jobs: vec![Arc::new(job("hello"))],
        standing: Standing::default(),
    };
    let started = Event::Started {
        prompt_tokens: 5,
        cached_tokens: 0,
    };
    let begun = vec![vec![started.clone(), text("once "), text("upon")]];
    let waiting = {
        let board = board.clone();
        tasks.start(async move { board.submit_begun(submission, begun).await })
    };
    let rig = Rig::connect(&board, "rig", OURS, 4).await;
    let mut streams = waiting.await.unwrap().unwrap();
    let stream = &mut streams[0];
    let offer = rig.offer().await;
    let prefill = Prefill {
        tokens: vec![1, 1],
        text: "once upon".to_owned(),
        written: Some(2),
    };
    assert_eq!(offer.prefill.as_deref(), Some(&prefill));
    // The client has received the start.
    rig.say(&offer, [started, text(" a time"), done(3)]).await;
    assert_eq!(next(stream).await, Delivery::Event(text(" a time")));
    assert!(matches!(outcome(stream).await, Outcome::Delivered { .. }));
    let (_, counted) = ledger.settled.recv().await.unwrap();
    // The text of both coordinators.
    assert!(counted.output_quarter >= 3, "{counted:?}");
}

#[tokio::test]
async fn requests_wait_for_workers_no_longer_than_said() {
    let (tasks, ledger) = (Tasks::default(), ledger());
    let board = Switchboard::start(Settings::default(), ledger.books, &tasks);
    let board = board.with_workers_by(Instant::now() + Duration::from_millis(300));
    let refused = super::submit(&board, job("hello")).await;
    assert!(
        matches!(refused, Err(Refusal::Unserved { .. })),
        "{refused:?}"
    );
    let refused = board.check(Arc::new(job("hello"))).await;
    assert!(
        matches!(refused, Err(Refusal::Unserved { .. })),
        "{refused:?}"
    );
}
