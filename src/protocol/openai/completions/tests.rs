//! Bodies as jobs, events as replies and chunks.

use bytes::BytesMut;
use serde_json::{Value, json};

use super::read;
use crate::dialect::{Dialect, Reading};
use crate::job::{Event, FinishReason, RequestId, TextInput, TokenEvent, TokenLogprob, Usage};
use crate::openai::chat::{ChatRequest, Ending, Grid, Head, IgnoredFields};
use crate::openai::{Problem, Strictness};

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
    refused(json!({"echo": true, "logprobs": 1}), "echo");
    refused(json!({"echo": true, "prompt": [1]}), "echo");
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
        "tokens": ["hé", "y"], "token_logprobs": [-0.5, -0.5], "top_logprobs": [{"x": -1.0}, {"x": -1.0}],
        "text_offset": [0, 2],
    });
    let first = json!({"text": "héy", "index": 0, "logprobs": logprobs, "finish_reason": "length"});
    assert_eq!(reply["choices"][0], first);
    assert_eq!(reply["choices"][1]["text"], "z");
    assert_eq!(reply["usage"]["prompt_tokens"], 6);
    assert_eq!(reply["usage"]["completion_tokens"], 4);
}

#[test]
fn a_stream_begins_with_the_echo_and_ends_with_usage() {
    let (request, dialect) = request(json!({"echo": true, "stream": true})).unwrap();
    let mut writer = dialect.stream(&request, &head());
    let mut out = BytesMut::new();
    writer.open(0, &mut out);
    writer.event(0, &token("hey"), &mut out);
    writer.end(0, ending(), &Grid::default(), &mut out);
    let text = String::from_utf8(out.to_vec()).unwrap();
    let (chunks, done) = text.trim_end().rsplit_once("\n\n").unwrap();
    assert_eq!(done, "data: [DONE]");
    let chunks: Vec<Value> = chunks
        .split("\n\n")
        .map(|chunk| serde_json::from_str(chunk.strip_prefix("data: ").unwrap()).unwrap())
        .collect();
    let texts: Vec<&str> = chunks
        .iter()
        .map(|chunk| chunk["choices"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["Once", "hey", ""]);
    assert_eq!(chunks[2]["choices"][0]["finish_reason"], "length");
    assert_eq!(chunks[2]["usage"]["total_tokens"], 5);
}
