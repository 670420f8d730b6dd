//! Bodies as clients send them, and what becomes of them.

use bytes::BytesMut;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{CallStyle, ChatRequest, ChunkWriter, Ending, Grid, Head, Reply};
use crate::protocol::job::{
    Capabilities, Channel, Event, Failure, FailureKind, FinishReason, RequestId, TextInput,
    TokenEvent, TokenLogprob, ToolCallEvent, Usage,
};
use crate::protocol::openai::{Problem, Strictness};

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

#[test]
fn a_plain_request_leaves_everything_to_the_model() {
    let request = read(with(json!({})));
    assert_eq!(&*request.model, "tiny");
    assert_eq!(request.choices, 1);
    assert_eq!(request.stream, None);
    assert_eq!(request.requires(), Capabilities::default());
    insta::assert_json_snapshot!(request.text);
}

#[test]
fn every_field_reaches_the_job() {
    let request = read(with(json!({
        "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": false},
        "n": 3, "max_completion_tokens": 64, "stop": ["\n\n", "END"], "temperature": 0.5,
        "top_p": 0.9, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1, "presence_penalty": -0.5,
        "frequency_penalty": 0.25, "logit_bias": {"42": -100, "7": 1.5}, "seed": -1, "logprobs": true,
        "top_logprobs": 5, "reasoning_effort": "none", "chat_template_kwargs": {"style": "brief"},
        "prompt_cache_key": "abc", "metadata": {"run": "1"}, "service_tier": "auto",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
        "tool_choice": "auto", "parallel_tool_calls": false,
    })));
    assert_eq!(request.choices, 3);
    assert_eq!(request.stream.unwrap().usage, Some(true));
    assert_eq!(
        request.requires(),
        Capabilities::TOOLS.with(Capabilities::LOGPROBS)
    );
    assert_eq!(request.choice(2).choice, 2);
    insta::assert_json_snapshot!(request.text);
}

#[test]
fn values_that_change_nothing_pass() {
    let request = read(with(json!({
        "store": false, "service_tier": "default", "tools": [], "tool_choice": "auto",
        "parallel_tool_calls": true, "modalities": ["text"], "response_format": {"type": "text"},
        "user": "me", "safety_identifier": "x", "verbosity": "medium", "stop": [], "logit_bias": {},
        "prompt_cache_retention": "in_memory", "prompt_cache_options": {"mode": "implicit"},
        "audio": null, "prediction": null, "moderation": null, "web_search_options": null, "n": 1,
        "functions": [], "logprobs": false, "top_logprobs": null, "seed": null, "stream": false,
    })));
    assert_eq!(request.requires(), Capabilities::default());
    assert_eq!(request.text.format, None);
    assert_eq!(request.text.tool_choice, None);
}

#[test]
fn unknown_names_are_refused_with_the_nearest_known_one() {
    check(
        json!({"temprature": 1}),
        "temprature",
        "temprature is not known here; did you mean temperature?",
    );
    check(json!({"zzz": 1}), "zzz", "zzz is not known here");
    check(
        json!({"messages": [{"role": "user", "contents": "hi"}]}),
        "messages[0].contents",
        "messages[0].contents is not known here; did you mean messages[0].content?",
    );
    check(
        json!({"stream": true, "stream_options": {"include_usag": true}}),
        "stream_options.include_usag",
        "stream_options.include_usag is not known here; did you mean stream_options.include_usage?",
    );
}

