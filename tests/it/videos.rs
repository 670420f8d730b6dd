//! `/v1/videos/generations`, OpenAI's `/v1/videos`, and music by public media workers on sockets.

use std::future::pending;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster::coordinator::dispatch::MOST_ATTEMPTS;
use muster::media::image::{Channels, Pixels, Size};
use muster::media::video::Mp4Writer;
use muster_testing::eventually;
use serde_json::{Value, json};

use super::legacy::images::{path, png, with};
use super::support::app::{Answer, App, request};
use super::support::rig::Rig;

const GENERATIONS: &str = "/v1/videos/generations";
const VIDEOS: &str = "/v1/videos";

/// A gray video.
fn mp4(width: u32, height: u32, frames: u32, rate: u32) -> Vec<u8> {
    let size = Size { width, height };
    let mut writer = Mp4Writer::new(size, f64::from(rate)).unwrap();
    let gray = vec![90; (width * height * 3) as usize];
    let frame = Pixels::new(size, Channels::Rgb, gray).unwrap();
    for _ in 0..frames {
        writer.push(&frame).unwrap();
    }
    writer.finish().unwrap()
}

/// A public worker that films and plays.
async fn studio(app: &App) -> Rig {
    let mut rig = app.dial().await;
    rig.send(json!({
        "apikey": app.key, "name": "studio", "models": ["films"], "job_types": ["video"],
        "bridge_agent": "studio/1",
    }))
    .await;
    assert_eq!(rig.next().await["type"], "ready");
    rig
}

async fn send(app: &App, method: Method, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = match body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    };
    app.send(request(method, path, &headers, body)).await
}

async fn post(app: &App, path: &str, more: Value) -> Answer {
    let body = with(json!({"model": "films", "prompt": "a river"}), more);
    send(app, Method::POST, path, &body).await
}

async fn put(app: &App, job: &Value, bytes: Vec<u8>) -> StatusCode {
    let slot = &job["upload"][0];
    let kind = slot["content_type"].as_str().unwrap();
    let headers = [("content-type", kind)];
    let request = request(Method::PUT, &path(&slot["put_url"]), &headers, bytes.into());
    app.send(request).await.status
}

async fn done(rig: &mut Rig, job: &Value) {
    let results = json!([{"index": 0, "seed": 900, "sha256": "ab".repeat(32)}]);
    rig.send(json!({"type": "done", "id": job["id"], "results": results}))
        .await;
}

async fn film(app: &App, rig: &mut Rig) -> Value {
    let job = rig.job().await;
    let file = mp4(512, 256, 24, 12);
    assert_eq!(put(app, &job, file).await, StatusCode::OK);
    done(rig, &job).await;
    job
}

#[tokio::test]
async fn a_public_worker_makes_a_video() {
    let app = App::start().await;
    let mut rig = studio(&app).await;
    let image = json!(format!("data:image/png;base64,{}", png(128, 64)));
    let more = json!({
        "seconds": 2, "fps": 12, "size": "512x256", "seed": 7, "steps": 6, "negative_prompt": "rain",
        "image": image,
    });
    let (answer, job) = tokio::join!(post(&app, GENERATIONS, more), film(&app, &mut rig));
    assert_eq!(job["job_type"], "video");
    let payload = &job["payload"];
    for (key, expected) in [
        ("prompt", json!("a river")),
        ("negative_prompt", json!("rain")),
        ("ext", json!("mp4")),
        ("width", json!(512)),
        ("frames", json!(24)),
        ("length", json!(24)),
        ("video_length", json!(24)),
        ("fps", json!(12)),
        ("steps", json!(6)),
        ("seeds", json!([7])),
    ] {
        assert_eq!(payload[key], expected, "{key}");
    }
    assert!(payload["source_image_url"].is_string());
    assert_eq!(job["upload"][0]["content_type"], "video/mp4");
    let reply = answer.json().await;
    assert_eq!(reply["data"][0]["seed"], 900, "{reply}");
    let fetched = app.get(&path(&reply["data"][0]["url"])).await;
    assert_eq!(fetched.header("content-type"), Some("video/mp4"));
    assert_eq!(fetched.bytes().await, mp4(512, 256, 24, 12));
    eventually("the source image to be deleted", async || {
        app.sources() == 0
    })
    .await;
}

