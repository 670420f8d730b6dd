//! Submits of polling workers: bad results, and failed settlements.

use super::polling::POLLING;
use super::{Desk, LIFETIME, Store, done, failed, failure_kind, is_delivered, secs, token};
use crate::dispatch::{Effect, Input};
use muster_protocol::job::{FailureKind, Kudos};

#[test]
fn three_workers_that_fail_it_make_it_a_bad_job() {
    let mut desk = Desk::new();
    desk.stored();
    for worker in 1..=3 {
        let poller = desk.poller(worker);
        let offer = desk.pop(poller, 1).remove(0);
        desk.say(&offer, failed());
    }
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::BadJob));
}

#[test]
fn a_worker_that_is_alone_may_fail_what_is_stored_three_times() {
    let mut desk = Desk::new();
    desk.stored();
    let poller = desk.poller(1);
    for _ in 0..3 {
        let offer = desk.pop(poller, 1).remove(0);
        desk.say(&offer, failed());
    }
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::WorkerFailed));
}

#[test]
fn a_stored_job_that_fails_when_nobody_else_serves_it_waits_for_whoever_comes() {
    let mut desk = Desk::new();
    let job = desk.stored();
    for worker in 1..=3 {
        let poller = desk.poller(worker);
        let offer = desk.pop(poller, 1).remove(0);
        assert_eq!(offer.job.id, job);
        let mut changed = desk.poller_registration(worker, POLLING);
        changed.session = poller;
        changed.models[0].name = "other".into();
        desk.put(Input::Changed(changed.into()));
        desk.say(&offer, failed());
    }
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::BadJob));
}

#[test]
fn texts_that_a_worker_that_polls_has_failed_take_nothing_away_from_it() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    desk.stored();
    let kept = desk.pop(poller, 1).remove(0);
    for _ in 0..8 {
        desk.stored();
        for _ in 0..3 {
            let offer = desk.pop(poller, 1).remove(0);
            desk.say(&offer, failed());
        }
    }
    assert_eq!(desk.dispatcher.census().records, 0);
    desk.take();
    desk.say(&kept, token(1)).say(&kept, done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn a_worker_that_has_gone_before_its_result_is_on_disk_is_acked_where_it_asked() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let job = desk.stored();
    let offer = desk.pop(poller, 1).remove(0);
    desk.store = None;
    desk.say(&offer, token(1)).say(&offer, done()).lose(poller);
    assert!(desk.dispatcher.owes_ack(job, offer.attempt));
    desk.take();
    desk.put(Input::Settled {
        job,
        reward: Kudos(100),
    });
    let effects = desk.take();
    let acks = |it: &Effect| matches!(it, Effect::Ack { session, .. } if *session == poller);
    assert!(effects.iter().any(acks), "{effects:?}");
    desk.assert_nothing_left();
}

#[test]
fn a_worker_whose_result_could_not_be_written_down_is_not_told_that_it_was() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    desk.stored();
    let offer = desk.pop(poller, 1).remove(0);
    desk.store = None;
    desk.say(&offer, token(1)).say(&offer, done());
    desk.take();
    desk.wait(LIFETIME + secs(1));
    let effects = desk.take();
    assert!(effects.iter().any(|it| matches!(it, Effect::Park { .. })));
    assert!(!effects.iter().any(|it| matches!(it, Effect::Ack { .. })));
}

#[test]
fn what_is_brought_again_while_the_store_is_down_is_settled_and_acked_once() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let job = desk.stored();
    let offer = desk.pop(poller, 1).remove(0);
    desk.store = Some(Store::Fails);
    desk.say(&offer, token(1)).say(&offer, done());
    desk.wait(secs(60));
    let effects = desk.take();
    let has_left = |it: &Effect| matches!(it, Effect::Park { .. } | Effect::Ack { .. });
    assert!(!effects.iter().any(has_left), "{effects:?}");
    desk.say(&offer, token(1)).say(&offer, done());
    assert!(desk.take().is_empty(), "it was heard before");
    assert!(desk.dispatcher.owes_ack(job, offer.attempt));
    desk.store = Some(Store::Settles);
    desk.wait(secs(5));
    let effects = desk.take();
    let acks = effects.iter().filter(|it| matches!(it, Effect::Ack { .. }));
    assert_eq!(acks.count(), 1);
    let ends = effects.iter().filter(|it| matches!(it, Effect::End { .. }));
    assert_eq!(ends.count(), 1);
    desk.assert_nothing_left();
}
