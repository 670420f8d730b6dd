//! Jobs cancelled by the coordinator.

use std::time::Duration;

use super::{Desk, LIFETIME, done, done_with, failure_kind, make_only, secs, token};
use crate::dispatch::{CancelReason, CloseReason, Effect, Input, Mono, Outcome, Said, Settings};
use muster_protocol::job::{
    AccountId, Event, Failure, FailureKind, FinishReason, Kind, Kudos, Media, UnixMillis,
};

fn cancels(effects: &[Effect]) -> Vec<CancelReason> {
    let cancels = effects.iter().filter_map(|effect| match effect {
        Effect::CancelOnWorker { why, .. } => Some(*why),
        _ => None,
    });
    cancels.collect()
}

/// A worker with one slot, a job running on it and another one queued.
fn busy_desk(extensions: crate::dispatch::Extensions) -> (Desk, crate::dispatch::Offer) {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, extensions);
    registration.slots = 1;
    desk.connect(registration);
    desk.submit_one();
    desk.submit_one();
    let offer = desk.offer();
    (desk, offer)
}

#[test]
fn a_queued_job_is_cancelled_at_once() {
    let (mut desk, first) = busy_desk(super::OURS);
    let job = muster_protocol::job::JobId(uuid::Uuid::from_u128(2));
    desk.put(Input::Cancel { job });
    assert_eq!(desk.ends(), [(job, Outcome::Cancelled)]);
    desk.say(&first, token(1)).say(&first, done());
    desk.take();
    desk.assert_nothing_left();
}

#[test]
fn jobs_of_an_account_end_with_the_failure_and_those_of_others_go_on() {
    let (mut desk, offer) = busy_desk(super::OURS);
    desk.say(&offer, token(1));
    let account = offer.job.account;
    let failure = Failure::new(FailureKind::AccountSuspended, "suspended");
    let nobody = AccountId(account.0 + 1);
    desk.put(Input::EndAccount {
        account: nobody,
        failure: failure.clone(),
    });
    assert_eq!(desk.dispatcher.jobs_of(account), 2);
    assert_eq!(desk.dispatcher.jobs_of(nobody), 0);
    desk.put(Input::EndAccount { account, failure });
    desk.say(&offer, done_with(FinishReason::Cancelled));
    let kinds = desk.ends().into_iter().map(|(_, end)| failure_kind(&end));
    let suspended = Some(FailureKind::AccountSuspended);
    assert_eq!(kinds.collect::<Vec<_>>(), [suspended, suspended]);
    assert_eq!(desk.dispatcher.jobs_of(account), 0);
    desk.assert_nothing_left();
}

#[test]
fn a_confirmed_cancel_frees_the_slot_and_is_settled_as_far_as_it_came() {
    let (mut desk, offer) = busy_desk(super::OURS);
    desk.say(&offer, token(1)).say(&offer, token(2));
    desk.put(Input::Cancel { job: offer.job.id });
    assert_eq!(cancels(&desk.take()), [CancelReason::Client]);
    desk.say(&offer, done_with(FinishReason::Cancelled));
    let effects = desk.take();
    let facts = effects.iter().find_map(|effect| match effect {
        Effect::Settle(facts) => Some(facts),
        _ => None,
    });
    let facts = facts.unwrap();
    assert_eq!(facts.outcome, Outcome::Cancelled);
    assert_eq!(facts.parts[0].tokens, 2);
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Offer(_)))
    );
}

#[test]
fn a_worker_that_does_not_confirm_is_free_within_a_second() {
    let (mut desk, offer) = busy_desk(super::OURS);
    desk.put(Input::Cancel { job: offer.job.id });
    desk.take();
    desk.wait(secs(1));
    let effects = desk.take();
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Offer(_)))
    );
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::End { .. }))
    );
}

#[test]
fn a_public_peer_that_does_not_confirm_gets_nothing_until_it_speaks() {
    let (mut desk, offer) = busy_desk(super::PUBLIC);
    desk.put(Input::Cancel { job: offer.job.id }).wait(secs(1));
    assert_eq!(desk.end(), Outcome::Cancelled);
    desk.say(&offer, done_with(FinishReason::Cancelled));
    let effects = desk.take();
    let ack = effects
        .iter()
        .position(|effect| matches!(effect, Effect::Ack { .. }));
    let next = effects
        .iter()
        .position(|effect| matches!(effect, Effect::Offer(_)));
    assert!(
        ack.unwrap() < next.unwrap(),
        "the ack comes before the next job"
    );
}

