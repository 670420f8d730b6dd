//! Anthropic's messages and OpenAI's completions, from the client's body to the last event.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{
    Body as JobBody, Channel, Event, FailureKind, FinishReason, TextInput, TokenEvent,
};
use muster::protocol::openai::IgnoredFields;
use serde_json::{Value, json};

use crate::support::app::{Answer, App, request};
use crate::support::puppet::{Puppet, done, failed, started, text};

fn message(fields: Value) -> Value {
    let mut body = json!({
        "model": "tiny", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}],
    });
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn post(app: &App, path: &str, body: &Value) -> Answer {
    post_with(app, &app.key, path, body).await
}

async fn post_with(app: &App, key: &str, path: &str, body: &Value) -> Answer {
    let headers = [("x-api-key", key)];
    let body = Body::from(body.to_string());
    app.send(request(Method::POST, path, &headers, body)).await
}

#[tokio::test]
async fn a_message_is_answered_in_anthropics_shape() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = message(json!({"system": "Be brief."}));
    let (answer, ()) = tokio::join!(
        post(&app, "/v1/messages", &body),
        rig.answer(&["Hel", "lo"])
    );
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.header("request-id").is_some());
    assert!(answer.header("x-job-id").is_some());
    let reply = answer.json().await;
    assert!(reply["id"].as_str().unwrap().starts_with("msg_"), "{reply}");
    assert_eq!(reply["content"][0]["text"], "Hello");
    assert_eq!(reply["stop_reason"], "end_turn");
    assert_eq!(reply["usage"]["cache_read_input_tokens"], 2);
}

#[tokio::test]
async fn a_message_streams_events_in_order_and_names_its_stop_sequence() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = message(json!({"stream": true, "stop_sequences": ["x"]}));
    let (answer, ()) = tokio::join!(post(&app, "/v1/messages", &body), async {
        let offer = rig.offer().await;
        let stop = FinishReason::StopString("x".into());
        rig.say(&offer, [started(), text("a"), text("b"), done(stop)])
            .await;
    });
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let stream = answer.text().await;
    let names: Vec<&str> = stream
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    assert_eq!(
        names,
        [
            "message_start",
            "ping",
            "content_block_start",
            "content_block_delta",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    assert!(
        stream.contains(r#""stop_reason":"stop_sequence""#),
        "{stream}"
    );
    assert!(stream.contains(r#""stop_sequence":"x""#), "{stream}");
}

#[tokio::test]
async fn errors_name_the_clients_fields() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let check = async |body: Value, status: u16, kind: &str, word: &str| {
        let answer = post(&app, "/v1/messages", &body).await;
        assert_eq!(answer.status.as_u16(), status, "{body}");
        let error = answer.json().await;
        assert_eq!(error["type"], "error");
        assert_eq!(error["error"]["type"], kind);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(word), "{message}");
    };
    let block = |block: Value| message(json!({"messages": [{"role": "user", "content": [block]}]}));
    let invalid = "invalid_request_error";
    check(
        block(json!({"type": "hologram"})),
        400,
        invalid,
        "messages.0.content.0.type",
    )
    .await;
    check(
        message(json!({"temprature": 1})),
        400,
        invalid,
        "temperature",
    )
    .await;
    check(
        message(json!({"model": "other"})),
        404,
        "not_found_error",
        "tiny",
    )
    .await;
    let many: Vec<Value> = (0..10_000)
        .map(|index| {
            let role = ["user", "assistant"][index % 2];
            json!({"role": role, "content": "x"})
        })
        .chain([json!({"role": "user", "content": "y"})])
        .collect();
    check(
        message(json!({"messages": many})),
        413,
        "request_too_large",
        "messages",
    )
    .await;
    let forged = json!({"type": "thinking", "thinking": "hm", "signature": "AAAA"});
    let talk =
        json!([{"role": "assistant", "content": [forged]}, {"role": "user", "content": "x"}]);
    check(
        message(json!({"messages": talk})),
        400,
        invalid,
        "messages.0.content.0.signature",
    )
    .await;
}

#[tokio::test]
async fn a_thinking_block_comes_back_to_its_account_alone() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let first = message(json!({"thinking": {"type": "adaptive"}}));
    let (answer, ()) = tokio::join!(post(&app, "/v1/messages", &first), async {
        let offer = rig.offer().await;
        let thought = Event::Token(TokenEvent {
            channel: Channel::Reasoning,
            text: "hm".to_owned(),
            ..TokenEvent::default()
        });
        let said = [started(), thought, text("a"), done(FinishReason::Stop)];
        rig.say(&offer, said).await;
    });
    let content = answer.json().await["content"].clone();
    assert_eq!(content[0]["thinking"], "hm");
    let talk = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": content},
        {"role": "user", "content": "and now?"},
    ]);
    let body = message(json!({"messages": talk}));
    let stranger = app
        .account_with(Roles::USER, Scopes::INFERENCE_SUBMIT)
        .await;
    let refused = post_with(&app, &stranger, "/v1/messages", &body).await;
    let error = refused.json().await;
    assert_eq!(error["error"]["param"], "messages.1.content.0.signature");
    let (answer, ()) = tokio::join!(post(&app, "/v1/messages", &body), rig.answer(&["b"]));
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_stream_that_fails_ends_with_an_error_event() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = message(json!({"stream": true}));
    let (answer, ()) = tokio::join!(post(&app, "/v1/messages", &body), async {
        let offer = rig.offer().await;
        let end = failed(FailureKind::InvalidRequest, "no such thing");
        rig.say(&offer, [started(), text("a"), end]).await;
    });
    let stream = answer.text().await;
    let (_, last) = stream.rsplit_once("event: error\ndata: ").unwrap();
    let error: Value = serde_json::from_str(last.trim()).unwrap();
    assert_eq!(error["error"]["type"], "invalid_request_error");
}

