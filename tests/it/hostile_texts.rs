//! Requests for texts that are made to break something, and faults while texts are written.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, StatusCode};
use futures_util::future::join_all;
use muster::coordinator::dispatch::Limits;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{Channel, Event, FinishReason, TokenEvent};
use muster_testing::eventually;
use serde_json::{Value, json};

use super::support::app::{Answer, App, request};
use super::support::puppet::{Puppet, done, started, text};
use crate::killed::{Service, Stream, serve};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

fn user(content: impl Into<Value>) -> Value {
    json!([{"role": "user", "content": content.into()}])
}

fn with(mut body: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// A body that both APIs read.
fn body(fields: Value) -> Value {
    let plain = json!({"model": "tiny", "max_tokens": 50, "messages": user("hi")});
    with(plain, fields)
}

/// The least that this route takes.
fn plain(path: &str) -> Value {
    match path {
        RESPONSES => json!({"model": "tiny", "input": "hi"}),
        _ => body(json!({})),
    }
}

async fn post_as(app: &App, key: &str, path: &str, body: impl Into<Body>) -> Answer {
    let headers = [("x-api-key", key)];
    app.send(request(Method::POST, path, &headers, body.into()))
        .await
}

async fn post(app: &App, path: &str, body: &Value) -> Answer {
    post_as(app, &app.key, path, body.to_string()).await
}

/// The jobs before are settled a moment after they were cancelled.
async fn post_until_taken(app: &App, body: &Value) -> Answer {
    eventually("room for a job", async || {
        let answer = post(app, CHAT, body).await;
        (answer.status != StatusCode::TOO_MANY_REQUESTS).then_some(answer)
    })
    .await
}

/// The message of a refusal, in the format of its API.
async fn refusal(answer: Answer, path: &str, status: StatusCode, kind: &str) -> Value {
    let found = answer.status;
    let refused = answer.json().await;
    assert_eq!(found, status, "{path}: {refused}");
    assert_eq!(refused["error"]["type"], kind, "{path}: {refused}");
    assert_eq!(refused["type"] == "error", path == MESSAGES, "{refused}");
    refused["error"].clone()
}

async fn bad_request(answer: Answer, path: &str) -> Value {
    refusal(
        answer,
        path,
        StatusCode::BAD_REQUEST,
        "invalid_request_error",
    )
    .await
}

/// The status and the body of a reply, from a request of any size.
pub fn send(service: &Service, path: &str, body: &Value) -> (u16, Value) {
    let mut command = Command::new("curl");
    command
        .args(["-s", "-w", "\n%{http_code}", "--data-binary", "@-"])
        .args(["-H", &format!("x-api-key: {}", service.key)])
        .args(["-H", "content-type: application/json"])
        .arg(format!("{}{path}", service.url))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut curl = command.spawn().unwrap();
    let mut input = curl.stdin.take().unwrap();
    input.write_all(body.to_string().as_bytes()).unwrap();
    drop(input);
    let out = String::from_utf8(curl.wait_with_output().unwrap().stdout).unwrap();
    let (reply, status) = out.rsplit_once('\n').unwrap();
    (
        status.parse().unwrap(),
        serde_json::from_str(reply).unwrap(),
    )
}

fn hostile_schemas() -> Vec<(&'static str, Value)> {
    let mut nested = json!({"type": "string"});
    for _ in 0..70 {
        nested = json!({"type": "array", "items": nested});
    }
    let branch = |i: usize| {
        let part = |k: usize| json!({"properties": {format!("p{i}"): {"const": k}}});
        json!({"oneOf": [part(0), part(1), part(2)]})
    };
    let product = json!({"allOf": (0..24).map(branch).collect::<Vec<_>>()});
    let cycle = json!({"$ref": "#/$defs/a", "$defs": {
        "a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}});
    let lost =
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}, "required": ["a"]});
    vec![
        (
            "products of oneOf",
            json!({"type": "object", "properties": {"a": product}, "required": ["a"]}),
        ),
        (
            "a cycle of references",
            json!({"type": "object", "properties": {"a": cycle.clone()}, "$defs": cycle["$defs"], "required": ["a"]}),
        ),
        ("a reference to nothing", lost),
        (
            "too many levels",
            json!({"type": "object", "properties": {"a": nested}}),
        ),
        (
            "a megabyte of values",
            json!({"type": "object", "properties": {"a": {"enum": vec!["x".repeat(1000); 1000]}}}),
        ),
        (
            "a megabyte of pattern",
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "a".repeat(1 << 20)}}}),
        ),
    ]
}

