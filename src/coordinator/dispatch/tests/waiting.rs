//! The order of the queue from outside; its function has unit tests.

use super::{Desk, done, failure_kind, secs, token};
use crate::dispatch::Offering;
use muster_protocol::job::{AccountId, FailureKind, JobId};

#[test]
fn a_long_queue_of_one_account_does_not_hold_up_another() {
    let mut desk = Desk::new();
    let mut registration = desk.registration(1, super::OURS);
    registration.slots = 1;
    desk.connect(registration);
    for _ in 0..50 {
        desk.submit_one();
    }
    desk.wait(secs(10));
    let mut late = desk.new_job();
    late.account = AccountId(2);
    let late = desk.submit(late);
    let mut offer = desk.offer();
    for _ in 0..2 {
        desk.wait(secs(1));
        desk.say(&offer, token(1)).say(&offer, done());
        offer = desk.offer();
        if offer.job.id == late {
            return;
        }
    }
    panic!("the other account was not served within two turns");
}

#[test]
fn jobs_wait_a_while_for_a_worker_that_has_gone() {
    let mut desk = Desk::new();
    let session = desk.public(1);
    let running = desk.submit_one();
    let waiting = desk.submit_one();
    desk.take();
    desk.lose(session).wait(secs(29));
    assert!(desk.ends().is_empty());
    desk.wait(secs(2));
    let ends = desk.ends();
    let offline = |id: JobId| {
        let found = ends.iter().find(|(job, _)| *job == id);
        failure_kind(&found.unwrap().1) == Some(FailureKind::NoWorker)
    };
    assert!(offline(running) && offline(waiting));
    desk.assert_nothing_left();
}

#[test]
fn a_worker_that_comes_in_time_gets_what_waited() {
    let mut desk = Desk::new();
    let session = desk.public(1);
    let job = desk.submit_one();
    desk.take();
    desk.lose(session).wait(secs(29));
    desk.public(2);
    assert_eq!(desk.offer().job.id, job);
}

#[test]
fn a_stored_job_waits_for_its_whole_life() {
    let mut desk = Desk::new();
    let session = desk.public(1);
    let mut job = desk.new_job();
    job.durable = true;
    desk.submit(job);
    desk.take();
    desk.lose(session).wait(secs(500));
    assert!(desk.ends().is_empty());
    desk.wait(secs(101));
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::Expired));
}

#[test]
fn a_job_whose_worker_does_not_come_back_goes_to_whoever_else_can_do_it() {
    let mut desk = Desk::new();
    let mut long = desk.registration(1, super::OURS);
    long.models[0].offering = Offering::text(32_768);
    let long = desk.connect(long);
    let mut job = desk.new_job();
    job.limits.prompt_tokens = 5000;
    let job = desk.submit(job);
    desk.take();
    let other = desk.ours(2);
    desk.lose(long).wait(secs(6));
    let offer = desk.offer();
    assert_eq!((offer.job.id, offer.session), (job, other));
}
