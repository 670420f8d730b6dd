//! Draining and pausing, on either side.

use super::{JOB, Line, done, ready, secs};
use crate::link::offer::Said;
use crate::link::session::{Ending, Input, Output};
use muster_protocol::job::{JobId, Kudos};
use muster_protocol::link::{About, Extensions, FromWorker, JobFrame, Payload, Ready, ToWorker};

#[test]
fn a_coordinator_that_says_it_drains_is_dialled_again_soon() {
    let mut line = Line::ours();
    line.hear(ToWorker::Drain {
        within: secs(5),
        why: None,
    });
    line.put(Input::Lost { code: Some(1012) });
    assert!(line.session.next_wake().unwrap().0 <= secs(2));
}

#[test]
fn a_draining_worker_finishes_what_runs_and_takes_no_more() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Leave { within: secs(60) });
    assert!(matches!(line.sent()[..], [FromWorker::Drain { .. }]));
    let other = JobId(uuid::Uuid::from_u128(9));
    let job = JobFrame::text(About::attempt(other, 1), "demo", Payload::Unreadable);
    line.hear(ToWorker::Job(Box::new(job)));
    assert!(matches!(line.sent()[..], [FromWorker::Busy { about, .. }] if about.job == other));
    line.say(slot, done());
    assert!(matches!(line.sent()[..], [FromWorker::Done(_)]));
    line.hear(ToWorker::Ack {
        about: About::attempt(JOB, 1),
        reward: Kudos(1),
    });
    let left = [Output::Close(Some(1000)), Output::Over(Ending::Left)];
    assert_eq!(line.outputs(), left);
}

#[test]
fn a_drain_that_takes_too_long_hands_the_jobs_back() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Leave { within: secs(4) });
    line.outputs();
    line.wait(secs(4));
    let outputs = line.outputs();
    assert_eq!(outputs[0], Output::Stop(slot));
    assert!(matches!(&outputs[1], Output::Send(text) if text.contains("busy")));
    assert_eq!(outputs.last(), Some(&Output::Over(Ending::Left)));
}

#[test]
fn an_idle_public_line_is_left_at_once_and_a_busy_one_after_its_ack() {
    let mut line = Line::public();
    line.put(Input::Leave { within: secs(60) });
    let left = [Output::Close(Some(1000)), Output::Over(Ending::Left)];
    assert_eq!(line.outputs(), left);

    let mut line = Line::public();
    let slot = line.job(None);
    line.put(Input::Leave { within: secs(60) });
    line.say(slot, done());
    assert!(matches!(line.outputs()[..], [Output::Send(_)]));
    line.wait(secs(10));
    assert_eq!(
        line.outputs(),
        left,
        "an ack that never comes is not waited for"
    );
}

#[test]
fn a_pause_leaves_public_coordinators_and_stays_with_ours() {
    let mut line = Line::public();
    let slot = line.job(None);
    line.put(Input::Pause(true));
    let stopped = [Output::Close(Some(1000)), Output::Stop(slot)];
    assert_eq!(line.outputs(), stopped);
    line.wait(secs(3600));
    assert_eq!(line.outputs(), []);
    line.put(Input::Pause(false));
    assert_eq!(line.outputs(), [Output::Dial]);

    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Pause(true));
    let retry_after = secs(30);
    line.say(slot, Said::Busy { retry_after });
    assert!(matches!(line.sent()[..], [FromWorker::Busy { about, .. }] if about.seq == Some(1)));
}

#[test]
fn a_worker_for_its_owner_alone_leaves_a_coordinator_that_has_jobs_of_others_for_it() {
    let ends = |answer: ToWorker| {
        let mut line = Line::wanting(Extensions::all());
        line.put(Input::Opened);
        line.hear(answer);
        let mut outputs = line.outputs().into_iter();
        outputs.any(|output| matches!(output, Output::Over(Ending::Refused(_))))
    };
    assert!(!ends(ready(&[])));
    assert!(ends(ToWorker::Ready(Ready::default())));
}
