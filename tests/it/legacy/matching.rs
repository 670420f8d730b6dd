//! Which worker is given what, and what is held against it: whatever is the same for texts, images and questions.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{call, post};
use crate::support::app::App;

const IMAGES: &str = "/api/v2/generate";
const FORMS: &str = "/api/v2/interrogate";
const NEWEST: &str = "AI Horde Worker reGen:13:test";
/// One pixel each.
const WEBP: &str = "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==";
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn ask_image(app: &App, more: Value) -> (StatusCode, Value) {
    let plain = json!({"prompt": "a cat", "models": ["tiny"]});
    post(app, &format!("{IMAGES}/async"), with(plain, more)).await
}

async fn ask_forms(app: &App, forms: &[&str]) -> (StatusCode, Value) {
    let forms: Vec<Value> = forms.iter().map(|name| json!({"name": name})).collect();
    let body = json!({"source_image": PNG, "forms": forms});
    post(app, &format!("{FORMS}/async"), body).await
}

async fn pop_image(app: &App, more: Value) -> (StatusCode, Value) {
    let plain = json!({
        "name": "artist", "models": ["tiny"], "bridge_agent": NEWEST, "max_pixels": 1_048_576,
    });
    post(app, &format!("{IMAGES}/pop"), with(plain, more)).await
}

async fn pop_forms(app: &App, more: Value) -> (StatusCode, Value) {
    let plain = json!({"name": "looker", "forms": ["caption"], "amount": 5});
    post(app, &format!("{FORMS}/pop"), with(plain, more)).await
}

async fn bring_image(app: &App, id: &Value) -> (StatusCode, Value) {
    let body = json!({"id": id, "generation": WEBP, "seed": 1});
    post(app, &format!("{IMAGES}/submit"), body).await
}

async fn worker(app: &App, name: &str) -> Value {
    let path = format!("/api/v2/workers/name/{name}");
    call(app, Method::GET, &path, Value::Null).await.1
}

fn speed_of(worker: &Value) -> (f64, String) {
    let told = worker["performance"].as_str().unwrap();
    let (number, unit) = told.split_once(' ').unwrap();
    (number.parse().unwrap(), unit.to_owned())
}

#[tokio::test]
async fn painters_are_measured_in_pixelsteps_and_lookers_in_forms() {
    let app = App::start().await;
    ask_image(
        &app,
        json!({"params": {"n": 2, "width": 1024, "steps": 50}}),
    )
    .await;
    let (_, popped) = pop_image(&app, json!({"amount": 2, "max_pixels": 4_194_304})).await;
    assert_eq!(popped["ids"].as_array().unwrap().len(), 2, "{popped}");
    for id in popped["ids"].as_array().unwrap() {
        assert_eq!(bring_image(&app, id).await.0, StatusCode::OK);
    }
    let artist = worker(&app, "artist").await;
    let megapixelsteps = 2.0 * 1024.0 * 512.0 * 50.0 / 1e6;
    assert_eq!(artist["megapixelsteps_generated"], json!(megapixelsteps));
    let (speed, unit) = speed_of(&artist);
    assert_eq!(unit, "megapixelsteps per second");
    assert!(speed > 0.0, "{artist}");

    ask_forms(&app, &["caption", "caption"]).await;
    let (_, popped) = pop_forms(&app, json!({})).await;
    for form in popped["forms"].as_array().unwrap() {
        let body = json!({"id": form["id"], "result": "a cat"});
        let (status, told) = post(&app, &format!("{FORMS}/submit"), body).await;
        assert_eq!(status, StatusCode::OK, "{told}");
    }
    let looker = worker(&app, "looker").await;
    assert_eq!(speed_of(&looker).1, "forms per second", "{looker}");
    assert_eq!(looker["requests_fulfilled"], 2);
}

#[tokio::test]
async fn forms_that_wait_and_who_looks_at_them_are_in_the_figures() {
    let app = App::start().await;
    ask_forms(&app, &["caption", "nsfw"]).await;
    pop_forms(&app, json!({"forms": ["interrogation"], "threads": 3})).await;
    let load = app.get("/api/v2/status/performance").await.json().await;
    let figures = |name: &str| load[name].clone();
    assert_eq!(figures("queued_forms"), json!(2.0), "{load}");
    assert_eq!(figures("interrogator_count"), json!(1));
    assert_eq!(figures("interrogator_thread_count"), json!(3));
}
