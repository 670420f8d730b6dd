//! The store comes first.

use super::{Desk, LIFETIME, Store, done, failure_kind, is_delivered, secs, token};
use crate::dispatch::{Effect, Input, Outcome};
use muster_protocol::job::{FailureKind, Kudos};

#[test]
fn the_store_has_it_before_the_client_and_the_worker_hear() {
    let mut desk = Desk::new();
    desk.public(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.store = None;
    desk.say(&offer, token(1)).say(&offer, done());
    let effects = desk.take();
    assert!(matches!(
        effects[..],
        [Effect::Relay { .. }, Effect::Settle(_)]
    ));
    desk.put(Input::Settled {
        job: offer.job.id,
        reward: Kudos(3),
    });
    let effects = desk.take();
    assert!(matches!(
        effects[..],
        [
            Effect::End { .. },
            Effect::Ack {
                reward: Kudos(3),
                ..
            }
        ]
    ));
}

#[test]
fn a_public_peer_is_given_nothing_between_its_done_and_its_ack() {
    let mut desk = Desk::new();
    desk.public(1);
    desk.submit_one();
    desk.submit_one();
    let offer = desk.offer();
    desk.store = None;
    desk.say(&offer, token(1)).say(&offer, done());
    assert!(desk.offers().is_empty());
    desk.put(Input::Settled {
        job: offer.job.id,
        reward: Kudos(3),
    });
    let effects = desk.take();
    let ack = effects
        .iter()
        .position(|effect| matches!(effect, Effect::Ack { .. }));
    let next = effects
        .iter()
        .position(|effect| matches!(effect, Effect::Offer(_)));
    assert!(ack.unwrap() < next.unwrap());
}

#[test]
fn our_own_workers_go_on_while_the_store_thinks() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, super::OURS);
    registration.slots = 1;
    desk.connect(registration);
    desk.submit_one();
    desk.submit_one();
    let offer = desk.offer();
    desk.store = None;
    desk.say(&offer, token(1)).say(&offer, done());
    assert_eq!(desk.offers().len(), 1);
}

#[test]
fn an_outage_of_the_store_delays_and_strikes_nobody() {
    let mut desk = Desk::new();
    desk.public(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.store = Some(Store::Fails);
    desk.say(&offer, token(1)).say(&offer, done()).wait(secs(7));
    assert!(desk.ends().is_empty());
    desk.store = Some(Store::Settles);
    desk.wait(secs(5));
    assert!(is_delivered(&desk.end()));
    assert_eq!(desk.dispatcher.census().records, 0);
}

#[test]
fn a_public_peer_is_acked_in_time_even_when_the_store_is_not() {
    let mut desk = Desk::new();
    desk.public(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.submit_one();
    desk.store = None;
    desk.say(&offer, token(1)).say(&offer, done());
    desk.take();
    desk.wait(secs(9));
    let effects = desk.take();
    assert!(matches!(
        effects[..],
        [
            Effect::Ack {
                reward: Kudos(0),
                ..
            },
            Effect::Offer(_)
        ]
    ));
    desk.put(Input::Settled {
        job: offer.job.id,
        reward: Kudos(3),
    });
    assert!(matches!(desk.take()[..], [Effect::End { .. }]));
}

#[test]
fn what_cannot_be_settled_is_not_called_delivered() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.store = Some(Store::Fails);
    desk.say(&offer, token(1))
        .say(&offer, done())
        .wait(secs(26));
    assert_eq!(
        failure_kind(&desk.end()),
        Some(FailureKind::StoreUnavailable)
    );
    desk.put(Input::Settled {
        job: offer.job.id,
        reward: Kudos(3),
    });
    assert!(desk.take().is_empty(), "too late to say anything else");
    desk.assert_nothing_left();
}

#[test]
fn a_stored_job_that_cannot_be_settled_for_as_long_as_it_lives_is_left_on_disk() {
    let mut desk = Desk::new();
    desk.ours(1);
    let mut job = desk.new_job();
    job.durable = true;
    desk.submit(job);
    let offer = desk.offer();
    desk.store = Some(Store::Fails);
    desk.say(&offer, token(1))
        .say(&offer, done())
        .wait(secs(26));
    let has_left = |effect: &Effect| matches!(effect, Effect::Park { .. } | Effect::End { .. });
    let acked = |effect: &Effect| {
        let nothing = Kudos(0);
        matches!(effect, Effect::Ack { reward, .. } if *reward == nothing)
    };
    let effects = desk.take();
    assert!(effects.iter().any(acked), "{effects:?}");
    assert!(!effects.iter().any(has_left), "{effects:?}");
    desk.wait(LIFETIME + secs(1));
    let effects = desk.take();
    let mut left = effects.iter().filter(|effect| has_left(effect));
    assert!(matches!(left.next(), Some(Effect::Park { .. })));
    assert!(left.next().is_none());
}

#[test]
fn a_stored_job_is_settled_when_the_store_comes_back_after_a_long_time() {
    let mut desk = Desk::new();
    desk.ours(1);
    let mut job = desk.new_job();
    job.durable = true;
    desk.submit(job);
    let offer = desk.offer();
    desk.store = Some(Store::Fails);
    desk.say(&offer, token(1))
        .say(&offer, done())
        .wait(secs(300));
    desk.store = Some(Store::Settles);
    desk.wait(secs(5));
    assert!(is_delivered(&desk.end()));
    desk.assert_nothing_left();
}

#[test]
fn a_client_is_told_at_once_that_the_disk_is_full_and_what_is_stored_waits() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    let direct = desk.submit_one();
    let mut stored = desk.new_job();
    stored.durable = true;
    let stored = desk.submit(stored);
    desk.store = None;
    for offer in desk.offers() {
        desk.say(&offer, done());
    }
    for job in [direct, stored] {
        desk.put(Input::StoreFull { job });
    }
    let ends = desk.ends();
    let [(job, Outcome::Failed(failure))] = &ends[..] else {
        panic!("{ends:?}");
    };
    assert_eq!(
        (*job, failure.kind),
        (direct, FailureKind::StoreUnavailable)
    );
    assert_eq!(desk.dispatcher.census().jobs, 1);
    // Not the worker's fault.
    assert_eq!(desk.worker_of(session), 1);
    desk.put(Input::Settled {
        job: stored,
        reward: Kudos(3),
    });
    assert!(is_delivered(&desk.end()));
    desk.assert_nothing_left();
}

#[test]
fn an_answer_for_a_job_that_does_not_settle_is_ignored() {
    let mut desk = Desk::new();
    desk.ours(1);
    let job = desk.submit_one();
    desk.take();
    desk.put(Input::Settled {
        job,
        reward: Kudos(3),
    })
    .put(Input::SettleFailed { job });
    assert!(desk.take().is_empty());
    assert_eq!(desk.dispatcher.census().jobs, 1);
}