#[tokio::test]
async fn fields_that_the_operator_ignores_are_named() {
    let app = App::with(DoorSettings {
        ignored_fields: IgnoredFields::All,
        ..DoorSettings::default()
    })
    .await;
    let rig = Puppet::connect(&app.board).await;
    let body = message(json!({"container": "c", "novelty": 1}));
    let (answer, ()) = tokio::join!(post(&app, "/v1/messages", &body), rig.answer(&["ok"]));
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(
        answer.header("x-ignored-fields"),
        Some("novelty, container")
    );
}

#[tokio::test]
async fn models_have_anthropics_shape_for_its_clients() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let headers = [("anthropic-version", "2023-06-01")];
    let get = async |path: &str| {
        let answer = app
            .send(request(Method::GET, path, &headers, Body::empty()))
            .await;
        answer.json().await
    };
    let list = get("/v1/models").await;
    assert_eq!(list["has_more"], false);
    assert_eq!(list["data"][1]["type"], "model");
    assert_eq!(list["last_id"], "tiny");
    let model = get("/v1/models/tiny").await;
    assert_eq!(model["display_name"], "tiny");
    assert_eq!(model["lifecycle"], "active");
    assert_eq!(model["capabilities"]["image_input"]["supported"], false);
}

#[tokio::test]
async fn completions_have_a_job_for_each_choice_of_each_prompt() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body =
        json!({"model": "tiny", "prompt": ["a", "b"], "n": 2, "temperature": 1, "echo": true});
    let (answer, ()) = tokio::join!(post(&app, "/v1/completions", &body), async {
        for _ in 0..4 {
            let offer = rig.offer().await;
            let JobBody::Text(job) = &offer.job.body else {
                panic!("a text job");
            };
            let TextInput::Prompt(prompt) = &job.input else {
                panic!("a prompt");
            };
            let said = format!("{prompt}{}", job.choice);
            rig.say(&offer, [started(), text(&said), done(FinishReason::Length)])
                .await;
        }
    });
    let reply = answer.json().await;
    let texts: Vec<&str> = reply["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| choice["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["aa0", "aa1", "bb0", "bb1"]);
    assert_eq!(reply["object"], "text_completion");
    assert_eq!(reply["choices"][3]["finish_reason"], "length");
    let refused = post(
        &app,
        "/v1/completions",
        &json!({"model": "tiny", "prompt": "a", "suffix": "b"}),
    )
    .await;
    assert_eq!(refused.json().await["error"]["param"], "suffix");
}
