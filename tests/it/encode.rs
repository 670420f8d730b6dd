//! Jobs that read and do not write, from the route to a worker of ours and back.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::daemon::Worker;
use muster::link::Dial;
use serde_json::{Value, json};
use tokio::io::duplex;

use crate::support::app::{Answer, App, request};
use crate::support::boss::{MODEL, engine, post, worker_on};

/// A coordinator and a worker of ours with the smallest model.
async fn service() -> (App, Worker) {
    let app = App::start().await;
    let (runtime, info) = engine().await;
    let mut post = post("rig", dial(&app));
    post.key.clone_from(&app.key);
    let worker = worker_on(runtime, info, post, &app.tasks);
    assert!(worker.connected().await);
    (app, worker)
}

fn dial(app: &App) -> Dial {
    let (workers, tasks) = (app.workers.clone(), app.tasks.clone());
    Dial::Pipe(Arc::new(move || {
        let (near, far) = duplex(1 << 16);
        let workers = workers.clone();
        tasks.start(async move { workers.serve(far, Vec::new()).await });
        near
    }))
}

async fn post_json(app: &App, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(body.to_string());
    app.send(request(Method::POST, path, &headers, body)).await
}

async fn reply(app: &App, path: &str, body: &Value) -> Value {
    let answer = post_json(app, path, body).await;
    let status = answer.status;
    let reply = answer.json().await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    reply
}

async fn refusal(app: &App, path: &str, body: &Value) -> (u16, Value) {
    let answer = post_json(app, path, body).await;
    let status = answer.status.as_u16();
    (status, answer.json().await["error"].take())
}

#[tokio::test]
async fn a_chat_has_as_many_tokens_as_its_prompt_when_it_is_answered() {
    let (app, _worker) = service().await;
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Name two colours."}]},
    ]);
    let body = json!({"model": MODEL, "messages": messages});
    let tokens = reply(&app, "/tokenize", &body).await;
    let count = tokens["tokens"].as_array().unwrap().len();
    assert_eq!(tokens["count"], count);
    assert_eq!(tokens["max_model_len"], 2048);
    let chat = json!({"model": MODEL, "messages": messages, "max_tokens": 1});
    let answered = app.chat(&chat).await.json().await;
    assert_eq!(answered["usage"]["prompt_tokens"], count, "{answered}");

    let without = json!({"model": MODEL, "messages": messages, "add_generation_prompt": false});
    let without = reply(&app, "/v1/tokenize", &without).await;
    assert!(without["count"].as_u64().unwrap() < count as u64);
}

#[tokio::test]
async fn tokens_become_the_text_they_came_from() {
    let (app, _worker) = service().await;
    let text = "we say: 3 × €5, naïve 🙂";
    let body = json!({"model": MODEL, "prompt": text, "add_special_tokens": false, "return_token_strs": true});
    let tokens = reply(&app, "/tokenize", &body).await;
    let names = tokens["token_strs"].as_array().unwrap();
    assert_eq!(tokens["count"], names.len());
    let body = json!({"model": MODEL, "tokens": tokens["tokens"]});
    assert_eq!(reply(&app, "/detokenize", &body).await["prompt"], text);

    let with_bos = json!({"model": MODEL, "prompt": text, "return_token_strs": true});
    let with_bos = reply(&app, "/tokenize", &with_bos).await;
    let bos = with_bos["token_strs"][0].as_str().unwrap();
    assert_eq!(
        with_bos["count"].as_u64(),
        tokens["count"].as_u64().map(|count| count + 1)
    );
    let body = json!({"model": MODEL, "tokens": with_bos["tokens"]});
    let whole = reply(&app, "/v1/detokenize", &body).await;
    assert_eq!(whole["prompt"], format!("{bos}{text}"));
}

#[tokio::test]
async fn tokens_that_the_model_does_not_have_are_refused() {
    let (app, _worker) = service().await;
    let body = json!({"model": MODEL, "tokens": [1, 600_000]});
    let (status, error) = refusal(&app, "/detokenize", &body).await;
    assert_eq!(status, 400, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("600000"), "{message}");
}

#[tokio::test]
async fn a_model_that_is_not_there_is_named() {
    let (app, _worker) = service().await;
    let unknown = json!({"model": "other", "prompt": "hi"});
    let (status, error) = refusal(&app, "/tokenize", &unknown).await;
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")));
    assert!(error["message"].as_str().unwrap().contains(MODEL));
    let auto = json!({"model": "auto", "prompt": "hi"});
    let (status, error) = refusal(&app, "/tokenize", &auto).await;
    assert_eq!((status, &error["param"]), (400, &json!("model")));
}

#[tokio::test]
async fn workers_of_the_public_network_get_no_such_jobs() {
    let app = App::start().await;
    let mut rig = app.dial().await;
    let registration = json!({"apikey": app.key, "name": "public", "models": ["tiny"]});
    rig.send(registration).await;
    assert_eq!(rig.next().await["type"], "ready");
    let body = json!({"model": "tiny", "prompt": "hi"});
    let (status, error) = refusal(&app, "/tokenize", &body).await;
    assert_eq!((status, &error["param"]), (400, &json!("model")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("tokenization"), "{message}");
}
