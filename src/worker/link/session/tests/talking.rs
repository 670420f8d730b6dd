//! Jobs that go as they should, in words that both kinds of coordinators know.

use super::{JOB, Line, done, millis, ready, secs, seqs};
use crate::link::offer::Said;
use crate::link::session::jobs::{GATHER, MOST_GATHERED};
use crate::link::session::{Input, Output};
use muster_protocol::job::{Failure, FailureKind, FinishReason, JobId, Kudos, Usage};
use muster_protocol::link::{
    About, Extension, Extensions, FromWorker, JobFrame, ModelState, Payload, State, ToWorker,
};

#[test]
fn a_public_coordinator_sees_the_public_protocol_exactly() {
    let mut line = Line::public();
    let slot = line.job(None);
    line.say(
        slot,
        Said::Started {
            prompt_tokens: 3,
            cached_tokens: 0,
        },
    );
    line.write(slot, "Red");
    line.write(slot, " and");
    line.say(slot, done());
    let id = JOB;
    assert_eq!(
        line.texts(),
        [
            format!(
                r#"{{"type":"token","id":"{id}","delta":{{"content":"Red"}},"finish_reason":null}}"#
            ),
            format!(
                r#"{{"type":"token","id":"{id}","delta":{{"content":" and"}},"finish_reason":null}}"#
            ),
            format!(
                r#"{{"type":"done","id":"{id}","full_text":"Red and","finish_reason":"stop","usage":{{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}}}"#
            ),
        ]
    );
}

#[test]
fn a_ping_is_answered_at_any_time() {
    for mut line in [Line::public(), Line::ours()] {
        line.job(Some(1));
        line.hear(ToWorker::Ping);
        assert!(line.sent().contains(&FromWorker::Pong));
    }
}

#[test]
fn a_silent_public_job_is_kept_alive_by_pongs_and_ours_by_beats() {
    let mut line = Line::public();
    line.job(None);
    for _ in 0..3 {
        line.wait(secs(20));
        line.put(Input::Heard);
    }
    let pongs = line.sent();
    assert_eq!(pongs, [const { FromWorker::Pong }; 3]);

    let mut line = Line::ours();
    line.job(Some(1));
    line.wait(secs(11));
    let beats = line.sent();
    assert_eq!(beats.len(), 2);
    assert!(beats.iter().all(
        |beat| matches!(beat, FromWorker::Alive { phase, .. } if phase.as_deref() == Some("prefill"))
    ));
}

#[test]
fn whoever_leases_hears_beats_without_the_other_extensions_too() {
    let mut line = Line::new();
    line.put(Input::Opened);
    let ToWorker::Ready(mut ready) = ready(&[]) else {
        unreachable!();
    };
    let lease = Extensions::default().with(Extension::Lease);
    ready.ext.as_mut().unwrap().r#use = lease;
    line.hear(ToWorker::Ready(ready));
    line.job(None);
    line.sent();
    line.wait(secs(14));
    let beats = line.sent();
    assert!(beats.len() >= 2, "{beats:?}");
    assert!(
        beats
            .iter()
            .all(|it| matches!(it, FromWorker::Alive { .. }))
    );
}

#[test]
fn a_refusal_is_forgotten_once_it_has_arrived() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.say(
        slot,
        Said::Busy {
            retry_after: secs(1),
        },
    );
    assert_eq!(line.session.jobs.len(), 1, "it may have to be said again");
    line.hear(ToWorker::Got {
        about: About {
            seq: Some(1),
            ..About::attempt(JOB, 1)
        },
    });
    assert!(line.session.jobs.is_empty());
}

#[test]
fn the_first_token_leaves_at_once_and_the_next_ones_gather() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.write(slot, "a");
    assert_eq!(line.sent().len(), 1, "at once");
    line.now += millis(1);
    line.write(slot, "b");
    line.write(slot, "c");
    assert_eq!(line.sent(), []);
    line.wait(GATHER);
    let sent = line.sent();
    assert_eq!((sent.len(), seqs(&sent)), (1, vec![2]));
    assert!(matches!(&sent[0], FromWorker::Output(output) if output.events.len() == 2));
    for _ in 0..MOST_GATHERED {
        line.write(slot, "d");
    }
    assert_eq!(seqs(&line.sent()), [4], "full");
    line.wait(secs(1));
    line.write(slot, "e");
    assert_eq!(
        seqs(&line.sent()),
        [4 + MOST_GATHERED as u64],
        "a slow stream is not slowed"
    );
}