#[test]
fn wrong_types_and_absurd_numbers_are_refused_by_name() {
    check(
        json!({"temperature": "hot"}),
        "temperature",
        "temperature must be a number from 0 to 2, found a string",
    );
    check(
        json!({"n": 1e300}),
        "n",
        "n must be an integer from 1 to 16, found 1e+300",
    );
    check(
        json!({"n": 0}),
        "n",
        "n must be an integer from 1 to 16, found 0",
    );
    check(
        json!({"stop": ["a", "b", "c", "d", "e"]}),
        "stop",
        "stop may hold 4 strings, found 5",
    );
    check(
        json!({"logit_bias": {"x": 1}}),
        "logit_bias",
        "logit_bias must map token ids to numbers from -100 to 100",
    );
    check(
        json!({"top_logprobs": 3}),
        "top_logprobs",
        "top_logprobs needs logprobs: true",
    );
    check(
        json!({"max_tokens": 5, "max_completion_tokens": 6}),
        "max_tokens",
        "max_tokens is 5 and max_completion_tokens is 6: give one of them",
    );
    check(
        json!({"stream_options": {"include_usage": true}}),
        "stream_options",
        "stream_options is only for requests with stream: true",
    );
    check(
        json!({"messages": []}),
        "messages",
        "messages is empty: give at least one",
    );
    check(
        json!({"model": ""}),
        "model",
        "model is missing: name one of /v1/models",
    );
    check(
        json!({"messages": [{"role": "boss", "content": "hi"}]}),
        "messages[0].role",
        "messages[0].role must be one of system, developer, user, assistant, tool, function, found \"boss\"",
    );
    check(
        json!({"messages": [{"role": "user"}]}),
        "messages[0].content",
        "messages[0].content is missing",
    );
}

#[test]
fn entries_nobody_reads_are_refused_wherever_they_stand() {
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let chosen = |choice: Value| json!({"tools": tools, "tool_choice": choice});
    let called = |call: Value| json!({"messages": [{"role": "assistant", "tool_calls": [call]}]});
    let cases = [
        (
            "tool_choice.strict",
            chosen(json!({"type": "function", "function": {"name": "look"}, "strict": true})),
        ),
        (
            "tool_choice.function.strict",
            chosen(json!({"type": "function", "function": {"name": "look", "strict": true}})),
        ),
        (
            "tool_choice.allowed_tools.max",
            chosen(
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "max": 1, "tools": tools}}),
            ),
        ),
        (
            "tool_choice.allowed_tools.tools[0].type",
            chosen(
                json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "mcp"}]}}),
            ),
        ),
        (
            "function_call.arguments",
            json!({"functions": [{"name": "look"}], "function_call": {"name": "look", "arguments": "{}"}}),
        ),
        (
            "messages[0].tool_calls[0].type",
            called(
                json!({"id": "1", "type": "magic", "function": {"name": "look", "arguments": "{}"}}),
            ),
        ),
        (
            "messages[0].tool_calls[0].function.result",
            called(json!({"id": "1", "type": "function",
                          "function": {"name": "look", "arguments": "{}", "result": 1}})),
        ),
    ];
    for (param, fields) in cases {
        let problem = refused(fields);
        assert_eq!(problem.param.as_deref(), Some(param));
    }
}

#[test]
fn arguments_of_calls_do_not_unpack_without_end() {
    let arguments = format!("{{\"a\":[{}0]}}", "0,".repeat(300_000));
    let call =
        json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let once = json!({"messages": [{"role": "assistant", "tool_calls": [call]}]});
    read(with(once));
    let twice = json!({"messages": [{"role": "assistant", "tool_calls": [call, call]}]});
    check(
        twice,
        "messages[0].tool_calls[1].function.arguments",
        "messages[0].tool_calls[1].function.arguments: the calls so far hold more than 500000 values",
    );
}

#[test]
fn a_model_has_a_name_that_can_be_repeated() {
    check(
        json!({"model": "m".repeat(300)}),
        "model",
        "model may have 256 characters, found 300",
    );
}

#[test]
fn what_nobody_can_do_is_refused_by_name() {
    let cases = [
        ("store", json!(true)),
        ("service_tier", json!("priority")),
        ("modalities", json!(["text", "audio"])),
        ("audio", json!({"voice": "alloy", "format": "wav"})),
        ("prediction", json!({"type": "content", "content": "x"})),
        ("moderation", json!({"model": "omni"})),
        ("web_search_options", json!({})),
        ("verbosity", json!("low")),
        ("prompt_cache_retention", json!("24h")),
        ("prompt_cache_options", json!({"ttl": "30m"})),
    ];
    for (name, value) in cases {
        let problem = refused(json!({ name: value }));
        assert_eq!(
            problem.failure.kind,
            FailureKind::UnsupportedValue,
            "{name}"
        );
        assert_eq!(problem.param.as_deref(), Some(name));
    }
    let parts = [("input_audio", json!({})), ("file", json!({}))];
    for (word, value) in parts {
        let content = json!([{"type": word, word: value}]);
        let problem = refused(json!({"messages": [{"role": "user", "content": content}]}));
        assert_eq!(problem.param.as_deref(), Some("messages[0].content[0]"));
        assert_eq!(problem.failure.kind, FailureKind::UnsupportedValue);
    }
}

