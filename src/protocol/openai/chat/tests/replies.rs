//! Events as one reply.

use serde_json::{Value, json};

use super::{ending, grid, head, piece, read, said, with};
use crate::job::{Channel, Event, FinishReason};
use crate::openai::chat::{Reply, ReplyBuilder};

fn replied(fields: Value, events: Vec<Event>, finish: FinishReason) -> Value {
    let request = read(with(fields));
    let mut reply = Box::new(Reply::new(&request, &head()));
    for event in events {
        reply.event(0, event);
    }
    reply.end(0, ending(finish));
    reply.render(&grid())
}

#[test]
fn a_reply_is_written_as_openai_writes_it() {
    let events = vec![
        Event::Started {
            prompt_tokens: 11,
            cached_tokens: 4,
        },
        said(Channel::Reasoning, "hm"),
        said(Channel::Content, "Hel"),
        said(Channel::Content, "lo"),
    ];
    let fields = json!({"logprobs": true, "top_logprobs": 1, "service_tier": "auto", "metadata": {"a": "b"}});
    insta::assert_json_snapshot!(replied(fields, events, FinishReason::Length));
}

#[test]
fn a_reply_joins_the_pieces_of_its_calls() {
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let events = vec![
        piece(0, Some("look"), "{\"at\":"),
        piece(1, Some("look"), "{}"),
        piece(0, None, "1}"),
    ];
    let reply = replied(json!({"tools": tools}), events, FinishReason::Stop);
    insta::assert_json_snapshot!(reply["choices"]);
}
