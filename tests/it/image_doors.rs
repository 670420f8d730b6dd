//! `/v1/images/edits` and `variations`, `/v1/generate`, and image requests that are served later.

use std::io::Cursor;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::{DynamicImage, ImageFormat, Rgba, RgbaImage};
use muster::coordinator::dispatch;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster_testing::eventually;
use serde_json::{Value, json};

use super::account::{charging, money, pay};
use super::legacy::images::{bomb, path, pop, submit, upload, with};
use super::support::app::{Answer, App, request};

const EDITS: &str = "/v1/images/edits";
const GENERATIONS: &str = "/v1/images/generations";
const SIDE: u32 = 640;
const CLIENTS: usize = 64;

async fn post(app: &App, path: &str, key: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(body.to_string());
    app.send(request(Method::POST, path, &headers, body)).await
}

async fn get(app: &App, path: &str, key: &str) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    app.send(request(Method::GET, path, &headers, Body::empty()))
        .await
}

fn encoded(image: &RgbaImage, format: ImageFormat) -> Vec<u8> {
    let image = match format {
        ImageFormat::Jpeg => DynamicImage::from(image.clone()).into_rgb8().into(),
        _ => DynamicImage::from(image.clone()),
    };
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn red(width: u32, height: u32) -> RgbaImage {
    RgbaImage::from_pixel(width, height, Rgba([200, 20, 20, 255]))
}

/// Transparent on the left.
fn mask(width: u32, height: u32) -> RgbaImage {
    RgbaImage::from_fn(width, height, |x, _| {
        let alpha = if x < width / 2 { 0 } else { 255 };
        Rgba([0, 0, 0, alpha])
    })
}

fn text(image: &RgbaImage) -> String {
    STANDARD.encode(encoded(image, ImageFormat::Png))
}

/// A worker that polls paints with a model that is named so.
fn painter() -> Value {
    json!({"models": ["tiny", "tiny inpainting"]})
}

/// The next job of a worker that polls and paints.
async fn popped(app: &App) -> Value {
    eventually("an image job", async || {
        let popped = pop(app, painter()).await;
        (!popped["id"].is_null()).then_some(popped)
    })
    .await
}

async fn serve(app: &App) -> Value {
    let job = popped(app).await;
    assert!(upload(app, &job["r2_upload"]).await.is_success());
    let (status, answer) = submit(app, &job["id"], json!({"generation": "R2"})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    job
}

/// A request that a polling worker serves, and its job.
async fn served(app: &App, path: &str, body: &Value) -> (Value, Value) {
    popped_nothing(app).await;
    let (answer, job) = tokio::join!(post(app, path, &app.key, body), serve(app));
    let (status, reply) = (answer.status, answer.json().await);
    assert_eq!(status, StatusCode::OK, "{reply}");
    (reply, job)
}

/// The worker is online from here on.
async fn popped_nothing(app: &App) {
    let popped = pop(app, painter()).await;
    assert!(popped["id"].is_null());
}

fn edit(more: Value) -> Value {
    let plain = json!({"model": "tiny", "prompt": "a cat", "image": text(&red(SIDE, SIDE))});
    with(plain, more)
}

async fn fetched(app: &App, link: &Value) -> RgbaImage {
    let fetched = app.get(&path(link)).await;
    assert_eq!(fetched.status, StatusCode::OK);
    let bytes = fetched.bytes().await;
    image::load_from_memory(&bytes).unwrap().to_rgba8()
}

#[tokio::test]
async fn an_edit_brings_its_image_and_its_mask_to_a_polling_worker() {
    let app = App::start().await;
    popped_nothing(&app).await;
    let data_url = format!("data:image/png;base64,{}", text(&mask(SIDE, SIDE)));
    let body = edit(json!({"mask": {"image_url": data_url}, "strength": 0.75}));
    let work = async {
        let job = popped(&app).await;
        assert_eq!(job["source_processing"], "inpainting");
        assert_eq!(job["payload"]["denoising_strength"], 0.75);
        let source = fetched(&app, &job["source_image"]).await;
        assert!(source.get_pixel(9, 9).0[0] > 150);
        let mask = fetched(&app, &job["source_mask"]).await;
        assert_eq!(mask.dimensions(), (SIDE, SIDE));
        assert_eq!(mask.get_pixel(9, 9).0, [255; 4]);
        assert_eq!(mask.get_pixel(SIDE - 9, 9).0, [0, 0, 0, 255]);
        assert_eq!(app.sources(), 2);
        assert!(upload(&app, &job["r2_upload"]).await.is_success());
        submit(&app, &job["id"], json!({"generation": "R2"})).await
    };
    let (answer, (status, _)) = tokio::join!(post(&app, EDITS, &app.key, &body), work);
    assert_eq!((answer.status, status), (StatusCode::OK, StatusCode::OK));
    assert_eq!(answer.json().await["size"], "640x640");
    eventually("the source images to be deleted", async || {
        app.sources() == 0
    })
    .await;
}

#[tokio::test]
async fn generations_begin_with_an_image_too_and_variations_need_no_prompt() {
    let app = App::start().await;
    let plain = |more| {
        let image = text(&red(300, 200));
        with(json!({"model": "tiny", "image": image}), more)
    };
    let (reply, job) = served(&app, GENERATIONS, &plain(json!({"prompt": "a dog"}))).await;
    assert_eq!(job["source_processing"], "img2img");
    assert_eq!(reply["size"], "320x192");
    let (_, job) = served(&app, "/v1/images/variations", &plain(json!({}))).await;
    assert_eq!(
        (
            &job["payload"]["prompt"],
            &job["payload"]["denoising_strength"]
        ),
        (&json!(""), &json!(0.6))
    );
}

#[tokio::test]
async fn a_plain_request_has_its_links_at_the_top() {
    let app = App::start().await;
    let body =
        json!({"prompt": "a cat", "model": "tiny", "width": "640", "height": 640, "steps": 4});
    let (reply, job) = served(&app, "/v1/generate", &body).await;
    assert_eq!(job["payload"]["ddim_steps"], 4);
    assert_eq!(reply["status"], "completed");
    assert_eq!(reply["url"], reply["data"][0]["url"]);
    assert_eq!(reply["images"], json!([reply["url"]]));
    assert_eq!(reply["id"], reply["grid"]["job_id"]);
    let wrong = json!({"prompt": "a cat", "width": 1_000_000_000});
    let answer = post(&app, "/v1/generate", &app.key, &wrong).await;
    assert_eq!(answer.json().await["error"]["param"], "width");
}

/// Refused with 400 for this field.
async fn refused(app: &App, body: &Value, param: &str) -> String {
    let answer = post(app, EDITS, &app.key, body).await;
    let status = answer.status;
    let reply = answer.json().await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
    assert_eq!(reply["error"]["param"], param, "{reply}");
    reply["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn images_that_cannot_be_edited_are_refused_and_cost_nothing() {
    let app = App::with(charging()).await;
    popped_nothing(&app).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 2_000_000).await;
    let gif = STANDARD.encode(encoded(&red(8, 8), ImageFormat::Gif));
    let png = encoded(&red(64, 64), ImageFormat::Png);
    let jpeg = encoded(&red(64, 64), ImageFormat::Jpeg);
    // The height in its frame header says 30000.
    let wide = {
        let mut wide = jpeg.clone();
        let frame = wide.windows(2).position(|two| two == [0xff, 0xc0]).unwrap();
        wide[frame + 5..frame + 9].copy_from_slice(&[0x75, 0x30, 0x75, 0x30]);
        STANDARD.encode(wide)
    };
    for (image, part) in [
        (gif, "GIF"),
        (STANDARD.encode(&png[..png.len() / 2]), "image"),
        (STANDARD.encode(&jpeg[..jpeg.len() / 2]), "image"),
        (STANDARD.encode(bomb()), "image"),
        (wide, "pixels"),
        ("http://127.0.0.1:1/a.png".to_owned(), "image"),
        ("http://169.254.169.254/latest".to_owned(), "image"),
        ("not base64!".to_owned(), "base64"),
    ] {
        let message = refused(&app, &edit(json!({"image": image})), "image").await;
        assert!(message.contains(part), "{message}");
    }
    let small = edit(json!({"mask": text(&mask(64, 64))}));
    let message = refused(&app, &small, "mask").await;
    assert!(message.contains("640x640, found 64x64"), "{message}");
    let opaque = edit(json!({"mask": text(&red(SIDE, SIDE))}));
    assert!(refused(&app, &opaque, "mask").await.contains("transparent"));
    for (more, param) in [
        (json!({"image": null}), "image"),
        (json!({"image": []}), "image"),
        (json!({"image": [7]}), "image"),
        (json!({"image": {"file_id": "a"}}), "image"),
        (json!({"size": "0x0"}), "size"),
        (json!({"size": "1000000000x1000000000"}), "size"),
        (json!({"n": 1_000_000}), "n"),
        (json!({"strength": 2}), "strength"),
        (json!({"client_ref": "mine"}), "client_ref"),
        (json!({"async": true, "stream": true}), "stream"),
        (
            json!({"async": true, "response_format": "b64_json"}),
            "response_format",
        ),
    ] {
        refused(&app, &edit(more), param).await;
    }
    assert_eq!(money(&app, &key).await, (2_000_000, 0));
    eventually("the source images to be deleted", async || {
        app.sources() == 0
    })
    .await;
    let huge = format!("data:image/png;base64,{}", "A".repeat(100 << 20));
    let answer = post(&app, EDITS, &key, &edit(json!({"image": huge}))).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn many_clients_that_leave_free_their_jobs_and_images() {
    let app = App::start().await;
    popped_nothing(&app).await;
    let body = edit(json!({"image": text(&red(64, 64))}));
    let leaving = async {
        eventually("all jobs in the queue", async || {
            app.board.current().await.queued == CLIENTS
        })
        .await;
    };
    let asking = (0..CLIENTS).map(|_| post(&app, EDITS, &app.key, &body));
    tokio::select! {
        _ = futures_util::future::join_all(asking) => unreachable!("no worker has made them"),
        () = leaving => {}
    }
    eventually("nothing to be left", async || {
        let queued = app.board.current().await.queued;
        let left = (queued, app.sources());
        if left == (0, 0) { Ok(()) } else { Err(left) }
    })
    .await;
}

/// Asks for images that are served later; the reply.
async fn later(app: &App, key: &str, more: Value) -> Value {
    let plain = json!({"model": "tiny", "prompt": "a cat", "size": "640x640", "async": true});
    let answer = post(app, GENERATIONS, key, &with(plain, more)).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    let location = answer.header("location").unwrap().to_owned();
    let reply = answer.json().await;
    assert_eq!(reply["links"]["results"], location.as_str());
    reply
}

async fn results(app: &App, key: &str, query: &str) -> (StatusCode, Value) {
    let answer = get(app, &format!("/v1/media/results?{query}"), key).await;
    (answer.status, answer.json().await)
}

async fn results_of(app: &App, accepted: &Value) -> Value {
    let query = format!("job_id={}", accepted["job_id"].as_str().unwrap());
    let (status, results) = results(app, &app.key, &query).await;
    assert_eq!(status, StatusCode::OK, "{results}");
    results
}

#[tokio::test]
async fn images_that_are_served_later_survive_a_restart() {
    let app = App::start().await;
    popped_nothing(&app).await;
    let more = json!({
        "n": 2, "seed": 5, "output_format": "png", "client_ref": "mine", "progress_token": "hard-to-guess",
        "image": text(&red(SIDE, SIDE)),
    });
    let accepted = later(&app, &app.key, more).await;
    assert_eq!(accepted["job_ids"].as_array().unwrap().len(), 2);
    assert_eq!(accepted["is_possible"], true);
    serve(&app).await;
    let half = results_of(&app, &accepted).await;
    assert_eq!(
        (&half["state"], &half["progress"]),
        (&json!("pending"), &json!(50))
    );
    let app = app.anew().await;
    let shown = app.get("/v1/progress/hard-to-guess").await.json().await;
    assert_eq!(shown["progress"], 50);
    let job = serve(&app).await;
    assert_eq!(job["source_processing"], "img2img");
    let (_, whole) = results(&app, &app.key, "client_ref=mine").await;
    assert_eq!(
        (&whole["state"], &whole["error"]),
        (&json!("completed"), &Value::Null)
    );
    let media = whole["result"]["media"].as_array().unwrap();
    assert_eq!(media.len(), 2, "{whole}");
    for one in media {
        let fetched = app.get(&path(&one["url"])).await;
        assert_eq!(fetched.header("content-type"), Some("image/png"));
    }
    let app = app.anew().await;
    assert_eq!(results_of(&app, &accepted).await["state"], "completed");
    let stranger = app.account_with(Roles::USER, Scopes::ALL).await;
    let query = format!("job_id={}", accepted["job_id"].as_str().unwrap());
    for (key, query, status) in [
        (&stranger, query.as_str(), StatusCode::NOT_FOUND),
        (&stranger, "client_ref=mine", StatusCode::NOT_FOUND),
        (&app.key, "job_id=7", StatusCode::NOT_FOUND),
        (&app.key, "", StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(results(&app, key, query).await.0, status, "{query}");
    }
    popped_nothing(&app).await;
    let newer = later(&app, &app.key, json!({"client_ref": "mine"})).await;
    let (status, refused) = results(&app, &app.key, "client_ref=mine").await;
    assert_eq!(status, StatusCode::CONFLICT);
    let message = refused["error"]["message"].as_str().unwrap();
    let jobs = [&newer, &accepted].map(|one| one["job_id"].as_str().unwrap());
    assert!(message.ends_with(&jobs.join(", ")), "{message}");
}

#[tokio::test]
async fn a_form_that_is_sent_again_with_another_boundary_gets_the_stored_reply() {
    let app = App::start().await;
    popped_nothing(&app).await;
    let bearer = format!("Bearer {}", app.key);
    let send = async |boundary: &str, prompt: &str| {
        let kind = format!("multipart/form-data; boundary={boundary}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", kind.as_str()),
            ("idempotency-key", "one"),
        ];
        let mut body = Vec::new();
        for (name, text) in [("model", "tiny"), ("prompt", prompt), ("async", "true")] {
            let part = format!(
                "--{boundary}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n"
            );
            body.extend(part.into_bytes());
        }
        let file = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\r\n"
        );
        body.extend(file.into_bytes());
        body.extend(encoded(&red(SIDE, SIDE), ImageFormat::Png));
        body.extend(format!("\r\n--{boundary}--\r\n").into_bytes());
        app.send(request(Method::POST, EDITS, &headers, Body::from(body)))
            .await
    };
    let first = send("first", "a cat").await;
    assert_eq!(first.status, StatusCode::ACCEPTED);
    assert_eq!(first.header("idempotent-replayed"), None);
    let first = first.json().await;
    let again = send("and-another", "a cat").await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.json().await, first);
    let other = send("first", "a dog").await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_cancelled_job_closes_its_request_without_a_result() {
    let app = App::start().await;
    popped_nothing(&app).await;
    let accepted = later(&app, &app.key, json!({})).await;
    let cancel = accepted["links"]["cancel"].as_str().unwrap();
    let cancelled = post(&app, cancel, &app.key, &json!({})).await;
    assert_eq!(cancelled.status, StatusCode::OK);
    eventually("the end of the request", async || {
        let closed = results_of(&app, &accepted).await;
        let is_so = closed["state"] == "closed_without_result" && closed["error"] == "cancelled";
        if is_so { Ok(()) } else { Err(closed) }
    })
    .await;
    assert!(pop(&app, json!({})).await["id"].is_null());
}

#[tokio::test]
async fn a_model_that_nobody_serves_is_refused_before_it_is_stored() {
    let app = App::start().await;
    popped_nothing(&app).await;
    let body = json!({"model": "none", "prompt": "a cat", "async": true});
    let answer = post(&app, GENERATIONS, &app.key, &body).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_hold_of_a_request_that_is_served_later_survives_a_restart() {
    let app = App::with(charging()).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 2_500_000).await;
    popped_nothing(&app).await;
    let accepted = later(&app, &key, json!({"n": 2, "seed": 1})).await;
    assert_eq!(money(&app, &key).await, (500_000, 2_000_000));
    let app = app.anew().await;
    assert_eq!(money(&app, &key).await, (500_000, 2_000_000));
    serve(&app).await;
    serve(&app).await;
    eventually("the costs of both images", async || {
        let money = money(&app, &key).await;
        if money == (500_000, 0) {
            Ok(())
        } else {
            Err(money)
        }
    })
    .await;
    let query = format!("job_id={}", accepted["job_id"].as_str().unwrap());
    let (_, whole) = results(&app, &key, &query).await;
    assert_eq!(
        (&whole["state"], &whole["actual_micro"]),
        (&json!("completed"), &json!(2_000_000))
    );
}

/// Of 14 images of 24 MiB and 500 requests for four images, in small.
#[tokio::test]
async fn an_account_fills_its_own_share_of_storage_and_jobs_and_no_others() {
    let noise = RgbaImage::from_fn(128, 128, |x, y| {
        let mixed =
            (x.wrapping_mul(2_654_435_761) ^ y.wrapping_mul(40_503)).wrapping_mul(2_246_822_519);
        let [red, green, blue, _] = (mixed ^ (mixed >> 15)).to_le_bytes();
        Rgba([red, green, blue, 255])
    });
    let app = App::with(DoorSettings {
        source_media_bytes: 128 << 10,
        ..DoorSettings::default()
    })
    .await;
    let limits = dispatch::Settings {
        media_limit: Some(40),
        ..dispatch::Settings::default()
    };
    app.board.change_limits(limits.limits()).await;
    popped_nothing(&app).await;
    let alice = app.account_with(Roles::USER, Scopes::ALL).await;
    let order = json!({"model": "tiny", "prompt": "a cat", "size": "640x640", "async": true});
    let with_source = with(order.clone(), json!({"image": text(&noise)}));
    let mut refusals = Vec::new();
    for _ in 0..14 {
        let answer = post(&app, GENERATIONS, &alice, &with_source).await;
        if answer.status != StatusCode::ACCEPTED {
            assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
            assert!(answer.header("retry-after").is_some());
            refusals.push(answer.json().await.to_string());
        }
    }
    let stored = app.sources();
    assert_eq!(stored + refusals.len(), 14);
    assert!((1..14).contains(&stored), "{stored}");
    let said = &refusals[0];
    assert!(
        said.contains("of storage, and an account may have 1 MiB"),
        "{said}"
    );
    let four = with(order.clone(), json!({"n": 4}));
    let mut accepted = 0;
    for _ in 0..50 {
        let answer = post(&app, GENERATIONS, &alice, &four).await;
        match answer.status {
            StatusCode::ACCEPTED => accepted += 1,
            status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS),
        }
    }
    assert_eq!(accepted, (40 - stored) / 4);
    let bob = post(&app, GENERATIONS, &app.key, &with_source).await;
    assert_eq!(bob.status, StatusCode::ACCEPTED);
    assert_eq!(app.sources(), stored + 1);
}
