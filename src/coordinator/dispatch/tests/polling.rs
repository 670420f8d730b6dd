//! Polling workers, and durable jobs.

use std::sync::Arc;

use super::{
    Desk, done, done_with, failed, failure_kind, is_delivered, make_only, secs, texts, token,
};
use crate::dispatch::clock::Mono;
use crate::dispatch::polling::LANES;
use crate::dispatch::{
    Effect, Extensions, Input, Missing, Offer, Outcome, Refusal, Registration, SessionId, Settings,
    Skip, Standing, Submission, Wants,
};
use muster_protocol::job::{
    AccountId, Capabilities, FailureKind, FinishReason, Formats, Job, Kind, ModelChoice, Reach,
    TextNeeds,
};

const REACH: Reach = Reach {
    text: TextNeeds {
        context: 2048,
        window: 2048,
        output: 512,
    },
    ..Reach::ENDLESS
};

pub const POLLING: Extensions = Extensions {
    multi: true,
    cancel: false,
    resume: false,
    lease: false,
};

impl Desk {
    /// A polling worker for `tiny`.
    pub fn poller(&mut self, worker: i64) -> SessionId {
        let registration = self.poller_registration(worker, POLLING);
        self.connect(registration)
    }

    pub fn poller_registration(&mut self, worker: i64, polling: Extensions) -> Registration {
        let mut registration = self.registration(worker, polling);
        registration.formats = Formats::LEGACY;
        registration.reach = REACH;
        registration.polls = true;
        registration.models[0].slots = u32::MAX;
        registration.models[0].offering.reach = REACH;
        registration
    }

    pub fn pop(&mut self, session: SessionId, most: u32) -> Vec<Offer> {
        self.take();
        let wants = Wants::most(most);
        self.put(Input::Pop { session, wants });
        self.offers()
    }

    pub fn stored_job(&mut self) -> Job {
        let mut job = self.new_job();
        job.durable = true;
        job.limits.formats = Formats::NEUTRAL.with(Formats::LEGACY);
        job
    }

    pub fn stored(&mut self) -> muster_protocol::job::JobId {
        let job = self.stored_job();
        self.submit(job)
    }
}

#[test]
fn a_worker_that_polls_has_room_only_in_the_moment_it_asks() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    assert!(desk.pop(poller, 1).is_empty());
    let job = desk.stored();
    assert!(desk.offers().is_empty());
    let offers = desk.pop(poller, 1);
    assert_eq!(offers.len(), 1);
    assert_eq!(offers[0].job.id, job);
    desk.stored();
    desk.wait(secs(60));
    assert!(desk.offers().is_empty());
    assert_eq!(desk.pop(poller, 5).len(), 1);
}

#[test]
fn one_pop_gives_jobs_of_one_request_only() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    desk.stored();
    let mut siblings: Vec<Job> = (0..4).map(|_| desk.stored_job()).collect();
    let request = siblings[0].request;
    siblings.iter_mut().for_each(|job| job.request = request);
    desk.submit_all(siblings);
    assert_eq!(
        desk.pop(poller, 3).len(),
        1,
        "the first request has one job"
    );
    let offers = desk.pop(poller, 3);
    assert_eq!(offers.len(), 3);
    assert!(offers.iter().all(|offer| offer.job.request == request));
    assert_eq!(desk.pop(poller, 3).len(), 1);
    assert!(desk.pop(poller, 3).is_empty());
}

#[test]
fn what_it_brings_is_settled_and_acked_and_ends_the_job() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    desk.stored();
    let offer = desk.pop(poller, 1).remove(0);
    desk.say(&offer, token(1)).say(&offer, done());
    let effects = desk.take();
    assert!(effects.iter().any(|it| matches!(it, Effect::Relay { .. })));
    assert!(
        effects
            .iter()
            .any(|it| matches!(it, Effect::Ack { reward, .. } if reward.0 == 100))
    );
    assert!(
        effects
            .iter()
            .any(|it| matches!(it, Effect::End { outcome, .. } if is_delivered(outcome)))
    );
    desk.assert_nothing_left();
    desk.say(&offer, done());
    let effects = desk.take();
    assert!(matches!(effects[..], [Effect::Drop { .. }]), "{effects:?}");
}

