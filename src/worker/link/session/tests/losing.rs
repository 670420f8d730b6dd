//! Sockets that break, are refused or time out, and resuming running jobs.

use super::{JOB, Line, done, ready, secs, seqs};
use crate::link::offer::Said;
use crate::link::session::jobs::{GATHER, MOST_KEPT_BYTES};
use crate::link::session::{Ending, Input, Output};
use muster_protocol::job::Kudos;
use muster_protocol::link::{
    About, FromWorker, MediaResult, RefusalCode, RefusalFrame, ToWorker, Verdict,
};

#[test]
fn a_lost_socket_stops_nothing_and_only_what_was_not_confirmed_is_sent_again() {
    let mut line = Line::ours();
    let slot = line.job(Some(3));
    for text in ["a", "b", "c"] {
        line.write(slot, text);
        line.wait(GATHER);
    }
    assert_eq!(seqs(&line.sent()), [1, 2, 3]);
    line.hear(ToWorker::Got {
        about: About {
            seq: Some(1),
            ..About::attempt(JOB, 3)
        },
    });
    line.put(Input::Lost { code: None });
    line.write(slot, "d");
    line.say(slot, done());
    assert_eq!(line.sent(), [], "there is no socket");
    line.wait(secs(2));
    assert_eq!(line.outputs(), [Output::Dial]);
    line.put(Input::Opened);
    let greeting = line.sent();
    let FromWorker::Register(registration) = &greeting[0] else {
        panic!("{greeting:?}");
    };
    let resume = registration.resume.as_ref().unwrap();
    assert_eq!((resume.session.as_str(), resume.jobs[0].last), ("s1", 5));
    line.hear(ready(&[Verdict {
        job: JOB,
        attempt: 3,
        go_on_after: Some(2),
    }]));
    assert_eq!(seqs(&line.sent()), [3, 4, 5]);
    line.hear(ToWorker::Ack {
        about: About::attempt(JOB, 3),
        reward: Kudos(1),
    });
    assert!(line.session.jobs.is_empty());
}

#[test]
fn steps_and_previews_are_not_sent_again_and_results_are() {
    let mut line = Line::ours();
    let slot = line.job(Some(3));
    let step = |at| Said::Progress {
        at,
        of: 4,
        preview: Some(vec![at as u8; 16 << 10]),
    };
    line.say(slot, step(1));
    let sent = line.sent();
    let [
        FromWorker::Progress {
            about,
            progress,
            preview,
        },
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!((about.seq, progress.steps), (None, Some((1, 4))));
    assert_eq!(preview.as_ref().map(Vec::len), Some(16 << 10));
    line.put(Input::Lost { code: None });
    line.say(slot, step(2));
    let result = MediaResult {
        seed: Some(7),
        sha256: "ab".repeat(32),
        ..MediaResult::default()
    };
    line.say(slot, Said::Uploaded(vec![result.clone()]));
    line.wait(secs(2));
    line.put(Input::Opened);
    line.outputs();
    line.hear(ready(&[Verdict {
        job: JOB,
        attempt: 3,
        go_on_after: Some(0),
    }]));
    let sent = line.sent();
    let [FromWorker::Done(done)] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(
        (done.about.seq, &done.results[..]),
        (Some(1), &[result][..])
    );
}

#[test]
fn jobs_the_coordinator_gave_to_others_are_stopped() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Lost { code: None });
    line.wait(secs(2));
    line.put(Input::Opened);
    line.outputs();
    line.hear(ready(&[]));
    assert!(line.outputs().contains(&Output::Stop(slot)));
}

#[test]
fn after_the_grace_the_jobs_are_given_up_and_a_public_loss_gives_them_up_at_once() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    line.put(Input::Lost { code: None });
    assert_eq!(line.outputs(), []);
    line.wait(secs(44));
    assert!(!line.outputs().contains(&Output::Stop(slot)));
    line.wait(secs(2));
    assert!(line.outputs().contains(&Output::Stop(slot)));

    let mut line = Line::public();
    let slot = line.job(None);
    line.put(Input::Lost { code: None });
    assert_eq!(line.outputs(), [Output::Stop(slot)]);
}

