//! Expired requests. Instead of waiting ten minutes, the tests store requests again with little time left, as if by an
//! earlier process, and load them.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use muster::coordinator::clock::wall_clock;
use muster::coordinator::names::Names;
use muster::coordinator::storage::{Dues, RequestRow};
use muster::protocol::job::{JobId, RequestId, UnixMillis};
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{ask, call, forms, images, pop, post};
use crate::support::app::App;

const TEXT: &str = "/api/v2/generate/text/status";
const IMAGE: &str = "/api/v2/generate/status";
const SENT_TEXT: &str = "/api/v2/generate/text/request";
const SENT_IMAGE: &str = "/api/v2/generate/request";
const CHECK: &str = "/api/v2/generate/check";
const FORMS: &str = "/api/v2/interrogate/status";
const LITTLE: Duration = Duration::from_millis(800);

/// The stored row of a request.
async fn row(app: &App, id: &str) -> RequestRow {
    let open = app.store.open_requests(wall_clock()).await.unwrap();
    let mut rows = open.into_iter().map(|open| open.request);
    let id: uuid::Uuid = id.parse().unwrap();
    rows.find(|row| row.id == RequestId(id)).unwrap()
}

/// The same as another request, that has time until then.
async fn again(app: &App, row: RequestRow, until: UnixMillis) -> String {
    let mut body: Value = serde_json::from_str(&row.body).unwrap();
    for job in body["jobs"].as_array_mut().unwrap() {
        *job = json!(JobId::random());
    }
    let id = RequestId::random();
    let hurried = RequestRow {
        id,
        body: body.to_string(),
        expires_at: until,
        ..row
    };
    app.store.accept(hurried, Dues::default()).await.unwrap();
    let names = Names::default();
    let taken_up = app.requests.restore(&names, &app.media, Duration::ZERO);
    taken_up.await.unwrap();
    id.to_string()
}

async fn asked(app: &App, path: &str, body: Value) -> String {
    let (status, answer) = post(app, path, body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

/// Checks that a request is deleted after this many minutes.
async fn goes_stale(app: &App, id: &str, minutes: i64, paths: &[&str]) {
    let row = row(app, id).await;
    // The two are not read from one clock's look.
    let lives = row.expires_at.0 - row.accepted_at.0;
    assert!((lives - minutes * 60_000).abs() < 1000, "{lives} ms");
    let cancelled = call(
        app,
        Method::DELETE,
        &format!("{}/{id}", paths[0]),
        Value::Null,
    )
    .await;
    assert_eq!(cancelled.0, StatusCode::OK);
    let end = wall_clock().after(LITTLE);
    let short = again(app, row, end).await;
    for path in paths {
        let answer = eventually("the end of the request", async || {
            let at = format!("{path}/{short}");
            let (status, answer) = call(app, Method::GET, &at, Value::Null).await;
            // By the clock that says when its time is over.
            let is_over = wall_clock() >= end;
            assert!(is_over || status == StatusCode::OK, "{status} {answer}");
            match status {
                StatusCode::NOT_FOUND => Ok(answer),
                _ => Err(answer),
            }
        })
        .await;
        assert_eq!(answer["rc"], "RequestNotFound", "{answer}");
    }
    let at = format!("{}/{short}", paths[0]);
    let (status, _) = call(app, Method::DELETE, &at, Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_stale_text_is_gone_and_given_to_nobody() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    goes_stale(&app, &id, 20, &[TEXT, SENT_TEXT]).await;
    assert_eq!(pop(&app, "w1").await["id"], Value::Null);
}

#[tokio::test]
async fn a_stale_image_is_gone() {
    let app = App::start().await;
    let body = json!({"prompt": "a pine", "models": ["tiny"]});
    let id = asked(&app, images::ASYNC, body).await;
    goes_stale(&app, &id, 10, &[IMAGE, CHECK, SENT_IMAGE]).await;
}

#[tokio::test]
async fn a_stale_question_is_gone() {
    let app = App::start().await;
    let body = json!({"source_image": forms::PNG, "forms": [{"name": "caption"}]});
    let id = asked(&app, forms::ASYNC, body).await;
    goes_stale(&app, &id, 20, &[FORMS]).await;
}

#[tokio::test]
async fn a_text_that_was_popped_before_its_time_was_over_is_taken_and_read_after_it() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let row = row(&app, &id).await;
    call(&app, Method::DELETE, &format!("{TEXT}/{id}"), Value::Null).await;
    let short = again(&app, row, wall_clock().after(LITTLE)).await;
    let popped = pop(&app, "w1").await;
    sleep(LITTLE).await;
    let brought = json!({"id": popped["id"], "generation": " in time"});
    let (status, told) = post(&app, super::SUBMIT, brought).await;
    assert_eq!(status, StatusCode::OK, "{told}");
    let read = super::until(&app, &short, |status| status["done"] == true).await;
    assert_eq!(read["generations"][0]["text"], " in time");
}

#[tokio::test]
async fn what_nobody_can_read_any_more_has_failed_and_is_not_gone() {
    let app = App::start().await;
    let asked_now = ask(&app, json!({})).await;
    let (row, id) = (row(&app, &asked_now).await, RequestId::random());
    let broken = RequestRow {
        id,
        body: "{".to_owned(),
        ..row
    };
    app.store.accept(broken, Dues::default()).await.unwrap();
    let app = app.anew().await;
    let at = format!("{TEXT}/{id}");
    let (code, status) = call(&app, Method::GET, &at, Value::Null).await;
    assert_eq!(code, StatusCode::OK, "{status}");
    assert_eq!(
        (&status["done"], &status["faulted"]),
        (&json!(true), &json!(true))
    );
    let whole = format!("{TEXT}/{asked_now}");
    let (_, status) = call(&app, Method::GET, &whole, Value::Null).await;
    assert_eq!(status["waiting"], 1);
}
