//! A chat of `/v1` that a worker serves which only knows how to poll.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster_testing::eventually;
use serde_json::{Value, json};

use super::super::support::app::{Answer, App, request};
use super::{pop, post, submit, worker};

use super::POP;

fn hello(more: Value) -> Value {
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who are you?"},
    ]);
    let mut body = json!({"model": "tiny", "messages": messages});
    let fields = body.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    body
}

/// Pops until a job comes.
async fn take(app: &App, name: &str) -> Value {
    eventually("a job", async || {
        let popped = pop(app, name).await;
        (!popped["id"].is_null()).then_some(popped)
    })
    .await
}

/// A client asks, a worker that is online gives this answer.
async fn serve(app: &App, body: Value, text: &str) -> (Answer, Value) {
    pop(app, "w1").await;
    let work = async {
        let popped = take(app, "w1").await;
        let (status, answer) = submit(app, &popped["id"], text).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert!(answer["reward"].as_f64().unwrap() > 0.0);
        popped
    };
    tokio::join!(app.chat(&body), work)
}

#[tokio::test]
async fn a_worker_that_polls_serves_a_chat() {
    let app = App::start().await;
    let body = hello(json!({"temperature": 0.5, "max_tokens": 64, "stop": ["Bye"]}));
    let (answer, popped) = serve(&app, body, " I am tiny.\n\n### Instruction:\nNo, I am").await;
    assert_eq!(popped["ttl"], 150);
    let payload = &popped["payload"];
    assert_eq!(
        payload["prompt"],
        "Be brief.\n\n### Instruction:\nWho are you?\n\n### Response:\n"
    );
    assert_eq!(
        (
            &payload["temperature"],
            &payload["max_length"],
            &payload["stop_sequence"]
        ),
        (
            &json!(0.5),
            &json!(64),
            &json!(["Bye", "### Instruction:", "### Response:"])
        ),
    );
    assert_eq!(answer.status, StatusCode::OK);
    let reply = answer.json().await;
    let choice = &reply["choices"][0];
    assert_eq!(choice["message"]["content"], "I am tiny.");
    assert_eq!(choice["finish_reason"], "stop");
    let usage = &reply["usage"];
    assert!(
        usage["prompt_tokens"].as_u64().unwrap() > 3
            && usage["completion_tokens"].as_u64().unwrap() > 2,
        "{usage}"
    );
}