#[test]
fn what_is_never_confirmed_is_bounded() {
    let mut line = Line::ours();
    let slot = line.job(Some(1));
    let long = "x".repeat(1 << 20);
    let mut stopped = false;
    for _ in 0..=MOST_KEPT_BYTES >> 20 {
        line.write(slot, &long);
        line.wait(GATHER);
        stopped |= line.outputs().contains(&Output::Stop(slot));
    }
    assert!(stopped && line.session.jobs.is_empty());
}

#[test]
fn a_wrong_key_ends_the_line_and_tells_the_operator() {
    let mut line = Line::new();
    line.put(Input::Opened);
    line.hear(ToWorker::Error(RefusalFrame {
        message: "unknown key".to_owned(),
        code: None,
        retry_secs: None,
    }));
    line.outputs();
    line.put(Input::Lost { code: Some(4001) });
    let ending = Ending::Refused("unknown key".to_owned());
    assert_eq!(line.outputs(), [Output::Over(ending)]);
    assert_eq!(line.session.next_wake(), None);
}

#[test]
fn waits_after_a_loss_follow_its_reason() {
    let waits = |code, refusal: Option<RefusalFrame>| {
        let mut line = Line::ours();
        if let Some(refusal) = refusal {
            line.hear(ToWorker::Error(refusal));
        }
        line.put(Input::Lost { code });
        line.session.next_wake().unwrap().0.as_secs()
    };
    assert!((1..=2).contains(&waits(None, None)));
    assert_eq!(waits(Some(4003), None), 30);
    let mut cooldown = RefusalFrame::new(RefusalCode::Cooldown, "too many failures");
    cooldown.retry_secs = Some(120);
    assert_eq!(waits(Some(4003), Some(cooldown)), 120);
    assert_eq!(waits(Some(1012), None), 10, "somebody else has our name");
}

#[test]
fn who_shares_a_name_leaves_it_to_the_other_for_longer_each_time() {
    let mut line = Line::ours();
    let mut waits = Vec::new();
    let fight = |line: &mut Line, stood: u64| {
        line.wait(secs(stood));
        line.put(Input::Lost { code: Some(1012) });
        line.outputs();
        let mut waited = 0;
        while !line.outputs().contains(&Output::Dial) {
            line.wait(secs(1));
            waited += 1;
        }
        line.put(Input::Opened);
        line.hear(ready(&[]));
        line.outputs();
        waited
    };
    for _ in 0..7 {
        waits.push(fight(&mut line, 20));
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    // The coordinator sends frames all the while.
    for _ in 0..60 {
        line.wait(secs(20));
        line.put(Input::Heard);
    }
    assert_eq!(fight(&mut line, 1), 10);
}

#[test]
fn a_close_tells_a_replacement_from_a_coordinator_that_drains_and_from_our_own_leaving() {
    let mut line = Line::ours();
    assert!(line.session.is_replaced(Some(1012)));
    assert!(!line.session.is_replaced(Some(1001)) && !line.session.is_replaced(None));
    line.hear(ToWorker::Drain {
        within: secs(5),
        why: None,
    });
    assert!(!line.session.is_replaced(Some(1012)));

    let mut line = Line::ours();
    let _running = line.job(Some(1));
    line.put(Input::Leave { within: secs(60) });
    assert!(!line.session.is_replaced(Some(1012)));
}

#[test]
fn a_dead_socket_is_noticed() {
    let mut line = Line::public();
    line.wait(secs(31));
    assert_eq!(line.outputs(), [Output::Ping]);
    line.put(Input::Heard);
    line.wait(secs(31));
    assert_eq!(line.outputs(), [Output::Ping]);
    line.wait(secs(10));
    assert!(line.outputs().contains(&Output::Close(None)));
}

#[test]
fn a_coordinator_that_does_not_answer_a_registration_is_left() {
    let mut line = Line::new();
    line.put(Input::Opened);
    line.outputs();
    line.wait(secs(30));
    assert!(line.outputs().contains(&Output::Close(None)));
}
