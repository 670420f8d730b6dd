//! Priority at a worker, and workers for their owner only.

use super::polling::POLLING;
use super::{Desk, OURS, done, secs, token};
use crate::dispatch::{Effect, Input, SessionId, Skip, Terms, Wants};
use muster_protocol::job::{AccountId, Capabilities, Job, JobId, Targets, WorkerId};

const OWN_ONLY: Terms = Terms {
    own_only: true,
    fast: false,
};
const FAST: Terms = Terms {
    own_only: false,
    fast: true,
};

impl Desk {
    fn decide(&mut self, worker: i64, terms: Terms) {
        let worker = WorkerId(worker);
        self.put(Input::Terms { worker, terms });
    }

    fn job_of(&mut self, account: i64) -> Job {
        let mut job = self.stored_job();
        job.account = AccountId(account);
        job
    }

    fn wait_for(&mut self, account: i64) -> JobId {
        let job = self.job_of(account);
        self.submit(job)
    }

    /// A polling worker of account 101 that prefers jobs of these accounts.
    fn preferring(&mut self, accounts: &[i64]) -> SessionId {
        let mut registration = self.poller_registration(1, POLLING);
        registration.prefers = accounts.iter().copied().map(AccountId).collect();
        self.connect(registration)
    }
}

#[test]
fn the_owners_jobs_and_those_it_prefers_go_first_and_then_everybodys() {
    let mut desk = Desk::new();
    let poller = desk.preferring(&[7]);
    let strangers = desk.wait_for(1);
    desk.wait(secs(100));
    let (preferred, own) = (desk.wait_for(7), desk.wait_for(101));
    let given: Vec<JobId> = (0..3).map(|_| desk.pop(poller, 1)[0].job.id).collect();
    assert_eq!(given, [preferred, own, strangers]);
}

#[test]
fn a_worker_on_a_socket_does_its_owners_jobs_first_too() {
    let mut desk = Desk::new();
    desk.wait_for(1);
    desk.wait(secs(100));
    let own = desk.wait_for(101);
    let mut registration = desk.registration(1, OURS);
    registration.slots = 1;
    registration.models[0].slots = 1;
    desk.take();
    desk.connect(registration);
    assert_eq!(desk.offer().job.id, own);
}

#[test]
fn a_worker_in_maintenance_is_given_its_owners_jobs_only() {
    let mut desk = Desk::new();
    desk.decide(1, OWN_ONLY);
    let poller = desk.preferring(&[7]);
    desk.wait_for(1);
    desk.wait_for(7);
    assert!(desk.pop(poller, 1).is_empty());
    assert!(desk.dispatcher.terms(poller).own_only);
    let own = desk.wait_for(101);
    assert_eq!(desk.pop(poller, 1)[0].job.id, own);
    desk.decide(1, Terms::default());
    assert_eq!(desk.pop(poller, 1).len(), 1);
    assert_eq!(desk.pop(poller, 1).len(), 1);
}

#[test]
fn a_worker_whose_owner_takes_no_jobs_of_others_is_given_the_owners_only() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, OURS);
    registration.own_only = true;
    desk.wait_for(1);
    desk.take();
    desk.connect(registration);
    assert!(desk.offers().is_empty());
    let own = desk.wait_for(101);
    assert_eq!(desk.offer().job.id, own);
    desk.decide(1, FAST);
    desk.wait_for(1);
    assert!(desk.offers().is_empty(), "other terms change nothing");
}

#[test]
fn a_request_waits_for_the_worker_that_is_there_for_its_owner_alone() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, OURS);
    registration.own_only = true;
    registration.slots = 1;
    registration.models[0].slots = 1;
    desk.connect(registration);
    let mut direct = |account| {
        let mut job = desk.new_job();
        job.account = AccountId(account);
        assert_eq!(desk.dispatcher.feasible(&job).is_ok(), account == 101);
        let id = desk.submit(job);
        let effects = desk.take();
        let is_refused = |effect: &Effect| matches!(effect, Effect::Refused { .. });
        assert_eq!(effects.iter().any(is_refused), account != 101);
        let offer = effects.into_iter().find_map(|effect| match effect {
            Effect::Offer(offer) => Some(offer),
            _ => None,
        });
        (id, offer)
    };
    assert!(direct(1).1.is_none());
    let first = direct(101).1.unwrap();
    let (waiting, offer) = direct(101);
    assert!(offer.is_none(), "the worker is busy");
    let patience = desk.dispatcher.settings.unserved_patience;
    for id in 0..10 {
        desk.say(&first, token(id)).wait(patience / 8);
    }
    assert!(desk.ends().is_empty());
    desk.say(&first, done());
    assert_eq!(desk.offer().job.id, waiting);
}

