//! Bodies as jobs, events as replies and chunks.

use bytes::BytesMut;
use serde_json::{Value, json};

use super::read;
use crate::job::{
    Capabilities, Event, FinishReason, PromptLogprobs, PromptToken, RequestId, TextInput,
    TokenEvent, TokenLogprob, Usage,
};
use crate::openai::chat::{ChatRequest, Dialect, Ending, Grid, Head, Reading};
use crate::openai::{IgnoredFields, Problem, Strictness};

fn with(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "prompt": "Once"});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn request(fields: Value) -> Result<(ChatRequest, Box<dyn Dialect>), Problem> {
    let Reading { chat, dialect, .. } = read(with(fields), &IgnoredFields::None)?;
    let mut request = ChatRequest::read(chat, Strictness::Refuse)?;
    dialect.complete(&mut request)?;
    Ok((request, dialect))
}

#[track_caller]
fn refused(fields: Value, param: &str) {
    let problem = request(fields).unwrap_err();
    assert_eq!(problem.param.as_deref(), Some(param), "{problem}");
}

#[test]
fn each_prompt_has_its_choices() {
    let (request, _) = request(json!({"prompt": ["a", "b"], "n": 2, "temperature": 0.5})).unwrap();
    assert_eq!(request.choices, 4);
    let inputs = (0..4)
        .map(|choice| request.choice(choice))
        .map(|text| (text.input, text.choice));
    let prompt = |text: &str| TextInput::Prompt(text.to_owned());
    let expected = [
        (prompt("a"), 0),
        (prompt("a"), 1),
        (prompt("b"), 0),
        (prompt("b"), 1),
    ];
    assert_eq!(inputs.collect::<Vec<_>>(), expected);
    assert_eq!(request.text.max_tokens, Some(16));
    assert_eq!(request.text.sampling.temperature, Some(0.5));
}

#[test]
fn token_ids_are_prompts() {
    let (one, dialect) = request(json!({"prompt": [1, 2]})).unwrap();
    assert_eq!(one.choice(0).input, TextInput::Tokens(vec![1, 2]));
    assert_eq!(dialect.unexamined(), Some("prompt"));
    let (two, _) = request(json!({"prompt": [[1], [2]]})).unwrap();
    assert_eq!(two.choice(1).input, TextInput::Tokens(vec![2]));
}

#[test]
fn refusals_name_the_field() {
    refused(json!({"prompt": []}), "prompt");
    refused(json!({"prompt": ["a", 1]}), "prompt[1]");
    refused(json!({"prompt": [1, "a"]}), "prompt");
    refused(json!({"prompt": [[]]}), "prompt[0]");
    refused(json!({"best_of": 2}), "best_of");
    refused(json!({"suffix": "end"}), "suffix");
    refused(json!({"max_tokens": 0}), "max_tokens");
    refused(json!({"temprature": 1}), "temprature");
    refused(json!({"messages": []}), "messages");
    refused(json!({"top_k": "many"}), "top_k");
    refused(json!({"prompt": vec!["a"; 64], "n": 2}), "prompt");
}

fn token(text: &str) -> Event {
    Event::Token(TokenEvent {
        text: text.to_owned(),
        logprobs: vec![TokenLogprob {
            bytes: text.into(),
            logprob: -0.5,
            top: vec![(b"x".to_vec(), -1.0)],
        }],
        ..TokenEvent::default()
    })
}

fn ending() -> Ending {
    Ending {
        finish: FinishReason::Length,
        usage: Usage {
            prompt_tokens: 3,
            completion_tokens: 2,
            ..Usage::default()
        },
    }
}

fn head() -> Head {
    Head::new("cmpl-", RequestId(uuid::Uuid::nil()), 0, "tiny".into())
}