#[test]
fn a_public_peer_that_never_confirms_is_closed() {
    let (mut desk, offer) = busy_desk(super::PUBLIC);
    desk.put(Input::Cancel { job: offer.job.id }).wait(secs(12));
    let closed = |effect: &Effect| {
        matches!(
            effect,
            Effect::CloseWorker {
                reason: CloseReason::Silent,
                ..
            }
        )
    };
    assert!(desk.take().iter().any(closed));
}

#[test]
fn a_public_media_peer_is_not_told_and_given_nothing_until_it_is_done() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, super::PUBLIC);
    make_only(&mut registration, Kind::Image);
    desk.connect(registration);
    let mut job = desk.new_job();
    job.kind = Kind::Image;
    let mut next = desk.new_job();
    next.kind = Kind::Image;
    let job = desk.submit(job);
    desk.submit(next);
    let offer = desk.offer();
    desk.put(Input::Cancel { job });
    let effects = desk.take();
    assert!(cancels(&effects).is_empty());
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::End { .. }))
    );
    desk.wait(secs(60));
    assert!(desk.offers().is_empty());
    desk.say(&offer, done());
    assert_eq!(desk.offers().len(), 1);
}

/// A socket worker that runs an image job and is told to stop.
fn drawing_desk() -> (Desk, crate::dispatch::Offer) {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, super::OURS);
    make_only(&mut registration, Kind::Image);
    desk.connect(registration);
    let mut job = desk.new_job();
    job.kind = Kind::Image;
    let job = desk.submit(job);
    let offer = desk.offer();
    desk.put(Input::Cancel { job });
    assert_eq!(cancels(&desk.take()), [CancelReason::Client]);
    (desk, offer)
}

#[test]
fn a_cancelled_image_is_kept_if_it_comes_and_else_nothing_was_made() {
    let made = |brings: bool| {
        let (mut desk, offer) = drawing_desk();
        if brings {
            desk.say(&offer, Said::Event(Event::Media(Media::default())));
        }
        desk.say(&offer, done_with(FinishReason::Cancelled));
        let effects = desk.take();
        let relayed = |effect: &&Effect| matches!(effect, Effect::Relay { .. });
        let relayed = effects.iter().filter(relayed).count();
        let events = effects.iter().find_map(|effect| match effect {
            Effect::Settle(facts) => facts.parts.last().map(|part| part.events),
            _ => None,
        });
        (relayed, events)
    };
    assert_eq!(made(true), (1, Some(1)));
    assert_eq!(made(false), (0, Some(0)));
}

#[test]
fn a_slow_client_loses_its_own_job_only() {
    let mut desk = Desk::new();
    desk.ours(1);
    let (slow, quick) = (desk.submit_one(), desk.submit_one());
    let offers = desk.offers();
    desk.put(Input::SlowClient { job: slow })
        .say(&offers[0], done());
    desk.say(&offers[1], token(1)).say(&offers[1], done());
    let ends = desk.ends();
    assert_eq!(ends[0].0, slow);
    assert_eq!(failure_kind(&ends[0].1), Some(FailureKind::SlowClient));
    assert_eq!(ends[1].0, quick);
    assert!(super::is_delivered(&ends[1].1));
}

#[test]
fn jobs_expire_in_the_queue_and_on_the_worker() {
    let (mut desk, offer) = busy_desk(super::OURS);
    for _ in 0..130 {
        desk.wait(secs(5));
        desk.say(&offer, token(1));
    }
    let ends = desk.ends();
    assert_eq!(ends.len(), 2);
    assert!(ends.iter().all(|(_, outcome)| *outcome == Outcome::Expired));
    desk.assert_nothing_left();
}

#[test]
fn clock_jumps_expire_nothing_and_keep_nothing_alive() {
    let (mut desk, offer) = busy_desk(super::OURS);
    desk.now.wall = UnixMillis(desk.now.wall.0 + 86_400_000);
    desk.put(Input::Tick);
    assert!(
        desk.ends().is_empty(),
        "a day forward on the wall is no time at all"
    );
    desk.now.wall = UnixMillis(desk.now.wall.0 - 10 * 86_400_000);
    for _ in 0..130 {
        desk.wait(secs(5));
        desk.say(&offer, token(1));
    }
    assert_eq!(
        desk.ends().len(),
        2,
        "days back on the wall, and they expire all the same"
    );
}