#[test]
fn schemas_without_end_are_refused_within_seconds_and_the_worker_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let _worker = service.worker(folder.path(), "first");
    let asked = |fields: Value| with(body(json!({"model": "demo-text"})), fields);
    let mut cases = Vec::new();
    for (name, schema) in hostile_schemas() {
        let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
        cases.push((name, CHAT, asked(json!({"response_format": format}))));
        let format = json!({"format": {"type": "json_schema", "schema": schema}});
        cases.push((name, MESSAGES, asked(json!({"output_config": format}))));
    }
    let pattern = json!({"guided_regex": "a".repeat(1 << 20)});
    cases.push(("a pattern of a megabyte", CHAT, asked(pattern)));
    for (name, path, body) in cases {
        let began = Instant::now();
        let (status, refused) = send(&service, path, &body);
        let took = began.elapsed();
        assert_eq!(status, 400, "{name} on {path}: {refused}");
        assert_eq!(refused["error"]["type"], "invalid_request_error", "{name}");
        assert_eq!(refused["type"] == "error", path == MESSAGES, "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!((10..600).contains(&message.len()), "{name}: {message}");
        assert!(took < Duration::from_secs(8), "{name} took {took:?}");
    }
    let plain = asked(json!({"messages": user("What is the weather in Rome?")}));
    for path in [CHAT, MESSAGES] {
        assert_eq!(send(&service, path, &plain).0, 200, "{path}");
    }
}

#[tokio::test]
async fn two_tools_of_one_name_are_refused_by_their_name() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let function = |name: &str| json!({"name": name, "parameters": {"type": "object"}});
    let names = ["look", "listen", "look"];
    let tools = names.map(|name| json!({"type": "function", "function": function(name)}));
    let messages = names.map(|name| json!({"name": name, "input_schema": {"type": "object"}}));
    let responses = names.map(|name| json!({"type": "function", "name": name, "parameters": {}}));
    for (path, fields, param) in [
        (CHAT, json!({"tools": tools}), "tools[2].function.name"),
        (
            CHAT,
            json!({"functions": names.map(function)}),
            "functions[2].name",
        ),
        (MESSAGES, json!({"tools": messages}), "tools.2.name"),
        (RESPONSES, json!({"tools": responses}), "tools[2].name"),
    ] {
        let asked = with(plain(path), fields);
        let error = bad_request(post(&app, path, &asked).await, path).await;
        assert_eq!(error["param"], param, "{error}");
        assert!(error["message"].as_str().unwrap().contains("\"look\""));
    }
}

#[tokio::test]
async fn ten_thousand_messages_are_413() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let turn = |index: usize| {
        let role = ["user", "assistant"][index % 2];
        json!({"role": role, "content": "hi"})
    };
    let turns: Vec<Value> = (0..10_001).map(turn).collect();
    for (path, kind, param) in [
        (CHAT, "invalid_request_error", "messages"),
        (MESSAGES, "request_too_large", "messages"),
        (RESPONSES, "invalid_request_error", "input"),
    ] {
        let mut asked = plain(path);
        asked[param] = turns.clone().into();
        let answer = post(&app, path, &asked).await;
        let error = refusal(answer, path, StatusCode::PAYLOAD_TOO_LARGE, kind).await;
        assert_eq!(error["param"], param, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("at most 500"), "{message}");
    }
}

#[tokio::test]
async fn half_a_character_is_400_in_every_api() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    for path in [CHAT, MESSAGES, "/v1/messages/count_tokens", RESPONSES] {
        for half in ["\\ud83d", "\\ude00", "\\ud83d\\ud83d"] {
            let text = plain(path)
                .to_string()
                .replace("\"hi\"", &format!("\"{half}\""));
            let answer = post_as(&app, &app.key, path, text).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path} {half}");
            let refused = answer.json().await;
            let message = refused["error"]["message"].as_str().unwrap();
            assert!(message.contains("not valid JSON"), "{message}");
        }
    }
}

#[tokio::test]
async fn content_blocks_that_nobody_knows_are_refused_by_their_place() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let text = json!({"type": "text", "text": "hi"});
    for kind in [
        "hologram",
        "server_tool_use",
        "container_upload",
        "tool_use",
    ] {
        let blocks = json!([text, {"type": kind, "id": "x"}]);
        let asked = body(json!({"messages": user(blocks)}));
        let error = bad_request(post(&app, MESSAGES, &asked).await, MESSAGES).await;
        assert_eq!(error["param"], "messages.0.content.1.type", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(kind), "{message}");
    }
    for kind in ["hologram", "web_search_call", "computer_call"] {
        let item = json!({"role": "user", "content": "hi"});
        let asked = json!({"model": "tiny", "input": [item, {"type": kind, "id": "x"}]});
        let error = bad_request(post(&app, RESPONSES, &asked).await, RESPONSES).await;
        assert_eq!(error["param"], "input[1].type", "{error}");
    }
}