/// Every route for texts, with all words by which a client may ask for no reasoning.
#[tokio::test]
async fn a_polling_worker_serves_every_route_for_texts() {
    let app = App::start().await;
    let said = json!([{"role": "user", "content": "Who are you?"}]);
    let off = json!({"enable_thinking": false});
    let cases = [
        ("/v1/chat/completions", json!({"messages": said})),
        (
            "/v1/chat/completions",
            json!({"messages": said, "reasoning_effort": "none"}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": said, "chat_template_kwargs": off}),
        ),
        ("/v1/completions", json!({"prompt": "Who are you?"})),
        ("/v1/responses", json!({"input": "Who are you?"})),
        (
            "/v1/responses",
            json!({"input": "Who are you?", "reasoning": {"effort": "none"}}),
        ),
        ("/v1/messages", json!({"messages": said, "max_tokens": 32})),
        (
            "/v1/messages",
            json!({"messages": said, "max_tokens": 32, "thinking": {"type": "disabled"}}),
        ),
        ("/api/chat", json!({"messages": said, "stream": false})),
        (
            "/api/chat",
            json!({"messages": said, "stream": false, "think": false}),
        ),
        (
            "/api/generate",
            json!({"prompt": "Who are you?", "stream": false}),
        ),
        (
            "/api/generate",
            json!({"prompt": "Who are you?", "stream": false, "think": false}),
        ),
    ];
    let bearer = format!("Bearer {}", app.key);
    for (path, mut body) in cases {
        body["model"] = json!("tiny");
        let headers = [("authorization", bearer.as_str())];
        let sent = request(Method::POST, path, &headers, Body::from(body.to_string()));
        pop(&app, "w1").await;
        let work = async {
            let popped = take(&app, "w1").await;
            let prompt = popped["payload"]["prompt"].as_str().unwrap();
            assert!(prompt.contains("Who are you?"), "{popped}");
            submit(&app, &popped["id"], "I am tiny.").await
        };
        let (answer, _) = tokio::join!(app.send(sent), work);
        let status = answer.status;
        let text = answer.text().await;
        assert_eq!(status, StatusCode::OK, "{path} {body}: {text}");
        assert!(text.contains("I am tiny."), "{path} {body}: {text}");
    }
}

#[tokio::test]
async fn a_chat_is_not_known_where_images_are_drawn_or_looked_at() {
    let app = App::start().await;
    pop(&app, "w1").await;
    let work = async {
        let id = take(&app, "w1").await["id"].clone();
        let looked_at = json!({"id": id, "result": "R2"});
        let drawn = json!({"id": id, "generation": "R2", "seed": 1});
        for (path, body) in [("interrogate", looked_at), ("generate", drawn)] {
            let (status, answer) = post(&app, &format!("/api/v2/{path}/submit"), body).await;
            assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
        }
        let (status, answer) = submit(&app, &id, "I am tiny.").await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    };
    let body = hello(json!({}));
    let (answer, ()) = tokio::join!(app.chat(&body), work);
    let reply = answer.json().await;
    assert_eq!(reply["choices"][0]["message"]["content"], "I am tiny.");
}

#[tokio::test]
async fn a_legacy_worker_serves_a_streaming_client() {
    let app = App::start().await;
    let body = hello(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let (answer, _) = serve(&app, body, "I am tiny.").await;
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let text = answer.text().await;
    let chunks: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let said: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(said, "I am tiny.");
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
}

#[tokio::test]
async fn what_is_as_long_as_it_may_be_was_cut() {
    let app = App::start().await;
    let (answer, _) = serve(&app, hello(json!({"max_tokens": 3})), "one two three four").await;
    let reply = answer.json().await;
    assert_eq!(reply["choices"][0]["finish_reason"], "length", "{reply}");
}

#[tokio::test]
async fn a_chat_that_a_worker_cannot_be_told_does_not_go_to_it() {
    let app = App::start().await;
    pop(&app, "w1").await;
    let tool = json!({"type": "function", "function": {"name": "f"}});
    for (field, more) in [
        ("seed", json!({"seed": 7})),
        ("logprobs", json!({"logprobs": true})),
        ("tools", json!({"tools": [tool]})),
        ("min_tokens", json!({"min_tokens": 3})),
        (
            "response_format",
            json!({"response_format": {"type": "json_object"}}),
        ),
    ] {
        let answer = app.chat(&hello(more)).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{field}");
        assert_eq!(answer.header("retry-after"), None);
        let error = answer.json().await;
        assert_eq!(error["error"]["param"], field);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with(field) && message.contains("tiny"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn choices_of_one_chat_go_out_together() {
    let app = App::start().await;
    pop(&app, "w1").await;
    let work = async {
        let ids = eventually("jobs", async || {
            let mut asks = worker("w1");
            asks["amount"] = json!(3);
            let (_, popped) = post(&app, POP, asks).await;
            let ids = popped["ids"].as_array().unwrap().clone();
            (!ids.is_empty()).then_some(ids)
        })
        .await;
        for (number, id) in ids.iter().enumerate() {
            submit(&app, id, &format!("answer {number}")).await;
        }
        ids.len()
    };
    let body = hello(json!({"n": 3}));
    let (answer, count) = tokio::join!(app.chat(&body), work);
    let reply = answer.json().await;
    assert_eq!(count, 3);
    for (number, choice) in reply["choices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(choice["message"]["content"], format!("answer {number}"));
    }
}

#[tokio::test]
async fn a_chat_that_asks_for_more_than_a_worker_writes_gets_as_much_as_it_writes() {
    let app = App::start().await;
    let (answer, popped) = serve(&app, hello(json!({"max_tokens": 100_000})), "I am tiny.").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(popped["payload"]["max_length"], worker("w1")["max_length"]);
}

#[tokio::test]
async fn a_chat_is_told_the_settings_that_only_some_clients_have_words_for() {
    let app = App::start().await;
    let body = hello(json!({"repeat_penalty": 1.25, "typical_p": 0.5}));
    let (answer, popped) = serve(&app, body, "I am tiny.").await;
    assert_eq!(answer.status, StatusCode::OK);
    let payload = &popped["payload"];
    assert_eq!(
        (&payload["rep_pen"], &payload["typical"]),
        (&json!(1.25), &json!(0.5))
    );
}
