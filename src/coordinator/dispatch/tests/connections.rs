//! Connect, disconnect and resume.

use super::{Desk, OURS, done, is_delivered, secs, token};
use crate::dispatch::{Claim, CloseReason, Effect, Input, Offer, Resume, SessionId, Verdict};
use muster_protocol::job::{Kudos, WorkerId};

fn resumed(effects: &[Effect]) -> Vec<Verdict> {
    let ready = effects.iter().find_map(|effect| match effect {
        Effect::Ready { resumed, .. } => Some(resumed.clone()),
        _ => None,
    });
    ready.unwrap()
}

fn claim(session: SessionId, offers: &[&Offer]) -> Resume {
    let claims = offers.iter().map(|offer| Claim {
        job: offer.job.id,
        attempt: offer.attempt,
    });
    Resume {
        session,
        jobs: claims.collect(),
    }
}

#[test]
fn a_worker_that_comes_back_goes_on_where_we_stopped_hearing() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say_on(session, &offer, Some(1), token(1));
    desk.lose(session).wait(secs(30));
    let back = desk.back(1, claim(session, &[&offer]));
    let effects = desk.take();
    assert_eq!(resumed(&effects)[0].go_on_after, Some(1));
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::Offer(_)))
    );
    desk.say_on(back, &offer, Some(1), token(1));
    assert!(desk.take().is_empty(), "it repeats what we have");
    desk.say_on(back, &offer, Some(2), token(2))
        .say_on(back, &offer, Some(3), done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn a_job_goes_on_where_its_worker_serves_its_model_no_more() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say_on(session, &offer, Some(1), token(1));
    let mut registration = desk.registration(1, OURS);
    registration.models[0].name = "other".into();
    registration.resume = Some(claim(session, &[&offer]));
    let back = desk.connect(registration);
    assert_eq!(resumed(&desk.take())[0].go_on_after, Some(1));
    // Another job of the model waits for another worker, even while the first one runs.
    desk.submit_one();
    assert!(desk.offers().is_empty());
    desk.say_on(back, &offer, Some(2), done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn what_it_does_not_claim_is_given_to_others() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    desk.submit_one();
    let offers = desk.offers();
    desk.lose(session);
    desk.back(1, claim(session, &[&offers[0]]));
    let again = desk.offer();
    assert_eq!((again.job.id, again.attempt), (offers[1].job.id, 2));
}

#[test]
fn claims_of_others_of_other_attempts_and_of_other_sessions_are_refused() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    let mut wrong = offer.clone();
    wrong.attempt = 5;
    desk.lose(first);
    desk.back(2, claim(first, &[&offer]));
    assert_eq!(resumed(&desk.take())[0].go_on_after, None);
    desk.back(1, claim(SessionId(999), &[&offer, &wrong]));
    let effects = desk.take();
    assert!(
        resumed(&effects)
            .iter()
            .all(|verdict| verdict.go_on_after.is_none())
    );
}

#[test]
fn the_grace_time_over_the_job_is_anothers_and_the_worker_is_told_to_drop_it() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.ours(2);
    desk.lose(first).wait(secs(46));
    assert_eq!(desk.offer().attempt, 2);
    let back = desk.back(1, claim(first, &[&offer]));
    assert_eq!(resumed(&desk.take())[0].go_on_after, None);
    desk.say_on(back, &offer, Some(9), done());
    assert!(matches!(
        desk.take()[..],
        [Effect::Ack {
            reward: Kudos(0),
            ..
        }]
    ));
}

#[test]
fn with_another_worker_free_a_lost_one_is_waited_for_briefly() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, token(1));
    let second = desk.ours(2);
    desk.lose(first).wait(secs(4));
    assert!(desk.offers().is_empty());
    desk.wait(secs(2));
    assert_eq!(desk.offer().session, second);
}

#[test]
fn with_all_others_busy_a_lost_worker_is_waited_for() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    let mut other = desk.registration(2, super::OURS);
    other.slots = 1;
    desk.connect(other);
    desk.submit_all(vec![]);
    for _ in 0..4 {
        desk.submit_one();
    }
    desk.lose(first);
    let busy = desk.offers();
    for _ in 0..7 {
        desk.wait(secs(4));
        for offer in &busy {
            desk.say(offer, crate::dispatch::Said::Alive);
        }
    }
    desk.back(1, claim(first, &[&offer]));
    assert_eq!(resumed(&desk.take())[0].go_on_after, Some(0));
}