async fn shown(app: &App, id: &str) -> Value {
    let answer = send(app, Method::GET, &format!("{VIDEOS}/{id}"), &Value::Null).await;
    assert_eq!(answer.status, StatusCode::OK);
    answer.json().await
}

#[tokio::test]
async fn a_video_is_created_shown_downloaded_listed_and_deleted() {
    let app = App::start().await;
    let mut rig = studio(&app).await;
    let created = post(&app, VIDEOS, json!({"seconds": "4"})).await;
    assert_eq!(created.status, StatusCode::OK);
    let created = created.json().await;
    assert_eq!(
        (&created["object"], &created["seconds"], &created["size"]),
        (&json!("video"), &json!("4"), &Value::Null)
    );
    let id = created["id"].as_str().unwrap().to_owned();
    let job = rig.job().await;
    rig.send(json!({"type": "progress", "id": job["id"], "pct": 40}))
        .await;
    eventually("the progress", async || {
        let video = shown(&app, &id).await;
        let is_so = video["status"] == "in_progress" && video["progress"] == 40;
        if is_so { Ok(()) } else { Err(video) }
    })
    .await;
    let content = format!("{VIDEOS}/{id}/content");
    let early = send(&app, Method::GET, &content, &Value::Null).await;
    assert_eq!(early.status, StatusCode::CONFLICT);
    let side = |name: &str| job["payload"][name].as_u64().unwrap() as u32;
    let file = mp4(side("width"), side("height"), side("frames"), side("fps"));
    assert_eq!(put(&app, &job, file.clone()).await, StatusCode::OK);
    done(&mut rig, &job).await;
    eventually("the video", async || {
        let video = shown(&app, &id).await;
        video["status"] == "completed" && video["size"] == "768x512"
    })
    .await;
    drop(rig);
    let app = app.anew().await;
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str()), ("range", "bytes=0-7")];
    let part = request(Method::GET, &content, &headers, Body::empty());
    let part = app.send(part).await;
    assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.bytes().await, file[..8]);
    let listed = send(&app, Method::GET, VIDEOS, &Value::Null)
        .await
        .json()
        .await;
    assert_eq!(listed["first_id"], id.as_str(), "{listed}");
    assert_eq!(listed["has_more"], false);
    let stranger = app
        .account_with(
            muster::coordinator::values::Roles::USER,
            muster::coordinator::values::Scopes::ALL,
        )
        .await;
    let bearer = format!("Bearer {stranger}");
    let headers = [("authorization", bearer.as_str())];
    let foreign = request(Method::GET, &content, &headers, Body::empty());
    assert_eq!(app.send(foreign).await.status, StatusCode::NOT_FOUND);
    let remix = format!("{VIDEOS}/{id}/remix");
    let remix = send(&app, Method::POST, &remix, &json!({"prompt": "a lake"})).await;
    assert_eq!(remix.status, StatusCode::NOT_IMPLEMENTED);
    let one = format!("{VIDEOS}/{id}");
    let deleted = send(&app, Method::DELETE, &one, &Value::Null).await;
    assert_eq!(deleted.json().await["deleted"], true);
    for method in [Method::GET, Method::DELETE] {
        let gone = send(&app, method, &one, &Value::Null).await;
        assert_eq!(gone.status, StatusCode::NOT_FOUND);
    }
    let app = app.anew().await;
    let listed = send(&app, Method::GET, VIDEOS, &Value::Null)
        .await
        .json()
        .await;
    assert_eq!(listed["data"], json!([]));
}

