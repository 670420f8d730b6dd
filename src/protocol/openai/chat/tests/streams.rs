//! Events as chunks of a stream.

use bytes::BytesMut;
use serde_json::{Value, json};

use super::{ending, grid, head, piece, read, said, with};
use crate::job::{Channel, Event, Failure, FailureKind, FinishReason, TokenEvent};
use crate::openai::Strictness;
use crate::openai::chat::{CallStyle, ChatRequest, ChunkWriter, StreamWriter};

/// The stream of these events, as a client reads it.
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
    let mut writer = ChunkWriter::new(&request, &head());
    let mut out = BytesMut::new();
    let lost = Failure::new(FailureKind::WorkerLost, "the worker is gone");
    writer.fail(&lost.into(), &mut out);
    insta::assert_snapshot!(std::str::from_utf8(&out).unwrap());
}

fn drawn(text: &str, ids: &[u32]) -> Event {
    Event::Token(TokenEvent {
        text: text.to_owned(),
        ids: ids.to_vec(),
        ..TokenEvent::default()
    })
}

#[test]
fn every_chunk_says_what_was_used_so_far_for_those_who_ask() {
    let options = json!({"include_usage": true, "continuous_usage_stats": true});
    let request = read(with(json!({"stream": true, "stream_options": options})));
    let mut writer = ChunkWriter::new(&request, &head());
    let mut out = BytesMut::new();
    let started = Event::Started {
        prompt_tokens: 11,
        cached_tokens: 4,
    };
    writer.event(0, &started, &mut out);
    writer.open(0, &mut out);
    writer.event(0, &drawn("a", &[1]), &mut out);
    writer.event(0, &drawn("bc", &[2, 3]), &mut out);
    writer.end(0, ending(FinishReason::Stop), &grid(), &mut out);
    let chunks = chunks(std::str::from_utf8(&out).unwrap());
    let counts = chunks.iter().map(|chunk| {
        let usage = &chunk["usage"];
        let prompt = usage["prompt_tokens"].as_u64().unwrap();
        (prompt, usage["completion_tokens"].as_u64().unwrap())
    });
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts, [(11, 0), (11, 1), (11, 3), (11, 6), (11, 6)]);
    assert_eq!(chunks[4]["choices"], json!([]));
    assert_eq!(chunks[1]["usage"]["total_tokens"], 12);
}

#[test]
fn running_usage_brings_usage_and_cannot_do_without() {
    let asked = |options: Value| with(json!({"stream": true, "stream_options": options}));
    let request = read(asked(json!({"continuous_usage_stats": true})));
    assert_eq!(request.stream.unwrap().usage, Some(true));
    let body = asked(json!({"continuous_usage_stats": true, "include_usage": false}));
    let problem = ChatRequest::read(body, Strictness::Refuse).unwrap_err();
    let param = problem.param.as_deref();
    assert_eq!(param, Some("stream_options.continuous_usage_stats"));
}

#[test]
fn excluded_reasoning_is_not_streamed() {
    for fields in [
        json!({"stream": true, "reasoning": {"exclude": true}}),
        json!({"stream": true, "include_reasoning": false}),
    ] {
        let stream = streamed(
            fields,
            &[said(Channel::Reasoning, "hm"), said(Channel::Content, "a")],
        );
        assert!(!stream.contains("hm"), "{stream}");
        assert_eq!(chunks(&stream).len(), 3);
    }
}