#[test]
fn a_clock_that_goes_back_is_held() {
    let (mut desk, _) = busy_desk(super::OURS);
    desk.wait(secs(5));
    desk.now.mono = Mono(0);
    desk.put(Input::Tick);
    assert!(desk.take().is_empty());
}

#[test]
fn a_deadline_far_away_is_capped() {
    let mut desk = Desk::with(Settings {
        longest_life: LIFETIME,
        ..Settings::default()
    });
    let mut registration = desk.registration(1, super::OURS);
    registration.slots = 1;
    desk.connect(registration);
    let mut job = desk.new_job();
    job.deadline = UnixMillis(i64::MAX);
    desk.submit(job);
    assert_eq!(desk.offer().remaining, LIFETIME);
}

#[test]
fn a_draining_coordinator_takes_nothing_and_parks_what_is_on_disk() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, super::OURS);
    registration.slots = 1;
    desk.connect(registration);
    let mut stored = desk.new_job();
    stored.durable = true;
    let running = desk.submit_one();
    let stored = desk.submit(stored);
    let waiting = desk.submit_one();
    desk.take();
    desk.put(Input::Drain { within: secs(10) });
    let parked = |effect: &Effect| matches!(effect, Effect::Park { job } if *job == stored);
    assert!(desk.take().iter().any(parked), "nobody waits for it");
    desk.submit_one();
    let refused = |effect: &Effect| matches!(effect, Effect::Refused { .. });
    assert!(desk.take().iter().any(refused));
    desk.wait(secs(5));
    assert!(desk.take().is_empty());
    desk.wait(secs(6));
    let effects = desk.take();
    for job in [running, waiting] {
        let ended = |effect: &Effect| matches!(effect, Effect::End { job: it, .. } if *it == job);
        assert!(effects.iter().any(ended));
    }
    assert!(matches!(effects.last(), Some(Effect::Drained)));
}

#[test]
fn a_coordinator_that_hands_over_settles_ended_jobs_and_leaves_the_others() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, super::OURS);
    registration.slots = 3;
    desk.connect(registration);
    let [running, ended, cancelled] = [(); 3].map(|()| desk.submit_one());
    let offers = desk.offers();
    let offer = |job| offers.iter().find(|offer| offer.job.id == job).unwrap();
    let waiting = desk.submit_one();
    desk.say(offer(cancelled), token(7));
    desk.store = None;
    desk.put(Input::Cancel { job: cancelled });
    desk.say(offer(ended), done());
    desk.take();
    desk.put(Input::HandOver);
    let effects = desk.take();
    let mut parked = Vec::new();
    let mut settling = Vec::new();
    for effect in &effects {
        match effect {
            Effect::Park { job } => parked.push(*job),
            Effect::Settle(facts) => settling.push(facts.job.id),
            Effect::End { .. } | Effect::Drained => panic!("{effect:?}"),
            _ => {}
        }
    }
    parked.sort_unstable();
    assert_eq!(
        (parked, settling),
        (vec![running, waiting], vec![cancelled])
    );
    for job in [ended, cancelled] {
        let reward = Kudos(1);
        desk.put(Input::Settled { job, reward });
    }
    assert!(matches!(desk.take().last(), Some(Effect::Drained)));
    desk.submit_one();
    let refused = |effect: &Effect| matches!(effect, Effect::Refused { .. });
    assert!(desk.take().iter().any(refused));
    desk.assert_nothing_left();
}

#[test]
fn a_drain_does_not_wait_for_what_waits_on_disk() {
    let mut desk = Desk::new();
    let mut stored = desk.new_job();
    stored.durable = true;
    let stored = desk.submit(stored);
    desk.take();
    desk.put(Input::Drain { within: secs(10) });
    let effects = desk.take();
    assert!(matches!(effects[..], [Effect::Park { job }, Effect::Drained] if job == stored));
}

#[test]
fn a_drain_with_nothing_to_do_is_over_at_once() {
    let mut desk = Desk::new();
    desk.put(Input::Drain {
        within: Duration::from_secs(10),
    });
    assert!(matches!(desk.take()[..], [Effect::Drained]));
}