#[test]
fn a_reply_has_a_text_for_each_choice() {
    let (request, dialect) = request(json!({"prompt": ["a", "b"], "logprobs": 1})).unwrap();
    let mut reply = dialect.reply(&request, &head());
    reply.event(0, token("hé"));
    reply.event(0, token("y"));
    reply.end(0, ending());
    reply.event(1, token("z"));
    reply.end(1, ending());
    let reply = reply.render(&Grid::default());
    let logprobs = json!({
        "tokens": ["hé", "y"], "token_logprobs": [-0.5, -0.5], "top_logprobs": [{"x": -1.0, "hé": -0.5}, {"x": -1.0, "y": -0.5}],
        "text_offset": [0, 2],
    });
    let first = json!({"text": "héy", "index": 0, "logprobs": logprobs, "finish_reason": "length"});
    assert_eq!(reply["choices"][0], first);
    assert_eq!(reply["choices"][1]["text"], "z");
    assert_eq!(reply["usage"]["prompt_tokens"], 6);
    assert_eq!(reply["usage"]["completion_tokens"], 4);
}

/// The chunks of a whole stream.
fn chunks(out: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(out).unwrap();
    let (chunks, done) = text.trim_end().rsplit_once("\n\n").unwrap();
    assert_eq!(done, "data: [DONE]");
    let chunks = chunks.split("\n\n");
    chunks
        .map(|chunk| serde_json::from_str(chunk.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

#[test]
fn a_stream_begins_with_the_echo_and_ends_with_usage() {
    let (request, dialect) = request(json!({"echo": true, "stream": true})).unwrap();
    let mut writer = dialect.stream(&request, &head());
    let mut out = BytesMut::new();
    writer.open(0, &mut out);
    writer.event(0, &token("hey"), &mut out);
    writer.end(0, ending(), &Grid::default(), &mut out);
    let chunks = chunks(&out);
    let texts: Vec<&str> = chunks
        .iter()
        .map(|chunk| chunk["choices"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["Once", "hey", ""]);
    assert_eq!(chunks[2]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[2]["usage"]["total_tokens"], 5);
}

/// Tokens of a prompt from this one on, each as likely as its number says.
fn prompt(start: u32, tokens: &[&[u8]]) -> Event {
    let token = |(at, bytes): (u32, &&[u8])| PromptToken {
        bytes: bytes.to_vec(),
        logprob: (at > 0).then(|| -(at as f32)),
        top: (at > 0)
            .then(|| (b"x".to_vec(), -0.25))
            .into_iter()
            .collect(),
    };
    Event::Prompt(PromptLogprobs {
        start,
        tokens: (start..).zip(tokens).map(token).collect(),
    })
}

#[test]
fn an_echo_asks_for_log_probabilities_of_the_prompt_where_it_needs_them() {
    let wanted = |fields: Value| {
        let (request, _) = request(fields).unwrap();
        let demands = request
            .demands
            .iter()
            .any(|one| one.capability == Capabilities::PROMPT_LOGPROBS && one.param == "echo");
        assert_eq!(demands, request.text.prompt_logprobs.is_some());
        (request.text.prompt_logprobs, request.text.max_tokens)
    };
    assert_eq!(wanted(json!({"echo": true})), (None, Some(16)));
    assert_eq!(wanted(json!({"logprobs": 3})), (None, Some(16)));
    assert_eq!(
        wanted(json!({"echo": true, "logprobs": 3})),
        (Some(3), Some(16))
    );
    let only_prompt = json!({"echo": true, "logprobs": 0, "max_tokens": 0});
    assert_eq!(wanted(only_prompt), (Some(0), Some(0)));
    assert_eq!(
        wanted(json!({"echo": true, "prompt": [1, 2]})),
        (Some(0), Some(16))
    );
}

#[test]
fn the_tokens_of_an_echoed_text_stand_where_they_are_in_it() {
    let fields = json!({"prompt": "Été<|end|>!", "echo": true, "logprobs": 1});
    let (request, dialect) = request(fields).unwrap();
    let mut reply = dialect.reply(&request, &head());
    // A token that is no text, a space of the encoding, a character in two tokens, a mark of the vocabulary.
    reply.event(
        0,
        prompt(0, &[b"", " É".as_bytes(), b"t\xc3", b"\xa9", b"", b"!"]),
    );
    // Another attempt begins anew.
    reply.event(0, prompt(4, &[b"", b"!"]));
    reply.event(0, token("hé"));
    reply.event(0, token("y"));
    reply.end(0, ending());
    let reply = reply.render(&Grid::default());
    let choice = &reply["choices"][0];
    assert_eq!(choice["text"], "Été<|end|>!héy");
    let found = &choice["logprobs"];
    assert_eq!(
        found["tokens"],
        json!(["", " É", "t\\xc3", "\\xa9", "", "!", "hé", "y"])
    );
    assert_eq!(found["text_offset"], json!([0, 0, 1, 2, 3, 10, 11, 13]));
    assert_eq!(
        found["token_logprobs"],
        json!([null, -1.0, -2.0, -3.0, -4.0, -5.0, -0.5, -0.5])
    );
    assert_eq!(found["top_logprobs"][0], Value::Null);
    assert_eq!(found["top_logprobs"][5], json!({"x": -0.25, "!": -5.0}));
}

#[test]
fn token_ids_are_echoed_as_their_text() {
    let fields = json!({"prompt": [1, 2, 3], "echo": true, "logprobs": 0, "stream": true});
    let (request, dialect) = request(fields).unwrap();
    let mut writer = dialect.stream(&request, &head());
    let mut out = BytesMut::new();
    writer.open(0, &mut out);
    writer.event(0, &prompt(0, &["é".as_bytes(), b"\xe2\x82"]), &mut out);
    writer.event(0, &prompt(1, &[b"\xe2\x82", b"\xac"]), &mut out);
    writer.event(0, &token("hey"), &mut out);
    writer.end(0, ending(), &Grid::default(), &mut out);
    let chunks = chunks(&out);
    let pieces: Vec<(&str, &Value)> = chunks
        .iter()
        .map(|chunk| &chunk["choices"][0])
        .map(|choice| (choice["text"].as_str().unwrap(), &choice["logprobs"]))
        .collect();
    let texts: Vec<&str> = pieces.iter().map(|(text, _)| *text).collect();
    assert_eq!(texts, ["é", "€", "hey", ""]);
    let offsets: Vec<&Value> = pieces.iter().map(|(_, one)| &one["text_offset"]).collect();
    assert_eq!(
        offsets,
        [&json!([0, 1]), &json!([1]), &json!([2]), &Value::Null]
    );
}

#[test]
fn every_chunk_of_a_choice_says_what_it_has_used_for_those_who_ask() {
    let options = json!({"continuous_usage_stats": true});
    let fields = json!({"prompt": ["a", "b"], "stream": true, "stream_options": options});
    let (request, dialect) = request(fields).unwrap();
    let mut writer = dialect.stream(&request, &head());
    let mut out = BytesMut::new();
    let started = |prompt_tokens: u32| Event::Started {
        prompt_tokens,
        cached_tokens: 0,
    };
    let drawn = Event::Token(TokenEvent {
        text: "x".to_owned(),
        ids: vec![7, 8],
        ..TokenEvent::default()
    });
    writer.event(0, &started(3), &mut out);
    writer.event(1, &started(5), &mut out);
    writer.event(1, &drawn, &mut out);
    writer.end(0, ending(), &Grid::default(), &mut out);
    writer.end(1, ending(), &Grid::default(), &mut out);
    let chunks = chunks(&out);
    let counts = chunks.iter().map(|chunk| {
        let usage = &chunk["usage"];
        let prompt = usage["prompt_tokens"].as_u64().unwrap();
        (prompt, usage["completion_tokens"].as_u64().unwrap())
    });
    let counts: Vec<_> = counts.collect();
    assert_eq!(counts, [(5, 2), (3, 2), (3, 2), (6, 4)]);
}

#[test]
fn values_without_an_effect_are_named() {
    let body = with(json!({"add_bos_token": false, "add_special_tokens": true}));
    let reading = read(body, &IgnoredFields::None).unwrap();
    assert_eq!(reading.ignored, ["add_bos_token"]);
}
