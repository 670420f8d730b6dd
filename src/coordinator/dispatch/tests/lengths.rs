//! Texts that exceed their jobs' limits.

use super::{Desk, done, is_delivered};
use crate::dispatch::{Effect, Outcome, Said};
use muster_protocol::job::written::{most_bytes, most_relayed};
use muster_protocol::job::{
    Body, Event, FinishReason, TokenEvent, TokenLogprob, ToolCallEvent, Usage, WorkerId,
};

/// Minimum limit of any job.
const LEAST: usize = 64 << 10;

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
fn its_pieces_count_together_whether_or_not_it_is_stored() {
    for durable in [true, false] {
        let mut desk = Desk::new();
        desk.ours(1);
        let mut job = desk.stored_job();
        job.durable = durable;
        let most = match durable {
            true => most_bytes(&job),
            false => most_relayed(&job),
        };
        desk.submit(job);
        let offer = desk.offer();
        desk.say(&offer, long(most));
        assert!(desk.take().iter().any(is_relayed));
        desk.say(&offer, long(1));
        let effects = desk.take();
        assert!(effects.iter().any(is_cancel), "{durable}");
        assert!(!effects.iter().any(is_relayed), "{durable}");
    }
}

#[test]
fn calls_and_log_probabilities_are_output_too() {
    let call = |bytes: usize| {
        Said::Event(Event::ToolCall(ToolCallEvent {
            arguments: "x".repeat(bytes),
            ..ToolCallEvent::default()
        }))
    };
    let logprobs = |count: usize| {
        let one = TokenLogprob {
            bytes: b"xx".to_vec(),
            logprob: 0.0,
            top: Vec::new(),
        };
        Said::Event(Event::Token(TokenEvent {
            logprobs: vec![one; count],
            ..TokenEvent::default()
        }))
    };
    for said in [call(LEAST + 1), logprobs(LEAST / 10 + 1)] {
        let mut desk = Desk::new();
        desk.ours(1);
        let mut job = desk.stored_job();
        job.durable = false;
        assert_eq!(most_relayed(&job), LEAST);
        desk.submit(job);
        let offer = desk.offer();
        desk.say(&offer, said);
        assert!(desk.take().iter().any(is_cancel));
    }
}

#[test]
fn a_worker_is_believed_no_more_tokens_than_its_job_allows() {
    let mut desk = Desk::new();
    desk.public(1);
    let job = desk.new_job();
    let Body::Text(text) = &job.body else {
        panic!("expected a text");
    };
    let most = text.max_tokens.or(job.limits.output_tokens).unwrap();
    desk.submit(job);
    let offer = desk.offer();
    desk.say(&offer, long(4));
    let usage = Usage {
        prompt_tokens: 3,
        cached_tokens: 9,
        completion_tokens: most + 100,
        reasoning_tokens: most + 50,
    };
    let finish = FinishReason::Stop;
    desk.say(&offer, Said::Event(Event::Done { finish, usage }));
    let settled = desk.take().into_iter().find_map(|effect| match effect {
        Effect::Settle(facts) => Some(facts),
        _ => None,
    });
    let Outcome::Delivered { usage, .. } = settled.unwrap().outcome else {
        panic!("it was delivered");
    };
    assert_eq!(
        (usage.completion_tokens, usage.reasoning_tokens),
        (most, most)
    );
    assert_eq!(usage.cached_tokens, 3);
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
