//! Forms that our own worker answers: captions by a model that reads images, judgements by the safety checker.

use std::io::Cursor;
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::{ImageFormat, Rgb, RgbImage};
use muster::coordinator::state::DoorSettings;
use muster::daemon::{Engines, Post, Served, Worker};
use muster::runtime::{ModelInfo, ModelSource};
use muster::tasks::Tasks;
use muster_testing::eventually;
use serde_json::{Value, json};

use super::super::media_jobs::dial;
use super::super::support::app::{App, PATIENCE};
use super::super::support::boss::{engine, post, safety_checker};
use super::forms::{ASYNC, until};
use super::our_worker::{open, post_at};
use super::{call, post as post_json};

const BLUE: [u8; 3] = [40, 70, 220];
const PURPLE: [u8; 3] = [140, 40, 170];
const WHITE: [u8; 3] = [245, 245, 245];

/// A circle on white, in base64.
fn circle(color: [u8; 3]) -> String {
    let image = RgbImage::from_fn(256, 256, |x, y| {
        let (dx, dy) = (f64::from(x) - 128.0, f64::from(y) - 128.0);
        Rgb(if dx.hypot(dy) < 60.0 { color } else { WHITE })
    });
    let mut png = Cursor::new(Vec::new());
    image.write_to(&mut png, ImageFormat::Png).unwrap();
    STANDARD.encode(png.into_inner())
}

async fn seeing() -> (Engines, Vec<Arc<ModelInfo>>) {
    let (runtime, info) = engine().await;
    let source = ModelSource::new(concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo-vision"));
    let sees = runtime.load("sees", source, |_, _| ()).await.unwrap();
    let engines = Engines {
        safety: Some(safety_checker()),
        ..runtime.into()
    };
    (engines, vec![info, sees])
}

async fn work(posts: Vec<Post>, tasks: &Tasks) -> Worker {
    let (engines, models) = seeing().await;
    let served = Served {
        models,
        slots: 4,
        ..Served::default()
    };
    let worker = Worker::start(engines, served, posts, tasks);
    assert!(worker.connected().await);
    worker
}

fn post_on_a_socket(app: &App, name: &str) -> Post {
    let mut post = post(name, dial(app));
    post.key.clone_from(&app.key);
    post
}

async fn ask(app: &App, image: &str, forms: &[&str]) -> String {
    let forms: Vec<Value> = forms.iter().map(|name| json!({"name": name})).collect();
    let body = json!({"source_image": image, "forms": forms});
    let (status, answer) = post_json(app, ASYNC, body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

async fn results(app: &App, id: &str) -> Vec<Value> {
    let status = until(app, id, |status| status["state"] == "done").await;
    let forms = status["forms"].as_array().unwrap().iter();
    forms.map(|form| form["result"].clone()).collect()
}

#[track_caller]
fn check(found: &[Value], color: &str, is_flagged: bool) {
    let [caption, nsfw] = found else {
        panic!("not two results: {found:?}");
    };
    let text = caption["caption"].as_str().unwrap();
    assert!(text.contains(&format!("{color} circle")), "{text}");
    assert_eq!(*nsfw, json!({"nsfw": is_flagged}));
}

#[tokio::test]
async fn captions_and_judgements_are_made_by_our_worker_on_a_socket() {
    let app = App::listening(DoorSettings::default()).await;
    let worker = work(vec![post_on_a_socket(&app, "rig")], &app.tasks).await;
    let id = ask(&app, &circle(BLUE), &["caption", "nsfw"]).await;
    check(&results(&app, &id).await, "blue", false);
    let id = ask(&app, &circle(PURPLE), &["caption", "nsfw"]).await;
    check(&results(&app, &id).await, "purple", true);
    // Forms are no models of clients.
    let listed = app.get("/v1/models?type=all").await.json().await;
    let listed = listed["data"].as_array().unwrap();
    assert!(listed.iter().any(|model| model["id"] == "sees"));
    assert!(
        listed.iter().all(|model| model["id"] != "caption"),
        "{listed:?}"
    );
    let (_, user) = call(&app, Method::GET, "/api/v2/find_user", Value::Null).await;
    assert_eq!(user["records"]["fulfillment"]["interrogation"], 4, "{user}");
    assert!(worker.drain(PATIENCE).await);
}

#[tokio::test]
async fn captions_and_judgements_are_made_where_our_worker_polls() {
    let app = App::listening(DoorSettings::default()).await;
    let address = open(app.router.clone(), &app.tasks).await;
    let worker = work(vec![post_at(address, &app.key)], &app.tasks).await;
    let id = ask(&app, &circle(BLUE), &["caption", "nsfw"]).await;
    check(&results(&app, &id).await, "blue", false);
    let id = ask(&app, &circle(PURPLE), &["caption", "nsfw"]).await;
    check(&results(&app, &id).await, "purple", true);
    assert!(worker.drain(PATIENCE).await);
}

#[tokio::test]
async fn a_worker_that_goes_between_two_forms_loses_none() {
    let app = App::listening(DoorSettings::default()).await;
    let tasks = app.tasks.part();
    let id = ask(&app, &circle(BLUE), &["caption", "nsfw", "caption", "nsfw"]).await;
    let first = work(vec![post_on_a_socket(&app, "first")], &tasks).await;
    until(&app, &id, |status| {
        let forms = status["forms"].as_array().unwrap();
        forms.iter().any(|form| form["state"] == "done")
    })
    .await;
    drop(first);
    tasks.stop(PATIENCE).await;
    let _second = work(vec![post_on_a_socket(&app, "second")], &app.tasks).await;
    let found = results(&app, &id).await;
    check(&found[..2], "blue", false);
    check(&found[2..], "blue", false);
}

#[tokio::test]
async fn a_form_without_a_worker_for_it_waits_and_a_broken_image_is_refused() {
    let app = App::listening(DoorSettings::default()).await;
    let _worker = work(vec![post_on_a_socket(&app, "rig")], &app.tasks).await;
    let id = ask(&app, &circle(BLUE), &["interrogation", "caption"]).await;
    let status = until(&app, &id, |status| status["forms"][1]["state"] == "done").await;
    assert_eq!(status["forms"][0]["state"], "waiting", "{status}");
    let good = STANDARD.decode(circle(BLUE)).unwrap();
    let cut = STANDARD.encode(&good[..good.len() / 2]);
    for (image, rc) in [
        (cut.as_str(), "SourceImageUnreadable"),
        ("http://127.0.0.1:1/a.png", "SourceImageUrlInvalid"),
    ] {
        let body = json!({"source_image": image, "forms": [{"name": "caption"}]});
        let (status, answer) = post_json(&app, ASYNC, body).await;
        assert_eq!(
            (status.as_u16(), &answer["rc"]),
            (400, &json!(rc)),
            "{answer}"
        );
    }
    let removed = call(
        &app,
        Method::DELETE,
        &format!("/api/v2/interrogate/status/{id}"),
        Value::Null,
    )
    .await;
    assert_eq!(removed.0, StatusCode::OK);
    eventually("the form to be cancelled", async || {
        let path = format!("/api/v2/interrogate/status/{id}");
        let (_, status) = call(&app, Method::GET, &path, Value::Null).await;
        status["forms"][0]["state"] == "cancelled"
    })
    .await;
}