#[test]
fn what_some_workers_can_do_becomes_a_demand_that_names_its_field() {
    let look = json!([{"type": "function", "function": {"name": "look"}}]);
    let picture = json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]);
    let cases = [
        (
            json!({"tools": look, "tool_choice": "required"}),
            Capabilities::GRAMMAR,
            "tool_choice",
        ),
        (
            json!({"tools": look, "tool_choice": {"type": "function", "function": {"name": "look"}}}),
            Capabilities::GRAMMAR,
            "tool_choice",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
            Capabilities::GRAMMAR,
            "response_format",
        ),
        (
            json!({"response_format": {"type": "json_object"}}),
            Capabilities::GRAMMAR,
            "response_format",
        ),
        (
            json!({"messages": [{"role": "user", "content": picture}]}),
            Capabilities::IMAGE_INPUT,
            "messages[0].content[0]",
        ),
        (
            json!({"logprobs": true}),
            Capabilities::LOGPROBS,
            "logprobs",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f", "strict": true}}]}),
            Capabilities::GRAMMAR,
            "tools[0].function.strict",
        ),
    ];
    for (fields, capability, param) in cases {
        let request = read(with(fields));
        assert!(request.requires().contains(capability), "{param}");
        assert_eq!(request.param_of(capability), Some(param));
    }
}