/// A job that an earlier process leased is queued again in this one.
#[test]
fn a_job_that_is_not_brought_in_time_goes_to_another_and_its_worker_comes_too_late() {
    let mut desk = Desk::new();
    let (slow, quick) = (desk.poller(1), desk.poller(2));
    let job = desk.stored();
    let late = desk.pop(slow, 1).remove(0);
    desk.wait(secs(149));
    assert!(desk.pop(quick, 1).is_empty());
    desk.wait(secs(2));
    assert!(
        desk.take()
            .iter()
            .any(|it| matches!(it, Effect::Returned { job: it } if *it == job))
    );
    assert!(
        desk.pop(slow, 1).is_empty(),
        "it goes to whoever has not failed it"
    );
    let offer = desk.pop(quick, 1).remove(0);
    assert_eq!((offer.job.id, offer.attempt), (job, 2));
    desk.say(&late, done());
    assert!(matches!(desk.take()[..], [Effect::Drop { attempt: 1, .. }]));
    desk.say(&offer, token(1)).say(&offer, done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn a_worker_that_polls_is_told_when_a_job_is_taken_away() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let mut job = desk.stored_job();
    // A job with a waiting client, which sets no lease of its own.
    job.durable = false;
    assert_eq!(job.limits.patience, None);
    desk.submit(job);
    let offer = desk.pop(poller, 1).remove(0);
    assert_eq!(offer.patience, Some(Settings::default().poll_patience));
}

#[test]
fn a_job_may_say_how_long_it_takes() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let mut job = desk.stored_job();
    job.limits.patience = Some(secs(400));
    desk.submit(job);
    let offer = desk.pop(poller, 1).remove(0);
    desk.wait(secs(399))
        .say(&offer, token(1))
        .say(&offer, done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn a_stored_job_is_taken_though_nobody_serves_it_and_waits_for_its_whole_life() {
    let mut desk = Desk::new();
    let job = desk.stored();
    assert!(
        desk.take()
            .iter()
            .any(|it| matches!(it, Effect::Accepted { .. }))
    );
    desk.wait(secs(500));
    assert!(desk.ends().is_empty());
    let poller = desk.poller(1);
    let offer = desk.pop(poller, 1).remove(0);
    assert_eq!(offer.job.id, job);
    desk.say(&offer, failed());
    desk.take();
    desk.wait(super::LIFETIME);
    assert_eq!(desk.end(), Outcome::Expired);
    desk.assert_nothing_left();
}

#[test]
fn a_stored_job_that_waited_goes_to_a_worker_on_a_socket_too() {
    let mut desk = Desk::new();
    let job = desk.stored();
    desk.wait(secs(100)).ours(1);
    assert_eq!(desk.offer().job.id, job);
}

#[test]
fn a_job_for_any_model_goes_to_whoever_comes() {
    let mut desk = Desk::new();
    let mut job = desk.stored_job();
    job.model = ModelChoice(Vec::new());
    desk.submit(job);
    let poller = desk.poller(1);
    let offer = desk.pop(poller, 1).remove(0);
    assert_eq!(&*offer.model, "tiny");
    assert_eq!(desk.dispatcher.census().models, 1);
}

#[test]
fn what_is_not_for_a_worker_is_counted_by_what_it_lacks() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let change = |desk: &mut Desk, change: &dyn Fn(&mut Job)| {
        let mut job = desk.stored_job();
        change(&mut job);
        desk.submit(job);
    };
    change(&mut desk, &|job| {
        job.model = ModelChoice(vec!["other".into()])
    });
    change(&mut desk, &|job| job.limits.needs = texts(0, 513));
    change(&mut desk, &|job| job.limits.needs = texts(4096, 0));
    change(&mut desk, &|job| job.limits.needs = texts(2049, 0));
    change(&mut desk, &|job| job.limits.formats = Formats::NEUTRAL);
    change(&mut desk, &|job| {
        job.privacy = muster_protocol::job::Privacy::Trusted
    });
    change(&mut desk, &|job| {
        job.privacy = muster_protocol::job::Privacy::OwnWorkers
    });
    assert!(desk.pop(poller, 1).is_empty());
    let skipped: Vec<_> = desk
        .dispatcher
        .skipped(poller, &Wants::most(1))
        .into_iter()
        .collect();
    let expected = [
        (Skip::Models, 1),
        (Skip::Ability, 1),
        (Skip::Window, 2),
        (Skip::Output, 1),
        (Skip::Untrusted, 1),
        (Skip::Workers, 1),
    ];
    assert_eq!(skipped, expected);
}

#[test]
fn a_worker_that_changes_its_models_is_given_the_new_ones_and_keeps_what_it_has() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    desk.stored();
    let offer = desk.pop(poller, 1).remove(0);
    let mut other = desk.stored_job();
    other.model = ModelChoice(vec!["other".into()]);
    let other = desk.submit(other);
    let tiny = desk.stored();
    let mut registration = desk.registration(
        1,
        Extensions {
            multi: true,
            ..Extensions::default()
        },
    );
    registration.session = poller;
    registration.formats = Formats::LEGACY;
    registration.polls = true;
    registration.models[0].offering.reach = REACH;
    registration.models[0].name = "other".into();
    desk.put(Input::Changed(Box::new(registration)));
    assert_eq!(desk.pop(poller, 1)[0].job.id, other);
    assert!(desk.pop(poller, 1).is_empty());
    desk.say(&offer, token(1)).say(&offer, done());
    assert!(is_delivered(&desk.end()));
    let another = desk.poller(2);
    assert_eq!(desk.pop(another, 1)[0].job.id, tiny);
}

