//! `POST /v1/images/generations`, served by workers that poll and by media workers on sockets.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster::coordinator::values::{Roles, Scopes};
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::account::{charging, money, pay};
use super::legacy::images::{painter, painter_with, path, pop, submit, upload, webp, with};
use super::support::app::{Answer, App, request};
use super::support::puppet::Puppet;
use super::support::rig::Rig;

const ROUTE: &str = "/v1/images/generations";

async fn generate(app: &App, more: Value) -> Answer {
    generate_as(app, &app.key, more).await
}

async fn generate_as(app: &App, key: &str, more: Value) -> Answer {
    let body = with(
        json!({"model": "tiny", "prompt": "a cat", "size": "640x640"}),
        more,
    );
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    app.send(request(
        Method::POST,
        ROUTE,
        &headers,
        Body::from(body.to_string()),
    ))
    .await
}

/// Polls until a job comes.
async fn popped(app: &App) -> Value {
    eventually("an image job", async || {
        let popped = pop(app, json!({})).await;
        (!popped["id"].is_null()).then_some(popped)
    })
    .await
}

/// Serves as many jobs as a polling worker.
async fn poll(app: &App, jobs: usize) -> Vec<Value> {
    let mut served = Vec::new();
    for _ in 0..jobs {
        let job = popped(app).await;
        assert!(upload(app, &job["r2_upload"]).await.is_success());
        let (status, answer) = submit(app, &job["id"], json!({"generation": "R2"})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        served.push(job);
    }
    served
}

/// One request that a polling worker serves.
async fn polled(app: &App, more: Value) -> (Value, Vec<Value>) {
    pop(app, json!({})).await;
    let jobs = more["n"].as_u64().unwrap_or(1) as usize;
    let (answer, served) = tokio::join!(generate(app, more), poll(app, jobs));
    let (status, body) = (answer.status, answer.json().await);
    assert_eq!(status, StatusCode::OK, "{body}");
    (body, served)
}

async fn paint(app: &App, rig: &mut Rig) -> Value {
    let job = rig.job().await;
    let sent = upload(app, &job["upload"][0]["put_url"]).await;
    assert!(sent.is_success());
    let results = json!([{"index": 0, "seed": 900, "sha256": "ab".repeat(32)}]);
    rig.send(json!({"type": "done", "id": job["id"], "results": results}))
        .await;
    job
}

/// The field that a refusal is about.
async fn refused(app: &App, more: Value, status: StatusCode) -> String {
    let answer = generate(app, more.clone()).await;
    assert_eq!(answer.status, status, "{more}");
    let body = answer.json().await;
    body["error"]["param"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test]
async fn a_polling_worker_makes_an_image_for_openais_route() {
    let app = App::start().await;
    let more = json!({
        "negative_prompt": "a dog", "steps": 12, "cfg_scale": 3.5, "sampler": "euler",
        "scheduler": "karras", "seed": 42,
    });
    let (reply, served) = polled(&app, more).await;
    assert_eq!(
        (&served[0]["model"], &served[0]["ttl"]),
        (&json!("tiny"), &json!(150))
    );
    let payload = &served[0]["payload"];
    assert_eq!(payload["prompt"], "a cat###a dog");
    assert_eq!(
        (&payload["seed"], &payload["width"], &payload["ddim_steps"]),
        (&json!("42"), &json!(640), &json!(12))
    );
    assert_eq!(
        (
            &payload["sampler_name"],
            &payload["karras"],
            &payload["cfg_scale"]
        ),
        (&json!("k_euler"), &json!(true), &json!(3.5))
    );
    let image = &reply["data"][0];
    assert_eq!(
        (&image["revised_prompt"], &image["seed"]),
        (&json!("a cat"), &json!(77))
    );
    let grid = &reply["grid"];
    assert_eq!(
        (&grid["worker"], &grid["model"]),
        (&json!("artist"), &json!("tiny"))
    );
    let link = image["url"].as_str().unwrap();
    assert!(
        link.contains("until=") && link.contains("signature="),
        "{link}"
    );
    let fetched = app.get(&path(&image["url"])).await;
    assert_eq!(fetched.header("content-type"), Some("image/webp"));
    assert_eq!(fetched.bytes().await, webp(640, 640));
}

#[tokio::test]
async fn an_image_has_the_type_that_was_asked_for_as_link_and_as_base64() {
    let app = App::start().await;
    let types = [
        ("webp", image::ImageFormat::WebP),
        ("png", image::ImageFormat::Png),
        ("jpeg", image::ImageFormat::Jpeg),
    ];
    for (name, format) in types {
        let (reply, _) = polled(&app, json!({"output_format": name})).await;
        let fetched = app.get(&path(&reply["data"][0]["url"])).await;
        let kind = format!("image/{name}");
        assert_eq!(fetched.header("content-type"), Some(kind.as_str()));
        let linked = fetched.bytes().await;
        let both = reply["data"][0]["b64_json"].as_str().unwrap();
        assert_eq!(STANDARD.decode(both).unwrap(), linked);
        let more = json!({"output_format": name, "response_format": "b64_json"});
        let (reply, _) = polled(&app, more).await;
        assert!(reply["data"][0].get("url").is_none() && reply["output_format"] == name);
        let inline = reply["data"][0]["b64_json"].as_str().unwrap();
        for bytes in [linked.to_vec(), STANDARD.decode(inline).unwrap()] {
            assert_eq!(image::guess_format(&bytes).unwrap(), format);
            let picture = image::load_from_memory(&bytes).unwrap();
            assert_eq!((picture.width(), picture.height()), (640, 640));
        }
    }
}

#[tokio::test]
async fn several_images_are_several_jobs_with_seeds_of_their_own() {
    let app = App::start().await;
    let (reply, served) = polled(&app, json!({"n": 3, "seed": 7})).await;
    assert_eq!(reply["data"].as_array().unwrap().len(), 3);
    let mut seeds: Vec<_> = served
        .iter()
        .map(|job| job["payload"]["seed"].clone())
        .collect();
    seeds.sort_by_key(Value::to_string);
    assert_eq!(seeds, ["7", "8", "9"]);
    let links = reply["data"].as_array().unwrap().iter();
    for image in links {
        let fetched = app.get(&path(&image["url"])).await;
        assert_eq!(fetched.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_media_worker_on_a_socket_makes_an_image_for_openais_route() {
    let app = App::start().await;
    let mut rig = painter(&app).await;
    // Without a model the one that is online is taken.
    let more = json!({"model": null, "seed": 5_000_000_000_u64, "sampler": "k_euler_a"});
    let (answer, job) = tokio::join!(generate(&app, more), paint(&app, &mut rig));
    let payload = &job["payload"];
    assert_eq!(
        (&payload["prompt"], &payload["seed"]),
        (&json!("a cat"), &json!(5_000_000_000_u64))
    );
    assert_eq!(payload["sampler_name"], "euler_ancestral");
    let jobs = answer.header("x-job-id").unwrap().to_owned();
    let reply = answer.json().await;
    assert_eq!(
        (&reply["data"][0]["seed"], &reply["grid"]["worker"]),
        (&json!(900), &json!("painter"))
    );
    assert_eq!(reply["grid"]["job_id"], jobs);
    let fetched = app.get(&path(&reply["data"][0]["url"])).await;
    assert_eq!(fetched.bytes().await, webp(640, 640));
    assert_eq!(
        refused(
            &app,
            json!({"scheduler": "karras"}),
            StatusCode::BAD_REQUEST
        )
        .await,
        "scheduler"
    );
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_images() {
    let app = App::start().await;
    let mut rig = painter_with(&app, &["cancel2"]).await;
    let cancelled = async {
        let job = rig.job().await;
        job["id"].clone()
    };
    let id = tokio::select! {
        _ = generate(&app, json!({})) => unreachable!("no worker has made it"),
        id = cancelled => id,
    };
    let cancel = timeout(Duration::from_secs(1), rig.frame()).await.unwrap();
    assert_eq!(
        (&cancel["type"], &cancel["id"], &cancel["why"]),
        (&json!("cancel"), &id, &json!("client"))
    );
    drop(rig);
    // A job that waits for a polling worker is given to none.
    pop(&app, json!({})).await;
    leave(&app, &app.key).await;
    assert!(pop(&app, json!({})).await["id"].is_null());
}

/// Asks for an image and leaves while its job waits.
async fn leave(app: &App, key: &str) {
    let queued = async |jobs: usize| {
        eventually("the jobs in the queue", async || {
            let queued = app.board.current().await.queued;
            if queued == jobs { Ok(()) } else { Err(queued) }
        })
        .await;
    };
    tokio::select! {
        _ = generate_as(app, key, json!({})) => unreachable!("no worker has made it"),
        () = queued(1) => {}
    }
    queued(0).await;
}

#[tokio::test]
async fn a_failed_image_cancels_the_others_and_fails_the_request() {
    let app = App::start().await;
    pop(&app, json!({})).await;
    let censored = async {
        let first = popped(&app).await;
        let remarks = json!([{"type": "censorship", "value": "nsfw"}]);
        let (status, _) = submit(&app, &first["id"], json!({"gen_metadata": remarks})).await;
        assert_eq!(status, StatusCode::OK);
    };
    let (answer, ()) = tokio::join!(generate(&app, json!({"n": 2, "seed": 1})), censored);
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let body = answer.json().await;
    assert_eq!(body["error"]["code"], "content_policy_violation");
    eventually("the end of the other job", async || {
        app.board.current().await.queued == 0
    })
    .await;
    assert!(pop(&app, json!({})).await["id"].is_null());
}

#[tokio::test]
async fn without_a_worker_the_status_says_why() {
    let app = App::start().await;
    let check = async |more: Value, status: StatusCode, param: &str| {
        assert_eq!(refused(&app, more.clone(), status).await, param, "{more}");
    };
    check(json!({}), StatusCode::SERVICE_UNAVAILABLE, "").await;
    check(json!({"model": null}), StatusCode::SERVICE_UNAVAILABLE, "").await;
    let _texts = Puppet::connect(&app.board).await;
    check(json!({}), StatusCode::BAD_REQUEST, "model").await;
    check(json!({"model": "none"}), StatusCode::NOT_FOUND, "model").await;
    check(json!({"model": null}), StatusCode::SERVICE_UNAVAILABLE, "").await;
}

#[tokio::test]
async fn wrong_fields_are_refused_by_their_names() {
    let app = App::start().await;
    for (more, param) in [
        (json!({"size": "1000x1000"}), "size"),
        (json!({"size": "1024x4112"}), "size"),
        (json!({"n": 0}), "n"),
        (json!({"n": 11}), "n"),
        (json!({"prompt": null}), "prompt"),
        (json!({"output_format": "gif"}), "output_format"),
        (json!({"background": "transparent"}), "background"),
        (json!({"steps": 501}), "steps"),
        (json!({"partial_images": 1}), "partial_images"),
        (json!({"siez": "64x64"}), "siez"),
    ] {
        assert_eq!(refused(&app, more, StatusCode::BAD_REQUEST).await, param);
    }
}

#[tokio::test]
async fn fields_without_an_effect_are_named_in_a_header() {
    let app = App::start().await;
    pop(&app, json!({})).await;
    let more = json!({"quality": "high", "safety_identifier": "me", "n": 5});
    let (answer, served) = tokio::join!(generate(&app, more), poll(&app, 5));
    assert_eq!((answer.status, served.len()), (StatusCode::OK, 5));
    let ignored = answer.header("x-ignored-fields");
    assert_eq!(ignored, Some("quality, safety_identifier"));
    let (answer, _) = tokio::join!(generate(&app, json!({})), poll(&app, 1));
    assert_eq!(answer.header("x-ignored-fields"), None);
}

#[tokio::test]
async fn a_stream_ends_with_a_completed_event_for_each_image() {
    let app = App::start().await;
    pop(&app, json!({})).await;
    let more =
        json!({"stream": true, "partial_images": 2, "n": 2, "output_format": "png", "seed": 1});
    let streamed = async { generate(&app, more).await };
    let (answer, _) = tokio::join!(streamed, poll(&app, 2));
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let text = answer.text().await;
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    assert_eq!(events.len(), 2, "{text}");
    assert_eq!(
        text.matches("event: image_generation.completed\n").count(),
        2
    );
    for event in events {
        assert_eq!(event["type"], "image_generation.completed");
        let bytes = STANDARD
            .decode(event["b64_json"].as_str().unwrap())
            .unwrap();
        assert_eq!(
            image::guess_format(&bytes).unwrap(),
            image::ImageFormat::Png
        );
    }
}

#[tokio::test]
async fn an_image_costs_its_price_and_the_hold_of_a_failed_one_is_given_back() {
    let app = App::with(charging()).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 2_500_000).await;
    pop(&app, json!({})).await;
    let body = json!({"n": 2, "seed": 1});
    let work = async {
        let job = popped(&app).await;
        assert_eq!(money(&app, &key).await, (500_000, 2_000_000));
        let (status, _) = submit(&app, &job["id"], json!({})).await;
        assert_eq!(status, StatusCode::OK);
        poll(&app, 1).await
    };
    let (answer, _) = tokio::join!(generate_as(&app, &key, body), work);
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(money(&app, &key).await, (500_000, 0));
    let poor = generate_as(&app, &key, json!({})).await;
    assert_eq!(poor.status, StatusCode::PAYMENT_REQUIRED);
    pay(&app, &key, 500_000).await;
    leave(&app, &key).await;
    eventually("the hold to be given back", async || {
        let money = money(&app, &key).await;
        if money == (1_000_000, 0) {
            Ok(())
        } else {
            Err(money)
        }
    })
    .await;
}