#[test]
fn messages_become_what_a_chat_template_takes() {
    let request = read(json!({"model": "tiny", "messages": [
        {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
        {"role": "user", "content": "weather?", "name": "ann"},
        {"role": "assistant", "content": null, "refusal": null, "audio": null, "annotations": [],
         "tool_calls": [{"id": "c1", "type": "function", "index": 0,
                         "function": {"name": "look", "arguments": "{\"at\":\"sea\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "assistant", "function_call": {"name": "old", "arguments": "not json"}},
        {"role": "function", "name": "old", "content": null},
        {"role": "assistant", "content": null, "refusal": "I would rather not."},
    ]}));
    insta::assert_json_snapshot!(chat(&request));
}

#[test]
fn a_tool_that_must_not_be_called_is_not_shown() {
    let tools = json!([
        {"type": "function", "function": {"name": "look"}},
        {"type": "function", "function": {"name": "listen"}},
    ]);
    let request = read(with(json!({"tools": tools, "tool_choice": "none"})));
    assert_eq!(chat(&request)["tools"], Value::Null);
    assert_eq!(request.requires(), Capabilities::default());

    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto",
        "tools": [{"type": "function", "function": {"name": "listen"}}]}});
    let request = read(with(json!({"tools": tools, "tool_choice": allowed})));
    assert_eq!(chat(&request)["tools"], json!([tools[1]]));
    assert_eq!(request.requires(), Capabilities::TOOLS);
}

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
    assert_eq!(super::for_strangers(body), with(json!({"top_k": 1})));
}

fn head() -> Head {
    let id = RequestId(Uuid::from_u128(7));
    Head::new(id, 1_767_225_600, "tiny".into())
}

fn grid() -> Grid {
    Grid {
        worker: Some("rig-7".into()),
        gen_time: 0.12,
        ttft: Some(0.08),
        tokens_per_s: Some(66.8),
        seed: 41,
        routing: None,
    }
}

fn said(channel: Channel, text: &str) -> Event {
    Event::Token(TokenEvent {
        channel,
        text: text.to_owned(),
        logprobs: vec![TokenLogprob {
            text: text.to_owned(),
            logprob: -0.5,
            top: vec![("no".to_owned(), f32::NEG_INFINITY)],
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

/// What a client reads of a stream with these events.
fn streamed(fields: Value, events: &[Event]) -> String {
    let request = read(with(fields));
    let mut writer = ChunkWriter::new(&request, &head());
    let mut out = BytesMut::new();
    for choice in 0..request.choices {
        writer.open(choice, &mut out);
    }
    for event in events {
        for choice in 0..request.choices {
            writer.event(choice, event, &mut out);
        }
    }
    for choice in 0..request.choices {
        writer.end(choice, ending(FinishReason::Stop), &grid(), &mut out);
    }
    String::from_utf8(out.to_vec()).unwrap()
}

fn chunks(stream: &str) -> Vec<Value> {
    let events = stream.split_terminator("\n\n");
    let data = events.map(|event| event.strip_prefix("data: ").unwrap());
    data.filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[test]
fn a_stream_is_written_as_openai_writes_it() {
    let events = [
        said(Channel::Reasoning, "hm"),
        said(Channel::Content, "\"Hé\"\n"),
        said(Channel::Content, ""),
        said(Channel::Content, "llo"),
    ];
    insta::assert_snapshot!(streamed(json!({"stream": true}), &events));
}

#[test]
fn usage_comes_in_a_chunk_of_its_own_for_those_who_ask() {
    let fields = json!({"stream": true, "stream_options": {"include_usage": true}});
    let chunks = chunks(&streamed(fields, &[said(Channel::Content, "a")]));
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], 17);
    assert_eq!(last["grid"]["worker"], "rig-7");
    for chunk in others {
        assert_eq!(chunk.get("usage"), Some(&Value::Null));
    }
}

#[test]
fn those_who_decline_usage_get_none() {
    let fields = json!({"stream": true, "stream_options": {"include_usage": false}});
    let stream = streamed(fields, &[said(Channel::Content, "a")]);
    assert!(!stream.contains("usage"));
    assert!(stream.contains("\"grid\""));
}

#[test]
fn choices_are_told_apart_by_their_index_and_share_a_prompt() {
    let stream = streamed(
        json!({"stream": true, "n": 2}),
        &[said(Channel::Content, "a")],
    );
    let chunks = chunks(&stream);
    let indices: Vec<_> = chunks
        .iter()
        .map(|chunk| chunk["choices"][0]["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, [0, 1, 0, 1, 0, 1]);
    assert_eq!(chunks[5]["usage"]["prompt_tokens"], 11);
    assert_eq!(chunks[5]["usage"]["completion_tokens"], 12);
    assert_eq!(stream.matches("[DONE]").count(), 1);
}

#[test]
fn padded_chunks_are_json_of_even_lengths() {
    let fields = json!({"stream": true, "stream_options": {"include_obfuscation": true}});
    let stream = streamed(
        fields,
        &[
            said(Channel::Content, "a"),
            said(Channel::Content, "abcdef"),
        ],
    );
    let lengths: Vec<_> = stream
        .split_terminator("\n\n")
        .filter(|event| event.contains("obfuscation"))
        .map(str::len)
        .collect();
    assert_eq!(lengths.len(), 3);
    assert_eq!(lengths[1], lengths[2]);
    chunks(&stream);
}

#[test]
fn calls_are_streamed_in_pieces_joined_by_index() {
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let events = [
        piece(0, Some("look"), ""),
        piece(0, None, "{\"at\":"),
        piece(0, None, "1}"),
        piece(1, Some("look"), "{}"),
    ];
    insta::assert_snapshot!(streamed(json!({"stream": true, "tools": tools}), &events));
}

#[test]
fn old_functions_are_called_in_their_own_words() {
    let fields = json!({"stream": true, "functions": [{"name": "look"}]});
    let request = read(with(fields.clone()));
    assert_eq!(request.calls, CallStyle::Function);
    assert_eq!(request.text.parallel_tool_calls, Some(false));
    let chunks = chunks(&streamed(fields, &[piece(0, Some("look"), "{}")]));
    let call = json!({"name": "look", "arguments": "{}"});
    assert_eq!(chunks[1]["choices"][0]["delta"]["function_call"], call);
    assert_eq!(chunks[2]["choices"][0]["finish_reason"], "function_call");
}

#[test]
fn a_failed_stream_ends_with_an_error_and_done() {
    let request = read(with(json!({"stream": true})));
    let writer = ChunkWriter::new(&request, &head());
    let mut out = BytesMut::new();
    let lost = Failure::new(FailureKind::WorkerLost, "the worker is gone");
    writer.fail(&lost.into(), &mut out);
    insta::assert_snapshot!(std::str::from_utf8(&out).unwrap());
}

fn replied(fields: Value, events: Vec<Event>, finish: FinishReason) -> Value {
    let request = read(with(fields));
    let mut reply = Reply::new(&request, &head());
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