#[test]
fn a_cancelled_job_that_is_out_may_still_be_brought_and_is_paid() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let job = desk.stored();
    let offer = desk.pop(poller, 1).remove(0);
    desk.put(Input::Cancel { job }).wait(secs(100));
    assert!(desk.ends().is_empty());
    desk.say(&offer, token(1)).say(&offer, done());
    let effects = desk.take();
    assert!(effects.iter().any(|it| matches!(it, Effect::Relay { .. })));
    assert!(effects.iter().any(|it| matches!(it, Effect::Ack { .. })));
    assert!(
        effects
            .iter()
            .any(|it| matches!(it, Effect::End { outcome, .. } if is_delivered(outcome)))
    );
    desk.assert_nothing_left();
}

#[test]
fn what_is_brought_of_a_cancelled_job_ends_as_its_worker_says() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let job = desk.stored();
    let offer = desk.pop(poller, 1).remove(0);
    desk.put(Input::Cancel { job });
    let hidden = done_with(FinishReason::ContentFilter);
    desk.say(&offer, token(1)).say(&offer, hidden);
    let Outcome::Delivered { finish, .. } = desk.end() else {
        panic!("it is delivered");
    };
    assert_eq!(finish, FinishReason::ContentFilter);
    // A worker that submits nothing has stopped, and gets no strike.
    let job = desk.stored();
    let offer = desk.pop(poller, 1).remove(0);
    desk.put(Input::Cancel { job });
    desk.say(&offer, done_with(FinishReason::Cancelled));
    assert_eq!(desk.end(), Outcome::Cancelled);
    desk.assert_nothing_left();
}

#[test]
fn a_cancelled_job_that_is_not_brought_ends_when_its_time_is_over_and_strikes_nobody() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    let job = desk.stored();
    desk.pop(poller, 1);
    desk.put(Input::Cancel { job }).wait(secs(151));
    assert_eq!(desk.end(), Outcome::Cancelled);
    desk.assert_nothing_left();
    assert_eq!(desk.dispatcher.census().records, 0);
}

#[test]
fn a_worker_that_comes_no_more_loses_its_jobs_to_others() {
    let mut desk = Desk::new();
    let (gone, other) = (desk.poller(1), desk.poller(2));
    let job = desk.stored();
    desk.pop(gone, 1);
    desk.lose(gone);
    assert_eq!(desk.pop(other, 1)[0].job.id, job);
    assert!(desk.pop(gone, 1).is_empty());
}

