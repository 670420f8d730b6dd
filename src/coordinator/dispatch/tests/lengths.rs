//! Texts that are longer than their jobs can need.

use super::{Desk, done, is_delivered};
use crate::coordinator::dispatch::{Effect, Said};
use crate::protocol::job::{Event, TokenEvent, WorkerId};
use crate::protocol::legacy::written::most_bytes;

fn long(bytes: usize) -> Said {
    Said::Event(Event::Token(TokenEvent {
        text: "x".repeat(bytes),
        ids: vec![1],
        ..TokenEvent::default()
    }))
}

fn is_relayed(effect: &Effect) -> bool {
    matches!(effect, Effect::Relay { .. })
}

fn is_cancel(effect: &Effect) -> bool {
    matches!(effect, Effect::CancelOnWorker { .. })
}

#[test]
fn a_stored_text_that_is_too_long_is_its_workers_failure_and_another_writes_it() {
    let mut desk = Desk::new();
    desk.ours(1);
    let job = desk.stored_job();
    let most = most_bytes(&job);
    desk.submit(job);
    let offer = desk.offer();
    desk.ours(2);
    desk.take();
    desk.say(&offer, long(most + 1));
    let effects = desk.take();
    assert!(!effects.iter().any(is_relayed) && effects.iter().any(is_cancel));
    let again = effects.into_iter().find_map(|effect| match effect {
        Effect::Offer(again) => Some(again),
        _ => None,
    });
    let again = again.unwrap();
    assert_ne!(again.session, offer.session);
    desk.say(&again, long(most)).say(&again, done());
    let settled = desk.take().into_iter().find_map(|effect| match effect {
        Effect::Settle(facts) => Some(facts),
        _ => None,
    });
    let facts = settled.unwrap();
    assert!(is_delivered(&facts.outcome));
    assert_eq!(facts.dropped, [WorkerId(1)]);
}

#[test]
fn its_pieces_count_together_and_of_what_is_not_stored_nobody_counts_them() {
    for durable in [true, false] {
        let mut desk = Desk::new();
        desk.ours(1);
        let mut job = desk.stored_job();
        job.durable = durable;
        let most = most_bytes(&job);
        desk.submit(job);
        let offer = desk.offer();
        desk.say(&offer, long(most));
        assert!(desk.take().iter().any(is_relayed));
        desk.say(&offer, long(1));
        let effects = desk.take();
        assert_eq!(effects.iter().any(is_cancel), durable);
        assert_eq!(effects.iter().any(is_relayed), !durable);
    }
}

#[test]
fn a_worker_that_would_swallow_the_next_job_gets_it_when_it_has_stopped_writing() {
    let mut desk = Desk::new();
    desk.public(1);
    let mut job = desk.new_job();
    job.durable = true;
    let most = most_bytes(&job);
    desk.submit(job);
    let offer = desk.offer();
    desk.say(&offer, long(most + 1));
    assert!(desk.offers().is_empty());
    desk.say(&offer, done());
    assert_eq!(desk.offer().attempt, 2);
}
