//! Images of the poll API: from the request to the link, and everything that may happen between.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster::coordinator::accounts::{Caller, Payer};
use muster::coordinator::clock::wall_clock;
use muster::coordinator::kudos::HOUSE;
use muster::coordinator::media::Key;
use muster::coordinator::names::Names;
use muster::coordinator::people::Development;
use muster::coordinator::requests::Order;
use muster::coordinator::requests::orders::Asked;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{AccountId, JobId, Kudos, RequestId};
use muster::protocol::legacy::image::request::GenerationInputImage;
use muster::protocol::legacy::{Body as _, Code};
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{call, call_as, post};
use crate::support::app::{App, BASE, PATIENCE, request};
use crate::support::rig::Rig;

pub const ASYNC: &str = "/api/v2/generate/async";
const POP: &str = "/api/v2/generate/pop";
const SUBMIT: &str = "/api/v2/generate/submit";
const PROGRESS: &str = "/api/v2/generate/progress";
const NEWEST: &str = "AI Horde Worker reGen:13:test";

/// One pixel each.
/// Nothing shines through.
const OPAQUE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
pub const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// A worker's image, with the size that most requests here ask for.
pub fn drawn() -> String {
    drawn_at(640, 640)
}

pub fn drawn_at(width: u32, height: u32) -> String {
    STANDARD.encode(webp(width, height))
}

pub fn webp(width: u32, height: u32) -> Vec<u8> {
    encoded(width, height, image::ImageFormat::WebP)
}

fn encoded(width: u32, height: u32, format: image::ImageFormat) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let picture = image::RgbImage::new(width, height);
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Asks for images of `tiny`; the id of the request.
pub async fn ask(app: &App, more: Value) -> String {
    let (status, answer) = post(app, ASYNC, body(more)).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

fn body(more: Value) -> Value {
    with(
        json!({"prompt": "a cat ### a dog", "models": ["tiny"]}),
        more,
    )
}

pub fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

pub fn worker(more: Value) -> Value {
    let plain = json!({
        "name": "artist", "models": ["tiny", "other"], "bridge_agent": NEWEST, "max_pixels": 1_048_576,
    });
    with(plain, more)
}

pub async fn pop(app: &App, more: Value) -> Value {
    let (status, popped) = post(app, POP, worker(more)).await;
    assert_eq!(status, StatusCode::OK, "{popped}");
    popped
}

pub async fn submit(app: &App, id: &Value, more: Value) -> (StatusCode, Value) {
    let plain = json!({"id": id, "generation": drawn(), "seed": 77});
    post(app, SUBMIT, with(plain, more)).await
}

/// A picture of that size.
pub fn png(width: u32, height: u32) -> String {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let picture = image::GrayImage::new(width, height);
    picture
        .write_to(&mut bytes, image::ImageFormat::Png)
        .unwrap();
    STANDARD.encode(bytes.into_inner())
}

/// Few bytes that say they are the largest picture there can be.
pub fn bomb() -> Vec<u8> {
    let mut bytes = STANDARD.decode(PNG).unwrap();
    bytes[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
    let sum = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// As PNG sums its chunks up.
fn crc(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| match sum & 1 {
        1 => 0xedb8_8320 ^ (sum >> 1),
        _ => sum >> 1,
    };
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), step)
    })
}

async fn read(app: &App, what: &str, id: &str) -> Value {
    let answer = app.get(&format!("/api/v2/generate/{what}/{id}")).await;
    assert_eq!(answer.status, StatusCode::OK);
    answer.json().await
}

/// Looks until it is as wanted.
pub async fn until(app: &App, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually("the wanted status", async || {
        let status = read(app, "status", id).await;
        match wanted(&status) {
            true => Ok(status),
            false => Err(status),
        }
    })
    .await
}

pub async fn until_done(app: &App, id: &str) -> Value {
    until(app, id, |status| status["done"] == true).await
}

pub fn path(link: &Value) -> String {
    let link = link.as_str().unwrap();
    link.strip_prefix(BASE).unwrap().to_owned()
}

/// The media key of a link.
fn key(link: &Value) -> Key {
    let path = path(link);
    let key = path.strip_prefix("/media/").unwrap();
    key.split('?').next().unwrap().parse().unwrap()
}

pub async fn upload(app: &App, link: &Value) -> StatusCode {
    upload_of(app, link, webp(640, 640)).await
}

/// Under the label that the link was given out with, whatever it is.
async fn upload_of(app: &App, link: &Value, bytes: Vec<u8>) -> StatusCode {
    let headers = [("content-type", "image/webp")];
    let sent = request(Method::PUT, &path(link), &headers, bytes.into());
    app.send(sent).await.status
}

#[tokio::test]
async fn an_image_is_asked_for_popped_uploaded_submitted_and_fetched() {
    let app = App::start().await;
    let id = ask(
        &app,
        json!({"params": {"seed": "42", "width": 576, "steps": 20}}),
    )
    .await;
    let check = read(&app, "check", &id).await;
    assert_eq!(
        (&check["waiting"], &check["done"]),
        (&json!(1), &json!(false))
    );
    let popped = pop(&app, json!({})).await;
    assert_eq!(
        (&popped["model"], &popped["ttl"]),
        (&json!("tiny"), &json!(150))
    );
    let payload = &popped["payload"];
    assert_eq!(payload["prompt"], "a cat ### a dog");
    assert_eq!(
        (&payload["seed"], &payload["width"]),
        (&json!("42"), &json!(576))
    );
    assert_eq!(
        (&payload["ddim_steps"], &payload["n_iter"]),
        (&json!(20), &json!(1))
    );
    assert_eq!(
        (&payload["cfg_scale"], &payload["karras"]),
        (&json!(5.0), &json!(true))
    );
    assert_eq!(popped["skipped"], json!({}));
    assert_eq!(popped["r2_uploads"][0], popped["r2_upload"]);
    assert!(upload(&app, &popped["r2_upload"]).await.is_success());
    let remarks = json!([{"type": "lora", "value": "download_failed", "ref": "12"}]);
    let brought = json!({"generation": "R2", "gen_metadata": remarks});
    let (code, submitted) = submit(&app, &popped["id"], brought).await;
    assert_eq!(code, StatusCode::OK, "{submitted}");
    assert!(submitted["reward"].as_f64().unwrap() > 1.0);
    let status = until_done(&app, &id).await;
    assert!(status["kudos"].as_f64().unwrap() > submitted["reward"].as_f64().unwrap());
    let image = &status["generations"][0];
    assert_eq!(
        (&image["id"], &image["seed"]),
        (&popped["id"], &json!("77"))
    );
    assert_eq!(
        (&image["worker_name"], &image["model"]),
        (&json!("artist"), &json!("tiny"))
    );
    assert_eq!(
        (&image["censored"], &image["gen_metadata"]),
        (&json!(false), &remarks)
    );
    let fetched = app.get(&path(&image["img"])).await;
    assert_eq!(fetched.status, StatusCode::OK);
    assert_eq!(fetched.bytes().await, webp(640, 640));
    assert!(
        upload(&app, &popped["r2_upload"]).await.is_success(),
        "whoever lost the answer gets it"
    );
    let other = request(
        Method::PUT,
        &path(&popped["r2_upload"]),
        &[],
        "RIFF....WEBP".into(),
    );
    assert_eq!(
        app.send(other).await.status,
        StatusCode::CONFLICT,
        "a link is good once"
    );
}