#[test]
fn maintenance_begins_with_the_next_job_and_what_runs_goes_on() {
    let mut desk = Desk::new();
    let session = desk.ours(1);
    let running = desk.wait_for(1);
    let offer = desk.offer();
    assert_eq!(offer.job.id, running);
    desk.decide(1, OWN_ONLY);
    desk.wait_for(1);
    assert!(desk.offers().is_empty());
    desk.say(&offer, token(1)).say(&offer, done());
    assert!(
        desk.take()
            .iter()
            .any(|it| matches!(it, Effect::End { .. }))
    );
    let own = desk.wait_for(101);
    assert_eq!(desk.offer().job.id, own);
    desk.decide(1, Terms::default());
    assert_eq!(desk.offers().len(), 1);
    assert!(!desk.dispatcher.terms(session).own_only);
}

#[test]
fn a_worker_in_maintenance_is_nobodys_hope() {
    let mut desk = Desk::new();
    desk.ours(1);
    desk.decide(1, OWN_ONLY);
    let job = desk.new_job();
    desk.submit(job);
    let refused = |effect: &Effect| matches!(effect, Effect::Refused { .. });
    assert!(desk.take().iter().any(refused));
}

#[test]
fn an_owners_job_that_returns_finds_the_worker_that_is_there_for_it_only() {
    let mut desk = Desk::new();
    let other = desk.preferring(&[]);
    let own = desk.wait_for(102);
    desk.pop(other, 1);
    desk.decide(2, OWN_ONLY);
    desk.ours(2);
    desk.take();
    desk.lose(other);
    assert_eq!(desk.offer().job.id, own);
}

#[test]
fn a_worker_in_maintenance_that_leaves_leaves_nothing_behind() {
    let mut desk = Desk::new();
    desk.decide(1, OWN_ONLY);
    let poller = desk.preferring(&[]);
    let own = desk.wait_for(101);
    let offer = desk.pop(poller, 1).remove(0);
    assert_eq!(offer.job.id, own);
    desk.say(&offer, token(1)).say(&offer, done());
    desk.lose(poller);
    desk.assert_nothing_left();
    assert_eq!(desk.dispatcher.census().workers, 0);
    assert!(desk.dispatcher.own_only.is_empty());
}

#[test]
fn a_job_for_some_workers_goes_to_them_and_one_that_denies_some_to_others() {
    let mut desk = Desk::new();
    let (one, two) = (desk.preferring(&[]), {
        let registration = desk.poller_registration(2, POLLING);
        desk.connect(registration)
    });
    let mut job = desk.stored_job();
    job.limits.targets = Targets::of([WorkerId(2)], false);
    let only = desk.submit(job);
    assert!(desk.pop(one, 1).is_empty());
    let skipped = desk.dispatcher.skipped(one, &Wants::most(1));
    assert_eq!(
        skipped.into_iter().collect::<Vec<_>>(),
        [(Skip::Workers, 1)]
    );
    assert_eq!(desk.pop(two, 1)[0].job.id, only);
    let mut job = desk.stored_job();
    job.limits.targets = Targets::of([WorkerId(2)], true);
    let but = desk.submit(job);
    assert!(desk.pop(two, 1).is_empty());
    assert_eq!(desk.pop(one, 1)[0].job.id, but);
}

#[test]
fn a_job_for_fast_workers_waits_until_one_is_known_to_be_fast() {
    let mut desk = Desk::new();
    let poller = desk.preferring(&[]);
    let mut job = desk.stored_job();
    job.limits.requires = Capabilities::FAST;
    let job = desk.submit(job);
    assert!(desk.pop(poller, 1).is_empty());
    let skipped = desk.dispatcher.skipped(poller, &Wants::most(1));
    assert_eq!(skipped.into_iter().collect::<Vec<_>>(), [(Skip::Speed, 1)]);
    desk.decide(1, FAST);
    assert_eq!(desk.pop(poller, 1)[0].job.id, job);
}
