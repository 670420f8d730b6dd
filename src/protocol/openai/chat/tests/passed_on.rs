//! Requests passed on by another coordinator, and their form for public workers.

use serde_json::json;

use super::{chat, with};
use crate::openai::Strictness;
use crate::openai::chat::ChatRequest;
use crate::openai::chat::for_strangers;

#[test]
fn a_coordinator_may_pass_on_what_we_do_not_know() {
    let body = with(json!({
        "guided_json": {}, "store": true, "service_tier": "flex", "max_tokens": 32768,
        "max_completion_tokens": 10, "stream_options": {"include_usage": true, "new": 1},
        "messages": [{"role": "user", "content": "hi", "weight": 1}],
    }));
    let request = ChatRequest::read(body, Strictness::Tolerate).unwrap();
    assert_eq!(request.text.max_tokens, Some(10));
}

#[test]
fn what_a_coordinator_passes_on_inside_messages_and_tools_is_left_aside() {
    let part = json!({"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}});
    let call = json!({"id": "c", "type": "function", "new": 1,
        "function": {"name": "look", "arguments": "{}", "output": null}});
    let body = with(json!({
        "messages": [
            {"role": "user", "content": [part]},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "found"},
        ],
        "tools": [{"type": "function", "cache_control": {},
            "function": {"name": "look", "parameters": {"type": "object"}, "returns": {}}}],
    }));
    let request = ChatRequest::read(body.clone(), Strictness::Tolerate).unwrap();
    let chat = chat(&request);
    assert_eq!(chat["messages"][0]["content"], "hi");
    assert_eq!(
        chat["tools"][0]["function"]["parameters"],
        json!({"type": "object"})
    );
    let refused = ChatRequest::read(body, Strictness::Refuse).unwrap_err();
    assert!(refused.to_string().contains("cache_control"), "{refused}");
    for odd in [
        json!({"messages": 7}),
        json!({"messages": [7], "tools": {"a": 1}}),
        json!([]),
    ] {
        assert!(ChatRequest::read(odd, Strictness::Tolerate).is_err());
    }
}

#[test]
fn strangers_do_not_learn_who_asks() {
    let body = with(json!({"user": "ann", "safety_identifier": "a", "metadata": {}, "top_k": 1}));
    assert_eq!(for_strangers(body), with(json!({"top_k": 1})));
}