#[tokio::test]
async fn a_gray_image_stands_in_for_a_missing_one_only_where_tests_of_others_want_it() {
    for fills_in_images in [true, false] {
        let development = Development {
            fills_in_images,
            ..Development::default()
        };
        let app = App::with(DoorSettings {
            development: Some(development),
            anonymous: true,
            ..DoorSettings::default()
        })
        .await;
        let id = ask(&app, json!({"r2": true})).await;
        let popped = pop(&app, json!({})).await;
        let (code, answer) = submit(&app, &popped["id"], json!({"generation": "R2"})).await;
        if !fills_in_images {
            assert_eq!(code, StatusCode::BAD_REQUEST, "{answer}");
            continue;
        }
        assert_eq!(code, StatusCode::OK, "{answer}");
        let image = until_done(&app, &id).await["generations"][0].clone();
        assert_eq!(image["gen_metadata"], json!([]), "its worker said nothing");
        let bytes = app.get(&path(&image["img"])).await.bytes().await;
        let pixels = image::load_from_memory(&bytes).unwrap();
        assert!(pixels.width() >= 512 && pixels.height() >= 512);
    }
}

#[tokio::test]
async fn an_image_that_the_store_has_lost_is_not_there_whatever_way_it_was_to_come() {
    let app = App::start().await;
    for links in [true, false] {
        let id = ask(&app, json!({"r2": links})).await;
        let popped = pop(&app, json!({})).await;
        assert!(upload(&app, &popped["r2_upload"]).await.is_success());
        let brought = json!({"generation": "R2"});
        let (code, answer) = submit(&app, &popped["id"], brought).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
        let image = until_done(&app, &id).await["generations"][0]["img"].clone();
        assert_ne!(image, "N/A");
        let key = key(&popped["r2_upload"]);
        app.media.delete(key).await.unwrap();
        let status = read(&app, "status", &id).await;
        assert_eq!(status["generations"][0]["img"], "N/A", "{status}");
        assert_eq!(
            (&status["done"], &status["finished"]),
            (&json!(true), &json!(1))
        );
    }
}

#[tokio::test]
async fn without_links_the_image_is_in_the_reply_and_comes_as_base64_from_plain_workers() {
    let app = App::start().await;
    let id = ask(&app, json!({"r2": false})).await;
    let popped = pop(&app, json!({"bridge_agent": "unknown:0:unknown"})).await;
    assert!(popped["r2_upload"].is_null() && popped["r2_uploads"].is_null());
    let (code, answer) = submit(&app, &popped["id"], json!({"generation": png(512, 512)})).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    let status = until_done(&app, &id).await;
    let image = status["generations"][0]["img"].as_str().unwrap();
    let bytes = STANDARD.decode(image).unwrap();
    assert!(bytes.starts_with(b"RIFF") && bytes[8..].starts_with(b"WEBP"));
}

/// The ledger entries for the image of this request: charged, paid to its worker's owner, and to the house.
pub async fn booked(app: &App, id: &str) -> [i64; 3] {
    let request = app.requests.find(RequestId(id.parse().unwrap())).unwrap();
    let entries = app.store.entries(request.outputs[0].job).await.unwrap();
    let (house, people): (Vec<_>, Vec<_>) =
        entries.iter().partition(|(account, _)| *account == HOUSE);
    let sum = |entries: &[&(AccountId, Kudos)], of: fn(i64) -> bool| {
        let amounts = entries.iter().map(|(_, amount)| amount.0);
        amounts.filter(|amount| of(*amount)).sum()
    };
    [
        sum(&people, |amount| amount < 0),
        sum(&people, |amount| amount > 0),
        sum(&house, |_| true),
    ]
}

#[tokio::test]
async fn old_software_is_told_the_whole_reward_and_paid_a_part_of_it() {
    let app = App::start().await;
    app.enrich(Kudos(1_000_000)).await;
    let check = async |agent: &str, expected: [i64; 3]| {
        let id = ask(&app, json!({"r2": false, "params": {"steps": 40}})).await;
        let popped = pop(&app, json!({"bridge_agent": agent})).await;
        let (_, submitted) = submit(&app, &popped["id"], json!({})).await;
        assert_eq!(submitted["reward"], 9.0, "{agent}");
        assert_eq!(booked(&app, &id).await, expected, "{agent}");
    };
    check(NEWEST, [-10_000, 9000, 1000]).await;
    check("AI Horde Worker reGen:12:test", [-10_000, 8100, 1900]).await;
    check("somebody:1:test", [-10_000, 6750, 3250]).await;
}

#[tokio::test]
async fn an_image_that_may_not_be_shown_costs_its_client_the_fee_and_its_worker_nothing() {
    let app = App::start().await;
    app.enrich(Kudos(1_000_000)).await;
    for value in ["nsfw", "csam"] {
        let id = ask(&app, json!({"params": {"steps": 40}, "r2": false})).await;
        let popped = pop(&app, json!({})).await;
        let remarks = json!([{"type": "censorship", "value": value}]);
        let (_, submitted) = submit(&app, &popped["id"], json!({"gen_metadata": remarks})).await;
        assert_eq!(submitted["reward"], 9.0);
        let status = until_done(&app, &id).await;
        assert_eq!(status["generations"][0]["censored"], true, "{status}");
        assert_eq!(booked(&app, &id).await, [-1000, 9000, -8000]);
    }
}