#[tokio::test]
async fn a_worker_that_uploads_another_type_or_nothing_makes_no_video() {
    let app = App::start().await;
    let mut rig = studio(&app).await;
    for sent in [Some(STANDARD.decode(png(8, 8)).unwrap()), None] {
        let work = async {
            // Once more by the same worker, as there is no other.
            for _ in 0..2 {
                let job = rig.job().await;
                if let Some(bytes) = sent.clone() {
                    let status = put(&app, &job, bytes).await;
                    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
                }
                done(&mut rig, &job).await;
            }
        };
        let (answer, ()) = tokio::join!(post(&app, GENERATIONS, json!({})), work);
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    }
}

#[tokio::test]
async fn a_failed_video_says_why() {
    let app = App::start().await;
    let mut rig = studio(&app).await;
    let created = post(&app, VIDEOS, json!({})).await.json().await;
    let id = created["id"].as_str().unwrap();
    assert_eq!(created["error"], Value::Null);
    let work = async {
        for _ in 0..MOST_ATTEMPTS {
            let job = rig.job().await;
            done(&mut rig, &job).await;
        }
        pending::<Value>().await
    };
    let end = eventually("the end of the video", async || {
        let video = shown(&app, id).await;
        (video["status"] == "failed").then_some(video)
    });
    let failed = tokio::select! {
        failed = end => failed,
        failed = work => failed,
    };
    let error = &failed["error"];
    let code = error["code"].as_str().unwrap();
    assert!(["worker_failed", "empty_result"].contains(&code), "{error}");
    let message = error["message"].as_str().unwrap();
    let cause = "making the video failed: the worker ";
    assert!(message.starts_with(cause), "{message}");
    assert!(message.ends_with("; send the request again"), "{message}");
}

#[tokio::test]
async fn videos_that_no_model_makes_are_refused() {
    let app = App::start().await;
    let answer = post(&app, GENERATIONS, json!({})).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    let _painter = super::legacy::images::painter(&app).await;
    for path in [GENERATIONS, VIDEOS] {
        let unknown = post(&app, path, json!({"model": "none"})).await;
        assert_eq!(unknown.status, StatusCode::NOT_FOUND, "{path}");
    }
    for (more, param) in [
        (json!({"seconds": 1_000_000_000}), "seconds"),
        (json!({"size": "0x0"}), "size"),
        (json!({"n": 2}), "n"),
        (json!({"image": "http://127.0.0.1/a.png"}), "image"),
    ] {
        let refused = post(&app, GENERATIONS, more).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        assert_eq!(refused.json().await["error"]["param"], param);
    }
}

#[tokio::test]
async fn a_media_worker_that_negotiates_plays_music() {
    let app = App::start().await;
    let mut rig = app.dial().await;
    // Without the extensions audio needs a managed profile.
    rig.send(json!({
        "apikey": app.key, "name": "player", "models": ["films"], "job_types": ["audio"],
        "bridge_agent": "player/1", "ext": {"v": 1, "want": []},
    }))
    .await;
    assert_eq!(rig.next().await["type"], "ready");
    let work = async {
        let job = rig.job().await;
        let payload = &job["payload"];
        assert_eq!(
            (&job["job_type"], &payload["ext"]),
            (&json!("audio"), &json!("wav"))
        );
        assert_eq!(
            (&payload["time_signature"], &payload["inference_steps"]),
            (&json!("3"), &json!(8))
        );
        let sound = muster::media::sound::Sound::new(16_000, 1, vec![0.1; 32_000]).unwrap();
        let wav =
            muster::media::sound::to_wav(&sound, muster::media::sound::WavFormat::Int16).unwrap();
        assert_eq!(put(&app, &job, wav).await, StatusCode::OK);
        done(&mut rig, &job).await;
    };
    let more = json!({"seconds": 2, "time_signature": "3/4"});
    let (answer, ()) = tokio::join!(post(&app, "/v1/audio/generations", more), work);
    let reply = answer.json().await;
    let fetched = app.get(&path(&reply["data"][0]["url"])).await;
    assert_eq!(fetched.header("content-type"), Some("audio/wav"), "{reply}");
}