#[test]
fn jobs_of_a_client_that_waits_are_refused_when_only_a_worker_of_less_reach_is_there() {
    let mut desk = Desk::new();
    desk.poller(1);
    let mut job = desk.stored_job();
    job.durable = false;
    job.limits.needs = texts(0, 1000);
    desk.submit(job);
    let effects = desk.take();
    let refused = |effect: &Effect| matches!(effect, Effect::Refused { .. });
    assert!(effects.iter().any(refused), "{effects:?}");
}

#[test]
fn stored_jobs_are_parked_when_the_coordinator_leaves() {
    let mut desk = Desk::with(Settings::default());
    let poller = desk.poller(1);
    let (out, waiting) = (desk.stored(), desk.stored());
    desk.pop(poller, 1);
    desk.put(Input::Drain { within: secs(1) }).wait(secs(2));
    let parked: Vec<_> = desk
        .take()
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Park { job } => Some(job),
            Effect::End { .. } => panic!("a stored job has ended"),
            _ => None,
        })
        .collect();
    assert_eq!(parked, [waiting, out], "what waits goes first");
    desk.assert_nothing_left();
}

/// Lifetime of these requests after each activity.
const LIFE: u64 = 600;

impl Desk {
    pub fn living(&mut self, siblings: usize) -> Vec<muster_protocol::job::JobId> {
        let mut jobs: Vec<Job> = (0..siblings).map(|_| self.stored_job()).collect();
        let request = jobs[0].request;
        for job in &mut jobs {
            job.request = request;
            job.deadline = self.now.wall.after(secs(LIFE));
            job.limits.life = Some(secs(LIFE));
            job.limits.patience = Some(secs(150));
            job.limits.requires = Capabilities::TIMELY;
        }
        let ids = jobs.iter().map(|job| job.id).collect();
        self.submit_all(jobs);
        ids
    }

    pub fn timely_poller(&mut self, worker: i64, capabilities: Capabilities) -> SessionId {
        let mut registration = self.poller_registration(worker, POLLING);
        registration.capabilities = capabilities;
        self.connect(registration)
    }
}

#[test]
fn a_request_lives_on_when_one_of_its_jobs_is_taken_or_brought() {
    let mut desk = Desk::new();
    let poller = desk.timely_poller(1, Capabilities::TIMELY);
    desk.living(2);
    desk.wait(secs(500));
    let first = desk.pop(poller, 1).remove(0);
    assert_eq!(first.remaining, secs(LIFE));
    desk.wait(secs(120));
    assert!(
        desk.ends().is_empty(),
        "taken after 500 s, it lives until 1100"
    );
    desk.say(&first, token(1)).say(&first, done());
    assert!(is_delivered(&desk.end()));
    desk.wait(secs(550));
    assert!(
        desk.ends().is_empty(),
        "brought after 620 s, it lives until 1220"
    );
    desk.wait(secs(60));
    assert_eq!(desk.end(), Outcome::Expired);
    desk.assert_nothing_left();
}

#[test]
fn of_very_many_lanes_some_are_looked_at_and_their_counts_stand_for_all() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    for number in 0..2 * LANES {
        let mut job = desk.stored_job();
        job.model = ModelChoice(vec![format!("other {number}").into()]);
        desk.submit(job);
    }
    let skipped = desk.dispatcher.skipped(poller, &Wants::most(1));
    assert_eq!(
        skipped.into_iter().collect::<Vec<_>>(),
        [(Skip::Models, 2 * LANES)]
    );
}

#[test]
fn what_a_very_slow_worker_takes_lives_for_an_hour_and_an_image_may_stay_there_longer() {
    let mut desk = Desk::new();
    let mut registration = desk.poller_registration(1, POLLING);
    make_only(&mut registration, Kind::Image);
    let slow = desk.connect(registration);
    let mut job = desk.stored_job();
    job.kind = Kind::Image;
    job.deadline = desk.now.wall.after(secs(LIFE));
    job.limits.life = Some(secs(LIFE));
    job.limits.patience = Some(secs(150));
    desk.submit(job);
    let offer = desk.pop(slow, 1).remove(0);
    assert_eq!(offer.remaining, secs(3600));
    assert_eq!(offer.patience, Some(secs(450)));
    desk.wait(secs(440));
    assert!(desk.take().is_empty());
    desk.wait(secs(20));
    assert_eq!(desk.pop(slow, 1)[0].attempt, 2);
}