#[test]
fn a_cancel_stops_the_work_and_its_last_word_is_passed_on() {
    for (mut line, attempt) in [(Line::public(), None), (Line::ours(), Some(2))] {
        let slot = line.job(attempt);
        line.write(slot, "a");
        line.outputs();
        let about = About {
            attempt,
            ..About::job(JOB)
        };
        line.hear(ToWorker::Cancel { about, why: None });
        line.hear(ToWorker::Cancel { about, why: None });
        assert_eq!(line.outputs(), [Output::Stop(slot)]);
        let finish = FinishReason::Cancelled;
        let usage = Usage::default();
        line.say(slot, Said::Done { finish, usage });
        let sent = line.sent();
        assert!(
            matches!(&sent[..], [FromWorker::Done(done)] if done.cancelled),
            "{sent:?}"
        );
    }
}

#[test]
fn a_dropped_attempt_is_stopped_without_a_word() {
    let mut line = Line::ours();
    let slot = line.job(Some(2));
    let stray = About::attempt(JOB, 1);
    line.hear(ToWorker::Drop { about: stray });
    assert_eq!(line.outputs(), []);
    let about = About::attempt(JOB, 2);
    line.hear(ToWorker::Drop { about });
    assert_eq!(line.outputs(), [Output::Stop(slot)]);
    line.say(slot, done());
    assert_eq!(line.outputs(), []);
}

#[test]
fn acks_are_matched_by_id_and_not_by_their_place() {
    let mut line = Line::public();
    let slot = line.job(None);
    line.say(slot, done());
    line.outputs();
    line.hear(ToWorker::Ping);
    let stranger = JobId(uuid::Uuid::from_u128(8));
    line.hear(ToWorker::Ack {
        about: About::job(stranger),
        reward: Kudos(0),
    });
    assert_eq!(line.session.jobs.len(), 1);
    line.hear(ToWorker::Ack {
        about: About::job(JOB),
        reward: Kudos(0),
    });
    assert!(line.session.jobs.is_empty());
}

#[test]
fn failures_say_whose_fault_it_was_and_ours_hear_the_kind() {
    let failure = || Failure::new(FailureKind::ContextLengthExceeded, "too long");
    let mut line = Line::public();
    let slot = line.job(None);
    line.say(slot, Said::Failed(failure()));
    let wanted =
        format!(r#"{{"type":"error","id":"{JOB}","message":"too long","client_error":true}}"#);
    assert_eq!(line.texts(), [wanted]);
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.say(slot, Said::Failed(failure()));
    assert!(line.texts()[0].ends_with(r#""code":"context_length_exceeded"}"#));
}

#[test]
fn the_state_is_told_when_it_changes_and_every_beat() {
    let mut line = Line::ours();
    let state = |running| State {
        models: vec![ModelState {
            name: "demo".to_owned(),
            running,
            ..ModelState::default()
        }],
        ..State::default()
    };
    let reports = |line: &mut Line| {
        let is_state =
            |output: &Output| matches!(output, Output::Send(text) if text.contains("state"));
        line.outputs().into_iter().filter(is_state).count()
    };
    line.put(Input::Report(state(1)));
    line.put(Input::Report(state(2)));
    line.wait(secs(1));
    assert_eq!(reports(&mut line), 1, "changes close together are one");
    line.wait(secs(10));
    assert_eq!(reports(&mut line), 1);
}

#[test]
fn an_offer_that_comes_twice_is_begun_once() {
    let mut line = Line::ours();
    line.job(Some(1));
    let about = About::attempt(JOB, 1);
    let job = JobFrame::text(about, "demo", Payload::Unreadable);
    line.hear(ToWorker::Job(Box::new(job)));
    assert_eq!(line.outputs(), []);
}

#[test]
fn a_deadline_ends_the_work() {
    let mut line = Line::ours();
    let about = About::attempt(JOB, 1);
    let mut job = JobFrame::text(about, "demo", Payload::Unreadable);
    job.deadline = Some(secs(3));
    line.hear(ToWorker::Job(Box::new(job)));
    line.outputs();
    line.wait(secs(4));
    assert!(matches!(line.outputs()[..], [Output::Stop(_)]));
}