/// Of the code and message that a worker is refused by.
fn is_returned((status, answer): &(StatusCode, Value)) -> bool {
    let message = answer["message"].as_str().unwrap_or_default();
    (status.as_u16(), &answer["rc"]) == (400, &json!("ImageValidationFailed"))
        && message.ends_with("; the job goes to another worker")
}

#[tokio::test]
async fn a_worker_without_a_usable_image_is_not_paid_and_another_makes_it() {
    let app = App::start().await;
    app.enrich(Kudos(1_000_000)).await;
    let signature = b"RIFF\x11\0\0\0WEBPVP8 \x05\0\0\0....".to_vec();
    let uploads = [
        None,
        Some(signature),
        Some(webp(64, 64)),
        Some(webp(640, 448)),
        Some(webp(640, 640)[..40].to_vec()),
    ];
    for uploaded in uploads {
        let id = ask(&app, json!({})).await;
        let popped = pop(&app, json!({})).await;
        if let Some(bytes) = uploaded {
            let sent = upload_of(&app, &popped["r2_upload"], bytes).await;
            assert_eq!(sent, StatusCode::OK);
        }
        let brought = submit(&app, &popped["id"], json!({"generation": "R2"})).await;
        assert!(is_returned(&brought), "{brought:?}");
        // The worker submits no more results of this attempt.
        let (status, _) = submit(&app, &popped["id"], json!({})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let again = pop(&app, json!({"name": "another"})).await;
        assert_ne!(again["id"], popped["id"]);
        let (status, answer) = submit(&app, &again["id"], json!({})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let status = until_done(&app, &id).await;
        assert_eq!(status["generations"][0]["worker_name"], "another");
    }
}

#[tokio::test]
async fn what_is_no_image_is_no_result() {
    let app = App::start().await;
    let svg = STANDARD.encode("<svg xmlns='http://www.w3.org/2000/svg'/>");
    for wrong in ["nothing", &svg, PNG] {
        let id = ask(&app, json!({})).await;
        let popped = pop(&app, json!({})).await;
        let brought = submit(&app, &popped["id"], json!({"generation": wrong})).await;
        assert!(is_returned(&brought), "{brought:?}");
        let again = pop(&app, json!({"name": "another"})).await;
        let (status, answer) = submit(&app, &again["id"], json!({})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        until_done(&app, &id).await;
    }
}

#[tokio::test]
async fn png_and_jpeg_under_a_webp_label_are_taken_and_kept_as_webp() {
    let app = App::start().await;
    for format in [image::ImageFormat::Png, image::ImageFormat::Jpeg] {
        let id = ask(&app, json!({})).await;
        let popped = pop(&app, json!({})).await;
        let bytes = encoded(512, 512, format);
        let sent = upload_of(&app, &popped["r2_upload"], bytes).await;
        assert_eq!(sent, StatusCode::OK, "{format:?}");
        let brought = submit(&app, &popped["id"], json!({"generation": "R2"})).await;
        assert_eq!(brought.0, StatusCode::OK, "{brought:?}");
        let status = until_done(&app, &id).await;
        let fetched = app.get(&path(&status["generations"][0]["img"])).await;
        assert_eq!(fetched.header("content-type"), Some("image/webp"));
        let bytes = fetched.bytes().await;
        assert!(bytes.starts_with(b"RIFF") && bytes[8..].starts_with(b"WEBP"));
    }
}

#[tokio::test]
async fn a_socket_worker_without_a_usable_image_is_not_paid_and_another_makes_it() {
    let app = App::start().await;
    app.enrich(Kudos(1_000_000)).await;
    // Another worker gets the job that the first has failed.
    assert!(pop(&app, json!({})).await["id"].is_null());
    let mut rig = painter(&app).await;
    let results = json!([{"index": 0, "seed": 900, "sha256": "ab".repeat(32)}]);
    for uploaded in [None, Some(webp(64, 64))] {
        let id = ask(&app, json!({})).await;
        let job = rig.job().await;
        if let Some(bytes) = uploaded {
            let sent = upload_of(&app, &job["upload"][0]["put_url"], bytes).await;
            assert_eq!(sent, StatusCode::OK);
        }
        rig.send(json!({"type": "done", "id": job["id"], "results": results}))
            .await;
        until(&app, &id, |status| status["restarted"] == 1).await;
        let popped = pop(&app, json!({})).await;
        let (status, answer) = submit(&app, &popped["id"], json!({})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        let status = until_done(&app, &id).await;
        assert_eq!(status["generations"][0]["worker_name"], "artist");
    }
    // And with one, as the public media worker uploads it.
    let id = ask(&app, json!({})).await;
    let job = rig.job().await;
    let png = encoded(512, 512, image::ImageFormat::Png);
    let sent = upload_of(&app, &job["upload"][0]["put_url"], png).await;
    assert_eq!(sent, StatusCode::OK);
    rig.send(json!({"type": "done", "id": job["id"], "results": results}))
        .await;
    let status = until_done(&app, &id).await;
    assert_eq!(status["generations"][0]["worker_name"], "painter");
    let fetched = app.get(&path(&status["generations"][0]["img"])).await;
    assert!(fetched.bytes().await.starts_with(b"RIFF"));
}

#[tokio::test]
async fn a_result_is_as_large_as_it_was_asked_for_or_enlarged_where_that_was() {
    let plain = json!({"params": {"width": 512, "height": 512}});
    let enlarged = json!({"params": {"post_processing": ["RealESRGAN_x4plus"]}});
    for (asked, expected) in [(plain, StatusCode::BAD_REQUEST), (enlarged, StatusCode::OK)] {
        let app = App::start().await;
        ask(&app, asked).await;
        let popped = pop(&app, json!({"allow_post_processing": true})).await;
        let drawn = json!({"generation": png(1100, 1100)});
        let (status, answer) = submit(&app, &popped["id"], drawn).await;
        assert_eq!(status, expected, "{answer}");
        let (status, _) = submit(&app, &popped["id"], json!({})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "it is taken once");
    }
}

#[tokio::test]
async fn a_link_takes_no_more_than_an_image_of_its_size() {
    let app = App::start().await;
    ask(&app, json!({})).await;
    let popped = pop(&app, json!({})).await;
    let mut junk = b"RIFF....WEBP".to_vec();
    junk.resize((5 << 20) + 1, 0);
    let sent = |bytes: Vec<u8>| {
        let link = path(&popped["r2_upload"]);
        app.send(request(Method::PUT, &link, &[], bytes.into()))
    };
    assert_eq!(sent(junk).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let image = webp(640, 640);
    assert_eq!(sent(image).await.status, StatusCode::OK);
}

#[tokio::test]
async fn cancelling_returns_the_images_in_the_reply_even_where_links_were_asked_for() {
    let app = App::start().await;
    let id = ask(&app, json!({"params": {"n": 2}})).await;
    let popped = pop(&app, json!({})).await;
    submit(&app, &popped["id"], json!({})).await;
    until(&app, &id, |status| status["finished"] == 1).await;
    let path = format!("/api/v2/generate/status/{id}");
    let (code, status) = call(&app, Method::DELETE, &path, Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    let image = status["generations"][0]["img"].as_str().unwrap();
    assert!(STANDARD.decode(image).unwrap().starts_with(b"RIFF"));
    let status = until_done(&app, &id).await;
    assert_eq!(
        (&status["waiting"], &status["finished"]),
        (&json!(0), &json!(1))
    );
    assert!(pop(&app, json!({})).await["id"].is_null());
}

/// The id of a request of which one image is there, a large one.
async fn drawn_large(app: &App, more: Value) -> String {
    let id = ask(app, more).await;
    let popped = pop(app, json!({})).await;
    assert!(upload(app, &popped["r2_upload"]).await.is_success());
    let (code, answer) = submit(app, &popped["id"], json!({"generation": "R2"})).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    until(app, &id, |status| status["finished"] == 1).await;
    let large = vec![0; 60_000];
    let key = key(&popped["r2_upload"]);
    app.media.put(key, large.into()).await.unwrap();
    id
}

fn of(id: &str) -> String {
    format!("/api/v2/generate/status/{id}")
}

#[tokio::test]
async fn replies_that_nobody_reads_keep_others_from_images_in_theirs_and_from_nothing_else() {
    let app = App::with_little_room().await;
    let linked = drawn_large(&app, json!({"r2": true})).await;
    let whole = drawn_large(&app, json!({"r2": false})).await;
    let unread = app.get(&of(&whole)).await;
    assert_eq!(unread.status, StatusCode::OK);
    let refused = app.get(&of(&whole)).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(app.get(&of(&linked)).await.status, StatusCode::OK);
    ask(&app, json!({})).await;
    assert!(pop(&app, json!({})).await["id"].is_string());
    drop(unread);
    assert_eq!(app.get(&of(&whole)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_reply_of_which_only_some_fields_are_wanted_takes_its_room_too() {
    let app = App::with_little_room().await;
    let id = drawn_large(&app, json!({"r2": false})).await;
    let masked = [("x-fields", "generations{img}")];
    let ask = || app.send(request(Method::GET, &of(&id), &masked, Body::empty()));
    let unread = ask().await;
    assert_eq!(unread.status, StatusCode::OK);
    assert_eq!(ask().await.status, StatusCode::SERVICE_UNAVAILABLE);
    drop(unread);
    let answer = ask().await.json().await;
    let fields = answer.as_object().unwrap();
    assert_eq!(fields.len(), 1);
    let image = answer["generations"][0]["img"].as_str().unwrap();
    assert_eq!(STANDARD.decode(image).unwrap(), [0; 60_000]);
}

#[tokio::test]
async fn a_request_is_cancelled_also_where_a_reply_has_no_room_for_its_images() {
    let app = App::with_little_room().await;
    let id = drawn_large(&app, json!({"r2": false, "params": {"n": 2}})).await;
    let unread = app.get(&of(&id)).await;
    let (code, status) = call(&app, Method::DELETE, &of(&id), Value::Null).await;
    assert_eq!(code, StatusCode::OK, "{status}");
    assert_eq!(
        (&status["waiting"], &status["finished"]),
        (&json!(1), &json!(1)),
        "as it was just before"
    );
    let link = &status["generations"][0]["img"];
    assert_eq!(app.get(&path(link)).await.status, StatusCode::OK);
    assert_eq!(read(&app, "check", &id).await["waiting"], 0);
    assert!(pop(&app, json!({})).await["id"].is_null());
    drop(unread);
}

#[tokio::test]
async fn an_image_that_was_out_when_its_request_was_cancelled_is_still_paid() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, json!({})).await;
    let path = format!("/api/v2/generate/status/{id}");
    call(&app, Method::DELETE, &path, Value::Null).await;
    let (code, answer) = submit(&app, &popped["id"], json!({})).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert!(answer["reward"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn one_pop_takes_as_many_images_of_a_request_as_fit() {
    let app = App::start().await;
    let four = || json!({"params": {"n": 4, "seed": "5", "seed_variation": 10}});
    ask(&app, four()).await;
    let popped = pop(&app, json!({"amount": 3, "max_pixels": 4 * 262_144})).await;
    assert_eq!(popped["ids"].as_array().unwrap().len(), 3);
    assert_eq!(popped["r2_uploads"].as_array().unwrap().len(), 3);
    assert_eq!(
        (&popped["payload"]["n_iter"], &popped["payload"]["seed"]),
        (&json!(3), &json!("45"))
    );
    let rest = pop(&app, json!({"amount": 3})).await;
    assert_eq!(rest["payload"]["seed"], "15");
    ask(
        &app,
        json!({"params": {"n": 3, "width": 1024, "height": 1024}}),
    )
    .await;
    let large = pop(&app, json!({"amount": 3})).await;
    assert_eq!(large["ids"].as_array().unwrap().len(), 1, "no more fit");
}

#[tokio::test]
async fn a_pop_with_nothing_counts_every_reason() {
    let app = App::start().await;
    // Large requests need kudos first.
    app.enrich(Kudos(1_000_000)).await;
    ask(&app, json!({"models": ["unheard"]})).await;
    ask(&app, json!({"params": {"width": 2112}})).await;
    ask(&app, json!({"params": {"loras": [{"name": "a"}]}})).await;
    ask(&app, json!({"params": {"post_processing": ["GFPGAN"]}})).await;
    ask(&app, json!({"params": {"tiling": true, "steps": 50}})).await;
    ask(&app, json!({"trusted_workers": true})).await;
    ask(&app, json!({"prompt": "a Forbidden thing"})).await;
    let stranger = app
        .account_with(Roles::WORKER_OWNER, Scopes::WORKER_CONNECT)
        .await;
    let more = json!({
        "bridge_agent": "AI Horde Worker:8:x", "allow_post_processing": false, "nsfw": false,
        "limit_max_steps": true, "blacklist": ["forbidden"],
    });
    let (_, popped) = call_as(&app, &stranger, Method::POST, POP, worker(more)).await;
    assert!(popped["id"].is_null());
    let skipped = &popped["skipped"];
    let count = |name: &str| skipped[name].as_u64().unwrap_or(0);
    assert_eq!(count("nsfw"), 7, "{skipped}");
    assert_eq!((count("models"), count("max_pixels")), (1, 1), "{skipped}");
    assert_eq!(
        (count("lora"), count("post-processing")),
        (1, 1),
        "{skipped}"
    );
    assert_eq!(
        (count("step_count"), count("untrusted")),
        (1, 1),
        "{skipped}"
    );
    assert_eq!(count("bridge_version"), 1, "{skipped}");
    assert_eq!(count("controlnet"), 0);
}

#[tokio::test]
async fn a_worker_that_limits_steps_goes_by_the_models_of_a_request_that_names_several() {
    const FEW: &str = "Flux.1-Schnell fp8 (Compact)";
    let app = App::start().await;
    app.enrich(Kudos(1_000_000)).await;
    let models = |name: &str| json!([name, "stable_diffusion"]);
    let modest = || {
        let models = json!([FEW, "stable_diffusion", "Deliberate"]);
        json!({"limit_max_steps": true, "models": models})
    };
    // 30 steps are many for the one and not for the others.
    ask(
        &app,
        json!({"models": models(FEW), "params": {"steps": 30}}),
    )
    .await;
    ask(
        &app,
        json!({"models": ["stable_diffusion"], "params": {"steps": 30}}),
    )
    .await;
    ask(&app, json!({"models": [], "params": {"steps": 30}})).await;
    let popped = pop(&app, modest()).await;
    assert!(popped["id"].is_null(), "{popped}");
    assert_eq!(popped["skipped"]["step_count"], 3, "{popped}");
    let usual = json!({"models": models("Deliberate"), "params": {"steps": 30}});
    ask(&app, usual).await;
    let popped = pop(&app, modest()).await;
    assert!(popped["id"].is_string(), "{popped}");
    let other = json!({"models": [FEW, "stable_diffusion", "Deliberate"]});
    assert!(pop(&app, other).await["id"].is_string());
}

#[tokio::test]
async fn a_worker_is_given_no_prompt_with_a_word_it_does_not_want() {
    let app = App::start().await;
    ask(&app, json!({"prompt": "a Forbidden thing"})).await;
    let choosy = || json!({"blacklist": ["forbidden"]});
    let popped = pop(&app, choosy()).await;
    assert!(popped["id"].is_null());
    assert_eq!(popped["skipped"]["blacklist"], 1);
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, choosy()).await;
    assert_eq!(popped["payload"]["prompt"], "a cat ### a dog");
    submit(&app, &popped["id"], json!({})).await;
    until_done(&app, &id).await;
    assert_eq!(
        pop(&app, json!({})).await["payload"]["prompt"],
        "a Forbidden thing"
    );
}

#[tokio::test]
async fn what_is_brought_twice_or_by_another_is_refused_by_its_code() {
    let app = App::start().await;
    ask(&app, json!({})).await;
    let popped = pop(&app, json!({})).await;
    let other = app
        .account_with(Roles::WORKER_OWNER, Scopes::WORKER_CONNECT)
        .await;
    let body = json!({"id": popped["id"], "generation": drawn(), "seed": 1});
    let (status, answer) = call_as(&app, &other, Method::POST, SUBMIT, body).await;
    assert_eq!(
        (status.as_u16(), &answer["rc"]),
        (403, &json!("WrongCredentials"))
    );
    let tries = (0..8).map(|_| submit(&app, &popped["id"], json!({})));
    let answers = futures_util::future::join_all(tries).await;
    let paid = answers.iter().filter(|(code, _)| *code == StatusCode::OK);
    assert_eq!(paid.count(), 1, "{answers:?}");
    let (status, answer) = submit(&app, &popped["id"], json!({})).await;
    assert_eq!(
        (status.as_u16(), &answer["rc"]),
        (400, &json!("DuplicateGen"))
    );
    let (status, answer) = submit(&app, &json!("no uuid"), json!({})).await;
    assert_eq!(
        (status.as_u16(), &answer["rc"]),
        (404, &json!("InvalidJobID"))
    );
}

#[tokio::test]
async fn a_fault_puts_the_image_back() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, json!({})).await;
    let fault = json!({"generation": "", "state": "faulted"});
    let (code, answer) = submit(&app, &popped["id"], fault).await;
    assert_eq!((code, &answer["reward"]), (StatusCode::OK, &json!(0.0)));
    let status = until(&app, &id, |status| status["waiting"] == 1).await;
    assert_eq!(status["restarted"], 1);
    let again = pop(&app, json!({"name": "another"})).await;
    assert_ne!(again["id"], popped["id"], "an id for each attempt");
    assert_ne!(
        again["r2_upload"], popped["r2_upload"],
        "a link for each attempt"
    );
}

#[tokio::test]
async fn who_hides_an_image_says_so_in_its_remarks_and_its_client_pays_the_fee_alone() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, json!({})).await;
    let remarks = json!([{"type": "censorship", "value": "nsfw"}]);
    let (_, answer) = submit(&app, &popped["id"], json!({"gen_metadata": remarks})).await;
    assert!(answer["reward"].as_f64().unwrap() > 1.0);
    let status = until_done(&app, &id).await;
    assert_eq!(
        status["kudos"], 2.0,
        "one for the request, one for the image"
    );
    let image = &status["generations"][0];
    assert_eq!(
        (&image["censored"], &image["state"]),
        (&json!(true), &json!("ok"))
    );
}

#[tokio::test]
async fn the_steps_of_a_worker_are_seen_by_its_client() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, json!({})).await;
    let say = async |job: &Value, step: Value, key: &str| {
        let body = json!({"id": job, "current_step": step, "total_steps": 30});
        let body = Body::from(body.to_string());
        let sent = request(Method::POST, PROGRESS, &[("apikey", key)], body);
        app.send(sent).await
    };
    let answer = say(&popped["id"], json!(15), &app.key).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.bytes().await.is_empty());
    let check = eventually("half of the image", async || {
        let check = read(&app, "check", &id).await;
        match check["progress_percent"] == 50 {
            true => Ok(check),
            false => Err(check),
        }
    })
    .await;
    assert_eq!(
        (&check["current_step"], &check["total_steps"]),
        (&json!(15), &json!(30))
    );
    assert_eq!(say(&popped["id"], json!(-1), &app.key).await.status, 400);
    assert_eq!(say(&json!("x"), json!(1), &app.key).await.status, 404);
    assert_eq!(say(&popped["id"], json!(1), "nobody").await.status, 401);
    submit(&app, &popped["id"], json!({})).await;
    assert_eq!(say(&popped["id"], json!(16), &app.key).await.status, 400);
    let check = read(&app, "check", &id).await;
    assert!(check.get("progress_percent").is_none(), "{check}");
}

#[tokio::test]
async fn shared_images_are_rated_once_and_never_for_more_than_they_cost() {
    let app = App::start().await;
    // Waived kudos were not paid.
    app.enrich(Kudos(1_000_000)).await;
    let drawn = async |more: Value| {
        let id = ask(&app, more).await;
        let popped = pop(&app, json!({"amount": 2, "max_pixels": 4 * 262_144})).await;
        let ids = popped["ids"].as_array().unwrap().clone();
        for image in &ids {
            submit(&app, image, json!({})).await;
        }
        until_done(&app, &id).await;
        (id, ids)
    };
    let rate = async |id: &str, body: Value| {
        let (status, answer) = post(&app, &format!("/api/v2/generate/rate/{id}"), body).await;
        (status.as_u16(), answer)
    };
    let (private, images) = drawn(json!({"params": {"n": 2}})).await;
    let ratings =
        |images: &[Value]| json!([{"id": images[0], "rating": 8}, {"id": images[1], "rating": 5}]);
    let (status, answer) = rate(&private, json!({"ratings": ratings(&images)})).await;
    assert_eq!(
        (status, &answer["rc"]),
        (400, &json!("AestheticsNotPublic"))
    );
    let (public, images) = drawn(json!({"params": {"n": 2}, "shared": true})).await;
    let stranger = json!({"best": private});
    let (status, answer) = rate(&public, stranger).await;
    assert_eq!((status, &answer["rc"]), (400, &json!("ProcGenNotFound")));
    let body = json!({"ratings": ratings(&images), "best": images[0]});
    let tries = (0..8).map(|_| rate(&public, body.clone()));
    let answers = futures_util::future::join_all(tries).await;
    let (taken, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|(status, _)| *status == 200);
    assert_eq!(taken.len(), 1, "{answers:?}");
    let paid = read(&app, "status", &public).await["kudos"]
        .as_f64()
        .unwrap();
    assert_eq!(
        taken[0].1["reward"].as_f64().unwrap(),
        14_f64.min(paid - 1.0)
    );
    let again = |(_, answer): &&(u16, Value)| answer["rc"] == "AestheticsAlreadyExist";
    assert!(refused.iter().all(again), "{answers:?}");
}

#[tokio::test]
async fn an_image_is_rated_by_what_whoever_drew_it_at_last_calls_it() {
    let app = App::start().await;
    app.enrich(Kudos(1_000_000)).await;
    let id = ask(&app, json!({"shared": true, "params": {"steps": 40}})).await;
    let given_up = pop(&app, json!({})).await;
    let faulted = json!({"generation": "", "state": "faulted"});
    submit(&app, &given_up["id"], faulted).await;
    let popped = pop(&app, json!({"name": "another"})).await;
    assert_ne!(popped["id"], given_up["id"]);
    submit(&app, &popped["id"], json!({})).await;
    let status = until_done(&app, &id).await;
    assert_eq!(status["generations"][0]["id"], popped["id"]);
    let rate = async |image: &Value| {
        let body = json!({"ratings": [{"id": image, "rating": 8}]});
        post(&app, &format!("/api/v2/generate/rate/{id}"), body).await
    };
    let (code, answer) = rate(&given_up["id"]).await;
    assert_eq!(
        (code, &answer["rc"]),
        (StatusCode::BAD_REQUEST, &json!("ProcGenNotFound"))
    );
    let (code, answer) = rate(&popped["id"]).await;
    assert_eq!((code, &answer["reward"]), (StatusCode::OK, &json!(5.0)));
}

#[tokio::test]
async fn what_does_not_go_together_is_refused_by_its_code() {
    let app = App::start().await;
    let check = async |more: Value, code: Code| {
        let (status, answer) = post(&app, ASYNC, body(more)).await;
        let row = code.row();
        assert_eq!(
            (status.as_u16(), answer["rc"].as_str()),
            (row.status, Some(row.rc)),
            "{answer}"
        );
    };
    check(json!({"source_mask": PNG}), Code::SourceMaskUnnecessary).await;
    check(json!({"webhook": "http://example.org"}), Code::BadRequest).await;
    check(
        json!({"source_image": "no base64!"}),
        Code::ImageValidationFailed,
    )
    .await;
    check(
        json!({"source_image": "http://127.0.0.1/a"}),
        Code::SourceImageUrlInvalid,
    )
    .await;
    let painting = json!({"source_image": OPAQUE, "source_processing": "inpainting"});
    check(painting, Code::InpaintingMissingMask).await;
}

/// As no door lets it in: its source image is none that is kept here.
async fn unreadable(app: &App) -> RequestId {
    let asked = json!({"prompt": "p", "models": ["tiny"], "source_image": "lost"});
    let asked = Asked::image(GenerationInputImage::read(asked).unwrap());
    let payer = Payer::of(&Caller::anonymous(), None, false, wall_clock()).unwrap();
    let order = Order::new(RequestId::random(), &payer, asked);
    let request = order.request(payer.standing, None, &Names::default());
    app.requests.accept(request).await.unwrap().id
}

#[tokio::test]
async fn what_no_worker_can_be_told_of_has_failed_and_the_next_image_is_drawn() {
    let app = App::start().await;
    let lost = unreadable(&app).await.to_string();
    assert_eq!(pop(&app, json!({})).await["id"], Value::Null);
    until(&app, &lost, |status| status["faulted"] == true).await;
    let next = ask(&app, json!({})).await;
    let popped = pop(&app, json!({})).await;
    let (status, told) = submit(&app, &popped["id"], json!({})).await;
    assert_eq!(status, StatusCode::OK, "{told}");
    until_done(&app, &next).await;
}

#[tokio::test]
async fn source_images_are_kept_here_and_workers_get_links() {
    let app = App::start().await;
    let source =
        json!({"source_image": PNG, "source_mask": PNG, "source_processing": "inpainting"});
    ask(&app, source).await;
    let painter = json!({"models": ["tiny", "tiny inpainting"]});
    let popped = pop(&app, painter).await;
    assert_eq!(popped["source_processing"], "inpainting");
    for image in ["source_image", "source_mask"] {
        let fetched = app.get(&path(&popped[image])).await;
        assert_eq!(fetched.status, StatusCode::OK);
        assert!(fetched.bytes().await.starts_with(b"RIFF"));
    }
}

async fn until_sources(app: &App, wanted: usize) {
    eventually("the wanted number of source images", async || {
        match app.sources() {
            kept if kept == wanted => Ok(()),
            kept => Err(kept),
        }
    })
    .await;
}

#[tokio::test]
async fn source_images_go_when_their_request_is_refused_cancelled_or_drawn() {
    let app = App::start().await;
    let painting = |mask: &str| json!({"source_image": PNG, "source_mask": mask, "source_processing": "inpainting"});
    let (status, answer) = post(&app, ASYNC, body(painting("no base64!"))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    until_sources(&app, 0).await;
    let cancelled = ask(&app, painting(PNG)).await;
    assert_eq!(app.sources(), 2);
    let at = format!("/api/v2/generate/status/{cancelled}");
    call(&app, Method::DELETE, &at, Value::Null).await;
    until_sources(&app, 0).await;
    let drawn = ask(&app, painting(PNG)).await;
    let app = app.anew().await;
    assert_eq!(app.sources(), 2, "what waits is drawn by the next process");
    let popped = pop(&app, json!({"models": ["tiny", "tiny inpainting"]})).await;
    let fetched = app.get(&path(&popped["source_image"])).await;
    assert_eq!(fetched.status, StatusCode::OK);
    let (status, told) = submit(&app, &popped["id"], json!({})).await;
    assert_eq!(status, StatusCode::OK, "{told}");
    until_done(&app, &drawn).await;
    until_sources(&app, 0).await;
}

#[tokio::test]
async fn software_that_fetches_no_links_is_sent_the_source_images_themselves() {
    let app = App::start().await;
    let asked = json!({"source_image": PNG, "source_mask": OPAQUE});
    for (agent, fetches) in [
        ("AI Horde Worker:13:x", false),
        ("AI Horde Worker:14:x", true),
    ] {
        ask(&app, asked.clone()).await;
        let popped = pop(&app, json!({"bridge_agent": agent})).await;
        for image in ["source_image", "source_mask"] {
            let image = popped[image].as_str().unwrap();
            assert_eq!(image.starts_with(BASE), fetches, "{image}");
            let bytes = STANDARD.decode(image).unwrap_or_default();
            assert_eq!(bytes.starts_with(b"RIFF"), !fetches, "{image}");
        }
    }
}

#[tokio::test]
async fn a_dry_run_says_what_it_costs_and_asks_for_nothing() {
    let app = App::start().await;
    let (status, answer) = post(&app, ASYNC, body(json!({"dry_run": true}))).await;
    assert_eq!(status, StatusCode::OK);
    assert!(answer["kudos"].as_f64().unwrap() > 1.0);
    assert_eq!(answer.as_object().unwrap().len(), 1);
    assert!(pop(&app, json!({})).await["id"].is_null());
}

#[tokio::test]
async fn nobody_online_is_told_and_no_reason_to_refuse() {
    let app = App::start().await;
    let (status, answer) = post(&app, ASYNC, body(json!({}))).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!(answer["warnings"][0]["code"], "NoAvailableWorker");
    assert!(answer["message"].is_string() && answer["kudos"].as_f64().unwrap() > 0.0);
}

/// A media worker of the public network.
pub async fn painter(app: &App) -> Rig {
    painter_with(app, &[]).await
}

/// A painter with these extensions.
pub async fn painter_with(app: &App, extensions: &[&str]) -> Rig {
    let mut rig = app.dial().await;
    let mut registration = json!({
        "apikey": app.key, "name": "painter", "models": ["tiny"], "job_types": ["image", "video"],
        "bridge_agent": "painter/1",
    });
    if !extensions.is_empty() {
        registration["ext"] = json!({"v": 1, "want": extensions});
    }
    rig.send(registration).await;
    assert_eq!(rig.next().await["type"], "ready");
    rig
}

#[tokio::test]
async fn a_worker_on_a_socket_draws_what_is_polled_for_and_its_progress_shows_in_check() {
    let app = App::start().await;
    let mut rig = painter(&app).await;
    let id = ask(&app, json!({"params": {"seed": "900", "n": 1}})).await;
    let job = rig.next().await;
    assert_eq!(
        (&job["type"], &job["job_type"]),
        (&json!("job"), &json!("image"))
    );
    let payload = &job["payload"];
    assert_eq!(
        (&payload["prompt"], &payload["seed"]),
        (&json!("a cat "), &json!(900))
    );
    assert_eq!(
        (&payload["negative_prompt"], &payload["n"]),
        (&json!(" a dog"), &json!(1))
    );
    assert_eq!(payload["sampler_name"], "euler_ancestral");
    rig.send(json!({"type": "progress", "id": job["id"], "pct": 40}))
        .await;
    eventually("40 % of the image", async || {
        read(&app, "check", &id).await["progress_percent"] == 40
    })
    .await;
    assert!(
        upload(&app, &job["upload"][0]["put_url"])
            .await
            .is_success()
    );
    let results = json!([{"index": 0, "seed": 900, "sha256": "ab".repeat(32)}]);
    rig.send(json!({"type": "done", "id": job["id"], "results": results}))
        .await;
    assert_eq!(rig.next().await["type"], "ack");
    let status = until_done(&app, &id).await;
    let image = &status["generations"][0];
    assert_eq!(
        (&image["worker_name"], &image["seed"]),
        (&json!("painter"), &json!("900"))
    );
    let fetched = app.get(&path(&image["img"])).await;
    assert_eq!(fetched.bytes().await, webp(640, 640));
}

#[tokio::test]
async fn what_is_given_up_after_maintenance_began_is_drawn_no_further() {
    let app = App::start().await;
    let mut rig = painter_with(&app, &["cancel2"]).await;
    let id = ask(&app, json!({"params": {"n": 2}})).await;
    let drawn = rig.job().await;
    let on = json!({"maintenance_mode": true});
    call(&app, Method::PUT, "/api/v2/status/modes", on).await;
    let request = app.requests.find(RequestId(id.parse().unwrap())).unwrap();
    let mut news = request.news();
    while request.counts().waiting > 0 {
        timeout(PATIENCE, news.changed()).await.unwrap().unwrap();
    }
    assert_eq!(request.counts().processing, 1);
    let path = format!("/api/v2/generate/status/{id}");
    let (status, answer) = call(&app, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let cancel = rig.frame().await;
    assert_eq!(
        (&cancel["type"], &cancel["id"], &cancel["why"]),
        (&json!("cancel"), &drawn["id"], &json!("client"))
    );
}

#[tokio::test]
async fn what_only_workers_of_this_api_can_do_does_not_go_to_a_socket() {
    let app = App::start().await;
    let _rig = painter(&app).await;
    let (_, answer) = post(&app, ASYNC, body(json!({"params": {"tiling": true}}))).await;
    assert_eq!(answer["warnings"][0]["code"], "NoAvailableWorker");
    assert_eq!(pop(&app, json!({})).await["payload"]["tiling"], true);
}

/// An image from its question to its delivery, by the worker `artist`.
pub async fn draw_one(app: &App) {
    let id = ask(app, json!({"r2": false})).await;
    let popped = pop(app, json!({})).await;
    let (status, answer) = submit(app, &popped["id"], json!({})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    until_done(app, &id).await;
}

/// The reply to a pop of the worker `artist`.
pub async fn popped(app: &App) -> Value {
    pop(app, json!({})).await
}

/// A worker has it, and the process that gave it out is no more.
async fn left_out(app: App, attempts: usize) -> (App, String, Value) {
    let id = ask(&app, json!({"r2": true})).await;
    for _ in 1..attempts {
        let popped = pop(&app, json!({})).await;
        let faulted = json!({"generation": "", "state": "faulted"});
        assert_eq!(submit(&app, &popped["id"], faulted).await.0, StatusCode::OK);
    }
    let popped = pop(&app, json!({})).await;
    assert_eq!(upload(&app, &popped["r2_upload"]).await, StatusCode::OK);
    (app.anew().await, id, popped)
}

async fn fetched(app: &App, status: &Value) -> StatusCode {
    let link = path(&status["generations"][0]["img"]);
    app.get(&link).await.status
}

#[tokio::test]
async fn what_was_uploaded_before_the_coordinator_began_anew_is_what_its_client_gets() {
    let (app, id, popped) = left_out(App::start().await, 1).await;
    let brought = submit(&app, &popped["id"], json!({"generation": "R2"})).await;
    assert_eq!(brought.0, StatusCode::OK, "{brought:?}");
    let status = until_done(&app, &id).await;
    assert_eq!(fetched(&app, &status).await, StatusCode::OK);
}

#[tokio::test]
async fn a_later_attempt_is_brought_to_a_coordinator_that_began_anew() {
    let (app, id, popped) = left_out(App::start().await, 2).await;
    let brought = submit(&app, &popped["id"], json!({"generation": "R2"})).await;
    assert_eq!(brought.0, StatusCode::OK, "{brought:?}");
    let status = until_done(&app, &id).await;
    assert_eq!(fetched(&app, &status).await, StatusCode::OK);
}

#[tokio::test]
async fn what_a_worker_has_given_up_is_not_its_own_by_a_guess_at_its_next_id() {
    let app = App::start().await;
    ask(&app, json!({})).await;
    let popped = pop(&app, json!({})).await;
    let faulted = json!({"generation": "", "state": "faulted"});
    assert_eq!(submit(&app, &popped["id"], faulted).await.0, StatusCode::OK);
    let given: JobId = serde_json::from_value(popped["id"].clone()).unwrap();
    for later in 1..16 {
        let guessed = JobId(uuid::Uuid::from_u128(given.0.as_u128() ^ later));
        let (code, answer) = submit(&app, &json!(guessed), json!({})).await;
        assert_eq!(code, StatusCode::NOT_FOUND, "{answer}");
    }
    assert!(pop(&app, json!({"name": "another"})).await["id"].is_string());
}

#[tokio::test]
async fn what_is_given_out_once_more_after_a_new_beginning_has_another_id() {
    let (app, id, before) = left_out(App::start().await, 1).await;
    let popped = pop(&app, json!({"name": "second"})).await;
    assert!(
        popped["id"].is_string() && popped["id"] != before["id"],
        "{popped}"
    );
    let (code, answer) = submit(&app, &before["id"], json!({})).await;
    assert_eq!(code, StatusCode::NOT_FOUND, "{answer}");
    let (code, answer) = submit(&app, &popped["id"], json!({})).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    let status = until_done(&app, &id).await;
    assert_eq!(status["generations"][0]["worker_name"], "second");
}

#[tokio::test]
async fn whoever_guesses_an_id_brings_no_worker_here_and_pushes_none_out() {
    let (app, _, popped) = left_out(App::start().await, 1).await;
    let mut rig = app.dial().await;
    let registration = json!({"apikey": app.key, "name": "writer", "models": ["tiny"], "bridge_agent": "writer/1"});
    rig.send(registration).await;
    assert_eq!(rig.next().await["type"], "ready");
    let guessed = JobId::random().to_string();
    let (code, _) = submit(&app, &json!(guessed), json!({})).await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    let names = async || {
        let online = app.board.current().await;
        let names: Vec<_> = online
            .workers
            .iter()
            .map(|it| it.name.to_string())
            .collect();
        names
    };
    assert_eq!(names().await, ["writer"]);
    let (code, answer) = submit(&app, &popped["id"], json!({})).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert_eq!(names().await, ["artist", "writer"]);
}