#[test]
fn a_replaced_socket_is_closed_after_the_new_one_is_ready_and_is_not_listened_to() {
    let mut desk = Desk::new();
    let old = desk.public(1);
    desk.submit_one();
    let offer = desk.offer();
    let new = desk.public(1);
    let effects = desk.take();
    assert!(matches!(effects[0], Effect::Ready { session, .. } if session == new));
    let Effect::CloseWorker { session, reason } = effects[1] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (session, reason, reason.code()),
        (old, CloseReason::Replaced, Some(1012))
    );
    assert!(matches!(&effects[2], Effect::Offer(offer) if offer.session == new));
    desk.say(&offer, token(1)).say(&offer, done());
    desk.put(Input::Lost { session: old });
    assert!(desk.take().is_empty());
}

#[test]
fn a_replaced_socket_can_be_resumed_from() {
    let mut desk = Desk::new();
    let old = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    let new = desk.back(1, claim(old, &[&offer]));
    assert_eq!(resumed(&desk.take())[0].go_on_after, Some(0));
    desk.say_on(new, &offer, Some(1), token(1))
        .say_on(new, &offer, Some(2), done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn an_ack_finds_the_worker_on_its_new_socket() {
    let mut desk = Desk::new();
    let old = desk.ours(1);
    let job = desk.submit_one();
    let offer = desk.offer();
    desk.store = None;
    desk.say_on(old, &offer, Some(1), token(1))
        .say_on(old, &offer, Some(2), done());
    desk.lose(old);
    let new = desk.back(1, claim(old, &[&offer]));
    assert_eq!(resumed(&desk.take())[0].go_on_after, Some(2));
    desk.put(Input::Settled {
        job,
        reward: Kudos(5),
    });
    let acked = |effect: &Effect| matches!(effect, Effect::Ack { session, reward: Kudos(5), .. } if *session == new);
    assert!(desk.take().iter().any(acked));
}

#[test]
fn a_leaving_worker_finishes_and_is_offered_nothing() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.put(Input::Leaving {
        session,
        within: secs(60),
    });
    desk.submit_one();
    let refused = |effect: &Effect| matches!(effect, Effect::Refused { .. });
    assert!(
        desk.take().iter().any(refused),
        "it is not listed for new requests"
    );
    desk.say(&offer, token(1)).say(&offer, done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn a_worker_that_leaves_with_a_job_is_not_waited_for() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    desk.take();
    desk.ours(2);
    desk.put(Input::Leaving {
        session,
        within: secs(60),
    })
    .lose(session);
    assert_eq!(desk.offers().len(), 1);
}

#[test]
fn a_drained_worker_is_told_and_let_go_when_it_is_done() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.put(Input::DrainWorker {
        worker: WorkerId(1),
        within: secs(60),
    });
    assert!(matches!(desk.take()[..], [Effect::TellDrain { .. }]));
    desk.say(&offer, token(1)).say(&offer, done());
    let closed = |effect: &Effect| matches!(effect, Effect::CloseWorker { session: it, reason: CloseReason::Drained } if *it == session);
    assert!(desk.take().iter().any(closed));
    assert_eq!(desk.dispatcher.census().workers, 0);
}

#[test]
fn a_drain_has_an_end() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.put(Input::Leaving {
        session,
        within: secs(10),
    });
    for _ in 0..3 {
        desk.wait(secs(4)).say(&offer, crate::dispatch::Said::Alive);
    }
    let closed = |effect: &Effect| matches!(effect, Effect::CloseWorker { .. });
    assert!(desk.take().iter().any(closed));
    assert_eq!(desk.dispatcher.census().queued, 1);
}

#[test]
fn frames_that_have_arrived_are_confirmed_now_and_then() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    for seq in 1..=70 {
        desk.say_on(session, &offer, Some(seq), token(1));
    }
    let got = desk.take().into_iter().filter_map(|effect| match effect {
        Effect::Got { seq, .. } => Some(seq),
        _ => None,
    });
    assert_eq!(got.collect::<Vec<_>>(), [32, 64]);
}