#[tokio::test]
async fn a_thought_of_another_account_is_refused() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let thought = Event::Token(TokenEvent {
        channel: Channel::Reasoning,
        text: "They greet me.".to_owned(),
        ids: vec![1],
        ..TokenEvent::default()
    });
    let thinking = json!({"type": "enabled", "budget_tokens": 1024});
    let first = body(json!({"max_tokens": 2000, "thinking": thinking}));
    let (answer, ()) = tokio::join!(post(&app, MESSAGES, &first), async {
        let offer = rig.offer().await;
        rig.say(
            &offer,
            [started(), thought, text("Hey"), done(FinishReason::Stop)],
        )
        .await;
    });
    let content = answer.json().await["content"].clone();
    assert_eq!(content[0]["type"], "thinking", "{content}");
    let talk = body(json!({"messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": content},
        {"role": "user", "content": "and now?"},
    ]}));
    let (answer, ()) = tokio::join!(post(&app, MESSAGES, &talk), rig.answer(&["fine"]));
    assert_eq!(answer.status, StatusCode::OK);
    let other = app
        .account_with(Roles::USER, Scopes::INFERENCE_SUBMIT)
        .await;
    let answer = post_as(&app, &other, MESSAGES, talk.to_string()).await;
    let error = bad_request(answer, MESSAGES).await;
    assert_eq!(error["param"], "messages.1.content.0.signature", "{error}");
}

#[tokio::test]
async fn streams_that_are_dropped_together_free_the_worker_and_their_account() {
    const MANY: usize = 64;
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let limits = Limits {
        queue: 1000,
        in_flight: None,
        direct_texts: Some(MANY),
        media: None,
    };
    app.board.change_limits(limits).await;
    let asked = body(json!({"stream": true}));
    for _ in 0..2 {
        let streams = join_all((0..MANY).map(|_| post_until_taken(&app, &asked)));
        let offers = async {
            let mut offers = Vec::new();
            while offers.len() < MANY {
                let offer = rig.offer().await;
                rig.say(&offer, [started(), text("Hel")]).await;
                offers.push(offer);
            }
            offers
        };
        let (streams, offers) = tokio::join!(streams, offers);
        assert!(streams.iter().all(|it| it.status == StatusCode::OK));
        let more = post(&app, CHAT, &asked).await;
        assert_eq!(more.status, StatusCode::TOO_MANY_REQUESTS);
        drop(streams);
        rig.cancelled_all(&offers).await;
    }
    let one = body(json!({}));
    let (answer, ()) = tokio::join!(post_until_taken(&app, &one), rig.answer(&["fine"]));
    assert_eq!(answer.status, StatusCode::OK);
}

#[test]
fn a_worker_killed_within_the_arguments_of_a_call_is_replaced_and_the_call_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let service = serve(folder.path());
    let first = service.worker(folder.path(), "first");
    let words = json!({"type": "array", "items": {"type": "string", "minLength": 3, "maxLength": 9},
        "minItems": 90, "maxItems": 90});
    let parameters = json!({"type": "object", "properties": {"words": words}, "required": ["words"],
        "additionalProperties": false});
    let tool = json!({"type": "function", "function": {"name": "note", "parameters": parameters}});
    let asked = |seed: u64, streaming: bool| {
        service.chat(&body(json!({
            "model": "demo-text", "messages": user("Note some words."), "max_tokens": 900, "seed": seed,
            "temperature": 1.2, "stream": streaming, "tools": [tool], "parallel_tool_calls": false,
            "tool_choice": {"type": "function", "function": {"name": "note"}},
        })))
    };
    let call = |seed| {
        let reply = service.reply(asked(seed, false));
        let calls = &reply["choices"][0]["message"]["tool_calls"];
        assert_eq!(calls.as_array().map(Vec::len), Some(1), "{reply}");
        calls[0]["function"]["arguments"].clone()
    };
    let told: Vec<Value> = (0..3).map(call).collect();
    let mut streams: Vec<Stream> = (0..3).map(|seed| Stream::open(asked(seed, true))).collect();
    streams.iter_mut().for_each(Stream::read_some_arguments);
    drop(first);
    let _second = service.worker(folder.path(), "second");
    for (stream, told) in streams.into_iter().zip(told) {
        let arguments = stream.read_all_arguments();
        assert_eq!(arguments, told.as_str().unwrap());
        let value: Value = serde_json::from_str(&arguments).unwrap();
        assert_eq!(value["words"].as_array().unwrap().len(), 90);
    }
}
