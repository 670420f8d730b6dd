//! What workers had in hand when the coordinator ended without a word, and bring to the next one.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{Kudos, RequestId, UnixMillis};
use serde_json::{Value, json};

use super::{call_as, forms, images, post};
use crate::support::app::{App, request};

const DRAW: &str = "/api/v2/generate/pop";
const LOOK: &str = "/api/v2/interrogate/pop";

/// Pops by idle workers of the same owner, for models without requests.
async fn others_come(app: &App) {
    let painter =
        json!({"name": "painter", "models": ["other"], "bridge_agent": "somebody:1:test"});
    assert!(images::pop(app, painter).await["id"].is_null());
    let mut scribe = super::worker("scribe");
    scribe["models"] = json!(["other"]);
    let (_, popped) = post(app, super::POP, scribe).await;
    assert!(popped["id"].is_null(), "{popped}");
    let watcher = json!({"name": "watcher", "forms": ["nsfw"], "bridge_agent": "test:1:x"});
    let (_, popped) = post(app, LOOK, watcher).await;
    assert!(popped["forms"].is_null(), "{popped}");
}

async fn fulfilled(app: &App, name: &str) -> Value {
    let answer = app.get(&format!("/api/v2/workers/name/{name}")).await;
    answer.json().await["requests_fulfilled"].clone()
}

async fn check(others_are_first: bool) {
    let app = App::start().await;
    app.enrich(Kudos(1_000_000)).await;
    let image = images::ask(&app, json!({"r2": false, "params": {"steps": 40}})).await;
    let drawn = images::pop(&app, json!({})).await;
    let text = super::ask(&app, json!({"max_length": 100, "max_context_length": 1024})).await;
    let written = super::pop(&app, "writer").await;
    let form = json!({"source_image": forms::PNG, "forms": [{"name": "caption"}]});
    post(&app, forms::ASYNC, form).await;
    let looker = json!({"name": "looker", "forms": ["caption"], "bridge_agent": "test:1:x"});
    let (_, looked_at) = post(&app, LOOK, looker).await;
    others_come(&app).await;

    let app = app.anew().await;
    if others_are_first {
        others_come(&app).await;
    }
    let (status, answer) = images::submit(&app, &drawn["id"], json!({})).await;
    assert_eq!((status, &answer["reward"]), (StatusCode::OK, &json!(9.0)));
    let (status, answer) = super::submit(&app, &written["id"], " a time there was a test.").await;
    assert_eq!((status, &answer["reward"]), (StatusCode::OK, &json!(0.654)));
    let found = json!({"id": looked_at["forms"][0]["id"], "result": "a cat"});
    let (status, answer) = post(&app, "/api/v2/interrogate/submit", found).await;
    assert_eq!(status, StatusCode::OK, "{answer}");

    let status = images::until_done(&app, &image).await;
    let told = &status["generations"][0];
    assert_eq!(
        (&told["worker_name"], &told["id"]),
        (&json!("artist"), &drawn["id"])
    );
    let [_, earned, _] = images::booked(&app, &image).await;
    assert_eq!(earned, 9000, "known software is paid in full");
    let text = super::until(&app, &text, |status| status["done"] == true).await;
    assert_eq!(text["generations"][0]["worker_name"], "writer");
    for name in ["artist", "writer", "looker"] {
        assert_eq!(fulfilled(&app, name).await, 1, "{name}");
    }
    for name in ["painter", "scribe", "watcher"] {
        assert_eq!(fulfilled(&app, name).await, 0, "{name}");
    }
}

#[tokio::test]
async fn of_several_workers_each_is_credited_with_what_it_had_and_paid_as_if_nothing_had_been() {
    check(false).await;
}

#[tokio::test]
async fn whoever_comes_first_to_the_next_process_is_not_credited_with_the_work_of_others() {
    check(true).await;
}

#[tokio::test]
async fn a_worker_is_found_among_however_many_its_owner_has() {
    let app = App::start().await;
    let id = images::ask(&app, json!({"r2": false})).await;
    let popped = images::pop(&app, json!({})).await;
    let request = app.requests.find(RequestId(id.parse().unwrap())).unwrap();
    for number in 0..150 {
        let name = format!("newer {number}");
        let joined = app.store.worker(&name, request.account, UnixMillis(1));
        joined.await.unwrap();
    }
    let app = app.anew().await;
    let (status, answer) = images::submit(&app, &popped["id"], json!({})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let status = images::until_done(&app, &id).await;
    assert_eq!(status["generations"][0]["worker_name"], "artist");
}

#[tokio::test]
async fn an_account_brings_the_next_process_nothing_that_another_was_given() {
    let app = App::start().await;
    let other = app
        .account_with(Roles::WORKER_OWNER, Scopes::WORKER_CONNECT)
        .await;
    let id = images::ask(&app, json!({"r2": false})).await;
    let popped = images::pop(&app, json!({})).await;
    let app = app.anew().await;
    let theirs = images::worker(json!({"name": "theirs", "models": ["other"]}));
    let (status, answer) = call_as(&app, &other, Method::POST, DRAW, theirs).await;
    assert_eq!((status, &answer["id"]), (StatusCode::OK, &Value::Null));
    let steal = async || {
        let brought = json!({"id": popped["id"], "generation": images::drawn(), "seed": 1});
        let path = "/api/v2/generate/submit";
        let (status, answer) = call_as(&app, &other, Method::POST, path, brought).await;
        (status.as_u16(), answer["rc"].clone())
    };
    assert_eq!(steal().await, (404, json!("InvalidJobID")));
    let (status, answer) = images::submit(&app, &popped["id"], json!({})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(steal().await, (403, json!("WrongCredentials")));
    let status = images::until_done(&app, &id).await;
    assert_eq!(status["generations"][0]["worker_name"], "artist");
}

#[tokio::test]
async fn who_says_how_far_it_is_keeps_what_it_had_from_an_earlier_process() {
    let app = App::start().await;
    let id = images::ask(&app, json!({"r2": false, "params": {"steps": 40}})).await;
    let popped = images::pop(&app, json!({})).await;
    let app = app.anew().await;
    let say = async |step: u32| {
        let body = json!({"id": popped["id"], "current_step": step, "total_steps": 40});
        let key = [("apikey", app.key.as_str())];
        let path = "/api/v2/generate/progress";
        let said = request(Method::POST, path, &key, Body::from(body.to_string()));
        app.send(said).await.status
    };
    // However many come at once.
    let (first, second, third) = tokio::join!(say(10), say(10), say(10));
    assert_eq!([first, second, third], [StatusCode::OK; 3]);
    let check = app.get(&format!("/api/v2/generate/check/{id}")).await;
    let check = check.json().await;
    assert_eq!(
        (&check["processing"], &check["current_step"]),
        (&json!(1), &json!(10))
    );
    let other = images::pop(&app, json!({"name": "other"})).await;
    assert!(other["id"].is_null(), "{other}");
    let (status, answer) = images::submit(&app, &popped["id"], json!({})).await;
    assert_eq!((status, &answer["reward"]), (StatusCode::OK, &json!(9.0)));
    let status = images::until_done(&app, &id).await;
    assert_eq!(status["generations"][0]["worker_name"], "artist");
}
