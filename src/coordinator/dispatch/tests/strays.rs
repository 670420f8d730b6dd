//! Unexpected frames.

use super::{Desk, done, failure_kind, is_delivered, token};
use crate::dispatch::{Effect, Frame, Input, Outcome, Said};
use muster_protocol::job::{FailureKind, JobId, Kudos};

fn acks(effects: &[Effect]) -> Vec<(JobId, Kudos)> {
    let acks = effects.iter().filter_map(|effect| match effect {
        Effect::Ack { job, reward, .. } => Some((*job, *reward)),
        _ => None,
    });
    acks.collect()
}

fn relays(effects: &[Effect]) -> usize {
    effects
        .iter()
        .filter(|effect| matches!(effect, Effect::Relay { .. }))
        .count()
}

fn settlements(effects: &[Effect]) -> usize {
    effects
        .iter()
        .filter(|effect| matches!(effect, Effect::Settle(_)))
        .count()
}

#[test]
fn double_done_settles_once_and_is_acked_with_nothing_the_second_time() {
    let mut desk = Desk::new();
    desk.ours(1);
    let job = desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, token(1))
        .say(&offer, done())
        .say(&offer, done());
    let effects = desk.take();
    assert_eq!(acks(&effects), [(job, Kudos(100)), (job, Kudos(0))]);
    assert_eq!(settlements(&effects), 1);
    desk.assert_nothing_left();
}

#[test]
fn double_done_while_the_store_is_slow_is_acked_once() {
    let mut desk = Desk::new();
    desk.ours(1);
    let job = desk.submit_one();
    let offer = desk.offer();
    desk.store = None;
    desk.say(&offer, token(1))
        .say(&offer, done())
        .say(&offer, done());
    desk.put(Input::Settled {
        job,
        reward: Kudos(7),
    });
    let effects = desk.take();
    assert_eq!(acks(&effects), [(job, Kudos(7))]);
    assert_eq!(settlements(&effects), 1);
}

#[test]
fn done_for_anothers_job_touches_neither_job() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.submit_one();
    let first = desk.offer();
    let thief = desk.ours(2);
    desk.say_on(thief, &first, None, token(66))
        .say_on(thief, &first, None, done());
    let effects = desk.take();
    assert_eq!(acks(&effects), [(first.job.id, Kudos(0))]);
    assert_eq!((relays(&effects), settlements(&effects)), (0, 0));
    desk.say(&first, token(1)).say(&first, done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn done_for_anothers_job_from_a_public_peer_leaves_its_own_running() {
    let mut desk = Desk::new();
    desk.public(1);
    desk.submit_one();
    let first = desk.offer();
    let other = desk.public(2);
    desk.submit_one();
    let second = desk.offer();
    desk.put(Input::Frame(Frame {
        session: other,
        job: first.job.id,
        attempt: None,
        seq: None,
        said: done(),
    }));
    assert_eq!(settlements(&desk.take()), 0);
    desk.say(&second, token(5)).say(&second, done());
    assert!(is_delivered(&desk.end()));
    assert_eq!(desk.dispatcher.census().jobs, 1);
}

#[test]
fn frames_after_cancel_reach_nobody() {
    let mut desk = Desk::new();
    desk.ours(1);
    let job = desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, token(1)).put(Input::Cancel { job });
    desk.take();
    desk.say(&offer, token(2))
        .say(&offer, done())
        .say(&offer, token(3));
    let effects = desk.take();
    assert_eq!(relays(&effects), 0);
    assert_eq!(settlements(&effects), 1);
    let dropped = |effect: &Effect| matches!(effect, Effect::Drop { .. });
    assert!(
        effects.iter().any(dropped),
        "the third token is answered with a drop"
    );
    desk.assert_nothing_left();
}

#[test]
fn an_older_attempts_frames_are_dropped_while_the_next_one_runs() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.ours(2);
    desk.submit_one();
    let first = desk.offer();
    desk.say(&first, super::failed());
    let second = desk.offer();
    assert_ne!(first.session, second.session);
    assert_eq!(second.attempt, 2);
    desk.say(&first, token(1)).say(&first, done());
    let effects = desk.take();
    assert_eq!((relays(&effects), settlements(&effects)), (0, 0));
}

#[test]
fn a_repeated_frame_is_relayed_once_and_a_gap_fails_the_attempt() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    for seq in [1, 2, 2, 1, 3] {
        desk.say_on(session, &offer, Some(seq), token(seq as u32));
    }
    assert_eq!(relays(&desk.take()), 3);
    desk.say_on(session, &offer, Some(5), token(5));
    let again = desk.offer();
    assert_eq!(again.prefill.unwrap().tokens, [1, 2, 3]);
}

#[test]
fn frames_of_no_known_socket_are_ignored() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.lose(session);
    desk.take();
    desk.say(&offer, token(1)).say(&offer, done());
    assert!(desk.take().is_empty());
}

#[test]
fn a_stop_nobody_asked_for_is_a_failure() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.submit_one();
    for _ in 0..2 {
        let offer = desk.offer();
        let cancelled = super::done_with(muster_protocol::job::FinishReason::Cancelled);
        desk.say(&offer, cancelled);
    }
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::WorkerFailed));
}

#[test]
fn silence_is_not_broken_by_beats_of_another_attempt() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.submit_one();
    let mut offer = desk.offer();
    offer.attempt = 9;
    desk.say(&offer, Said::Alive);
    assert!(desk.take().is_empty());
}

#[test]
fn a_gap_after_a_cancel_ends_the_job_and_nobody_else_gets_it() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.ours(2);
    let job = desk.submit_one();
    let offer = desk.offer();
    desk.say_on(session, &offer, Some(1), token(1))
        .put(Input::Cancel { job });
    desk.take();
    desk.say_on(session, &offer, Some(7), token(7));
    let effects = desk.take();
    let ended = |effect: &Effect| matches!(effect, Effect::End { outcome, .. } if *outcome == Outcome::Cancelled);
    assert!(effects.iter().any(ended), "{effects:?}");
    let offered = |effect: &Effect| matches!(effect, Effect::Offer(_));
    assert!(!effects.iter().any(offered), "{effects:?}");
    desk.assert_nothing_left();
}
