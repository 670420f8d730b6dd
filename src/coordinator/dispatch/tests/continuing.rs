//! Outputs without token ids, which continue from their text.

use std::sync::Arc;

use super::failures::words;
use super::{Desk, OURS, done, failure_kind, is_delivered, secs};
use crate::dispatch::{Effect, Prefill, Said, SessionId};
use muster_protocol::job::{Channel, Event, FailureKind, ModelDetails, TokenEvent};

fn text_alone(text: &str, written: u32) -> Option<Box<Prefill>> {
    Some(Box::new(Prefill {
        tokens: Vec::new(),
        text: text.to_owned(),
        written: Some(written),
    }))
}

impl Desk {
    /// A worker whose model is served by an upstream program.
    fn upstream(&mut self, worker: i64) -> SessionId {
        let mut registration = self.registration(worker, OURS);
        registration.models[0].offering.details = Arc::new(ModelDetails {
            upstream: Some("vllm".to_owned()),
            ..ModelDetails::default()
        });
        self.connect(registration)
    }
}

#[test]
fn a_text_of_an_upstream_continues_from_its_text() {
    let mut desk = Desk::new();
    let first = desk.upstream(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, words("we ", Vec::new()))
        .say(&offer, words("say ", Vec::new()));
    desk.ours(2);
    desk.lose(first).wait(secs(6));
    let second = desk.offer();
    assert_eq!(second.prefill, text_alone("we say ", 2));
    // Token ids of the rest alone are not enough to continue.
    desk.say(&second, words("the ", vec![5, 6]));
    desk.upstream(3);
    desk.lose(second.session).wait(secs(6));
    let third = desk.offer();
    assert_eq!(third.prefill, text_alone("we say the ", 4));
    desk.say(&third, words("rest", Vec::new()))
        .say(&third, done());
    assert!(is_delivered(&desk.end()));
}

#[test]
fn an_upstream_continues_from_the_text_of_an_engine() {
    let mut desk = Desk::new();
    let first = desk.ours(1);
    desk.submit_one();
    let offer = desk.offer();
    desk.say(&offer, words("we ", vec![7, 8]));
    desk.upstream(2);
    desk.lose(first).wait(secs(6));
    let second = desk.offer();
    let tokens = second
        .prefill
        .as_ref()
        .map(|prefill| prefill.tokens.clone());
    assert_eq!(tokens, Some(vec![7, 8]));
    desk.say(&second, words("say ", Vec::new()));
    desk.ours(3);
    desk.lose(second.session).wait(secs(6));
    assert_eq!(desk.offer().prefill, text_alone("we say ", 3));
}

#[test]
fn thoughts_of_an_upstream_end_with_a_typed_error() {
    let mut desk = Desk::new();
    let first = desk.upstream(1);
    desk.upstream(2);
    desk.submit_one();
    let offer = desk.offer();
    let thought = TokenEvent {
        channel: Channel::Reasoning,
        text: "hm".to_owned(),
        ..TokenEvent::default()
    };
    desk.say(&offer, Said::Event(Event::Token(thought)))
        .say(&offer, words("we say ", Vec::new()));
    desk.lose(offer.session).wait(secs(6));
    assert_eq!(failure_kind(&desk.end()), Some(FailureKind::WorkerLost));
    desk.lose(first);
}

#[test]
fn a_text_that_no_worker_continues_starts_over_where_its_client_has_none_of_it() {
    for is_restartable in [true, false] {
        let mut desk = Desk::new();
        let first = desk.upstream(1);
        let mut job = desk.new_job();
        job.limits.restartable = is_restartable;
        desk.submit(job);
        let offer = desk.offer();
        desk.say(&offer, words("we ", vec![7]));
        desk.upstream(2);
        desk.lose(first).wait(secs(6));
        let second = desk.offer();
        match is_restartable {
            true => assert!(
                second.prefill.is_none(),
                "without tokens it starts over at once"
            ),
            false => {
                assert_eq!(second.prefill, text_alone("we ", 1));
                let mut given = vec![second];
                let mut outcome = None;
                while let Some(offer) = given.pop() {
                    let refused = Said::Busy {
                        retry_after: secs(1),
                    };
                    desk.say(&offer, refused).wait(secs(2));
                    for effect in desk.take() {
                        match effect {
                            Effect::Offer(offer) => given.push(offer),
                            Effect::End { outcome: end, .. } => outcome = Some(end),
                            _ => {}
                        }
                    }
                }
                assert_eq!(
                    failure_kind(&outcome.unwrap()),
                    Some(FailureKind::WorkerLost)
                );
            }
        }
    }
}