#[test]
fn a_worker_is_told_of_requests_and_not_of_their_jobs() {
    let mut desk = Desk::new();
    let poller = desk.timely_poller(1, Capabilities::default());
    desk.living(3);
    desk.living(2);
    let skipped = desk.dispatcher.skipped(poller, &Wants::most(1));
    assert_eq!(skipped.into_iter().collect::<Vec<_>>(), [(Skip::Speed, 2)]);
}

#[test]
fn what_has_waited_in_an_earlier_process_has_waited() {
    let mut desk = Desk::new();
    desk.now.mono = Mono::START;
    let poller = desk.poller(1);
    let (young, mut old) = (desk.stored_job(), desk.stored_job());
    old.account = AccountId(2);
    let (young, old) = (desk.submit(young), {
        let standing = Standing {
            since: Some(desk.now.wall.before(secs(300))),
            ..Standing::default()
        };
        let id = old.id;
        let jobs = vec![Arc::new(old)];
        desk.put(Input::Submit(Submission { jobs, standing }));
        id
    });
    let first = desk.pop(poller, 1).remove(0);
    assert_eq!(first.job.id, old);
    assert_eq!(desk.pop(poller, 1)[0].job.id, young);
    desk.say(&first, token(1)).say(&first, done());
    let settled = desk.take().into_iter().find_map(|effect| match effect {
        Effect::Settle(facts) => Some(facts.timing.total),
        _ => None,
    });
    assert_eq!(settled, Some(secs(300)));
}

fn interactive(desk: &mut Desk) -> Job {
    let mut job = desk.new_job();
    job.limits.formats = Formats::NEUTRAL.with(Formats::LEGACY);
    job
}

fn refusal(desk: &mut Desk) -> Option<Refusal> {
    desk.take().into_iter().find_map(|effect| match effect {
        Effect::Refused { refusal, .. } => Some(refusal),
        _ => None,
    })
}

#[test]
fn a_worker_that_has_ceased_to_poll_serves_no_client_who_waits() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    desk.pop(poller, 1);
    desk.wait(secs(29));
    let job = interactive(&mut desk);
    assert!(desk.dispatcher.feasible(&job).is_ok());
    desk.wait(secs(2));
    let job = interactive(&mut desk);
    desk.submit(job);
    let missing = match refusal(&mut desk) {
        Some(Refusal::Unserved { missing, .. }) => missing,
        other => panic!("expected a refusal, found {other:?}"),
    };
    assert_eq!(missing, Missing::Absent(vec!["tiny".into()]));
    desk.stored();
    assert!(refusal(&mut desk).is_none(), "what is on disk waits for it");
    desk.pop(poller, 1);
    let job = interactive(&mut desk);
    desk.submit(job);
    assert!(refusal(&mut desk).is_none());
}

#[test]
fn a_client_waits_a_minute_at_most_for_a_worker_that_has_ceased_to_poll() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    desk.pop(poller, 1);
    let job = interactive(&mut desk);
    desk.submit(job);
    desk.wait(secs(59));
    assert!(desk.ends().is_empty());
    desk.wait(secs(2));
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::NoWorker));
}

#[test]
fn a_worker_that_is_at_a_job_counts_though_it_does_not_poll() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    desk.stored();
    assert_eq!(desk.pop(poller, 1).len(), 1);
    desk.wait(secs(100));
    let job = interactive(&mut desk);
    assert!(desk.dispatcher.feasible(&job).is_ok());
}

#[test]
fn a_job_that_has_to_start_at_once_ends_if_no_worker_takes_it() {
    let mut desk = Desk::new();
    let poller = desk.poller(1);
    desk.pop(poller, 1);
    for is_taken in [false, true] {
        let mut job = interactive(&mut desk);
        job.limits.start_within = Some(secs(2));
        desk.submit(job);
        if is_taken {
            assert_eq!(desk.pop(poller, 1).len(), 1);
        }
        desk.wait(secs(3));
        let ends = desk.ends();
        assert_eq!(ends.is_empty(), is_taken, "{ends:?}");
    }
}
