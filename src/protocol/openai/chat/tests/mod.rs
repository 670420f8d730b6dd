//! Bodies as clients send them, and their results.
//!
//! | file | subject |
//! | --- | --- |
//! | `asked` | accepted requests, and their jobs |
//! | `refused` | refused requests, by the name of the faulty field |
//! | `passed_on` | requests passed on by another coordinator, and their form for public workers |
//! | `streams` | events as chunks of a stream |
//! | `replies` | events as one reply |

mod asked;
mod passed_on;
mod refused;
mod replies;
mod streams;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::job::{
    Channel, Event, FinishReason, RequestId, TextInput, TokenEvent, TokenLogprob, ToolCallEvent,
    Usage,
};
use crate::openai::chat::{ChatRequest, Ending, Grid, Head};
use crate::openai::{Problem, Strictness};

fn with(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn read(body: Value) -> ChatRequest {
    ChatRequest::read(body, Strictness::Refuse).unwrap()
}

fn refused(fields: Value) -> Problem {
    ChatRequest::read(with(fields), Strictness::Refuse).unwrap_err()
}

/// The field that is named, and the message.
fn check(fields: Value, param: &str, message: &str) {
    let problem = refused(fields);
    assert_eq!(problem.to_string(), message);
    assert_eq!(problem.param.as_deref(), Some(param));
    assert_eq!(problem.failure.status(), 400);
}

fn chat(request: &ChatRequest) -> Value {
    match &request.text.input {
        TextInput::Chat(chat) => serde_json::to_value(chat).unwrap(),
        other => panic!("not a chat: {other:?}"),
    }
}

fn head() -> Head {
    let id = RequestId(Uuid::from_u128(7));
    Head::new("chatcmpl-", id, 1_767_225_600, "tiny".into())
}

fn grid() -> Grid {
    Grid {
        worker: Some("rig-7".into()),
        gen_time: 0.12,
        ttft: Some(0.08),
        tokens_per_s: Some(66.8),
        seed: 41,
        routing: None,
        translated: None,
        upstream: None,
    }
}

fn said(channel: Channel, text: &str) -> Event {
    Event::Token(TokenEvent {
        channel,
        text: text.to_owned(),
        logprobs: vec![TokenLogprob {
            bytes: text.into(),
            logprob: -0.5,
            top: vec![("no".into(), f32::NEG_INFINITY)],
        }],
        ..TokenEvent::default()
    })
}

fn piece(index: u32, name: Option<&str>, arguments: &str) -> Event {
    Event::ToolCall(ToolCallEvent {
        index,
        name: name.map(str::to_owned),
        arguments: arguments.to_owned(),
        ..ToolCallEvent::default()
    })
}

fn ending(finish: FinishReason) -> Ending {
    let usage = Usage {
        prompt_tokens: 11,
        cached_tokens: 4,
        completion_tokens: 6,
        reasoning_tokens: 1,
    };
    Ending { finish, usage }
}
