//! Questions about images by the poll API.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::state::DoorSettings;
use muster_testing::eventually;
use serde_json::{Value, json};

use super::{call, post};
use crate::support::app::{App, BASE, request};

pub const ASYNC: &str = "/api/v2/interrogate/async";
pub const POP: &str = "/api/v2/interrogate/pop";
const SUBMIT: &str = "/api/v2/interrogate/submit";
const STATUS: &str = "/api/v2/interrogate/status";

pub const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

async fn ask(app: &App, forms: &[&str]) -> String {
    let forms: Vec<Value> = forms.iter().map(|name| json!({"name": name})).collect();
    let (status, answer) = post(app, ASYNC, json!({"source_image": PNG, "forms": forms})).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

async fn look(app: &App, id: &str) -> Value {
    let answer = app.get(&format!("{STATUS}/{id}")).await;
    assert_eq!(answer.status, StatusCode::OK);
    answer.json().await
}

pub async fn until(app: &App, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually("the wanted status", async || {
        let status = look(app, id).await;
        match wanted(&status) {
            true => Ok(status),
            false => Err(status),
        }
    })
    .await
}

async fn pop(app: &App, forms: &[&str], amount: u32) -> Value {
    let worker =
        json!({"name": "looker", "forms": forms, "amount": amount, "bridge_agent": "test:1:x"});
    let (status, popped) = post(app, POP, worker).await;
    assert_eq!(status, StatusCode::OK, "{popped}");
    popped
}

pub async fn submit(app: &App, id: &Value, result: Value) -> (StatusCode, Value) {
    post(app, SUBMIT, json!({"id": id, "result": result})).await
}

#[tokio::test]
async fn forms_are_asked_for_popped_answered_and_read_as_they_were_sent() {
    let app = App::start().await;
    let id = ask(&app, &["caption", "nsfw", "caption"]).await;
    assert_eq!(look(&app, &id).await["state"], "waiting");
    let (_, me) = call(&app, Method::GET, "/api/v2/find_user", Value::Null).await;
    assert_eq!(me["active_generations"]["alchemy"], json!([id]));
    let popped = pop(&app, &["caption", "nsfw"], 2).await;
    let forms = popped["forms"].as_array().unwrap();
    assert_eq!((forms.len(), &popped["skipped"]), (2, &json!({})));
    let image = forms[0]["source_image"].as_str().unwrap();
    let image = app.get(image.strip_prefix(BASE).unwrap()).await;
    assert!(image.bytes().await.starts_with(b"RIFF"));
    assert_eq!(look(&app, &id).await["state"], "processing");
    let (code, answer) = submit(&app, &forms[0]["id"], json!("a cat")).await;
    assert_eq!((code, &answer["reward"]), (StatusCode::OK, &json!(1.0)));
    let found = json!({"caption": "a cat", "more": [1, {"text": "x"}]});
    assert_eq!(
        submit(&app, &forms[1]["id"], found.clone()).await.0,
        StatusCode::OK
    );
    let rest = pop(&app, &["caption", "nsfw"], 5).await;
    assert_eq!(rest["forms"].as_array().unwrap().len(), 1);
    let last = &rest["forms"][0];
    assert_eq!(
        submit(&app, &last["id"], json!({"nsfw": false})).await.0,
        StatusCode::OK
    );
    let status = until(&app, &id, |status| status["state"] == "done").await;
    let results: Vec<&Value> = status["forms"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["result"])
        .collect();
    assert!(results.contains(&&json!("a cat")) && results.contains(&&found));
    let (code, answer) = submit(&app, &last["id"], json!("again")).await;
    assert_eq!(
        (code.as_u16(), &answer["rc"]),
        (400, &json!("DuplicateGen"))
    );
}

#[tokio::test]
async fn an_account_may_have_so_many_forms_waiting_or_with_workers() {
    let settings = DoorSettings {
        polled_texts: 1,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    ask(&app, &["caption"; 10]).await;
    let popped = pop(&app, &["caption"], 5).await;
    assert_eq!(popped["forms"].as_array().unwrap().len(), 5);
    let one = json!({"source_image": PNG, "forms": [{"name": "nsfw"}]});
    let (status, answer) = post(&app, ASYNC, one).await;
    assert_eq!(
        (status.as_u16(), &answer["rc"]),
        (429, &json!("TooManyPrompts"))
    );
    for form in popped["forms"].as_array().unwrap() {
        let (status, answer) = submit(&app, &form["id"], json!("a cat")).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    ask(&app, &["nsfw"; 5]).await;
}

#[tokio::test]
async fn an_image_that_was_made_anew_is_read_by_its_link() {
    let app = App::start().await;
    let id = ask(&app, &["GFPGAN"]).await;
    assert!(pop(&app, &["caption"], 1).await["forms"].is_null());
    let popped = pop(&app, &["GFPGAN"], 1).await;
    let form = &popped["forms"][0];
    let link = form["r2_upload"]
        .as_str()
        .unwrap()
        .strip_prefix(BASE)
        .unwrap();
    let webp = app
        .get(
            form["source_image"]
                .as_str()
                .unwrap()
                .strip_prefix(BASE)
                .unwrap(),
        )
        .await;
    let webp = webp.bytes().await;
    let sent = request(
        Method::PUT,
        link,
        &[("content-type", "image/webp")],
        Body::from(webp.clone()),
    );
    assert!(app.send(sent).await.status.is_success());
    let (_, answer) = submit(&app, &form["id"], json!({"GFPGAN": "R2"})).await;
    assert_eq!(answer["reward"], 3.0);
    let status = until(&app, &id, |status| status["state"] == "done").await;
    let link = status["forms"][0]["result"]["GFPGAN"].as_str().unwrap();
    let made = app.get(link.strip_prefix(BASE).unwrap()).await;
    assert_eq!(made.bytes().await, webp);
}

#[tokio::test]
async fn an_image_made_anew_before_the_coordinator_began_anew_is_read_by_its_link() {
    let app = App::start().await;
    let id = ask(&app, &["GFPGAN"]).await;
    let popped = pop(&app, &["GFPGAN"], 1).await;
    let form = &popped["forms"][0];
    let path = |link: &Value| {
        link.as_str()
            .unwrap()
            .strip_prefix(BASE)
            .unwrap()
            .to_owned()
    };
    let webp = app.get(&path(&form["source_image"])).await.bytes().await;
    let headers = [("content-type", "image/webp")];
    let link = path(&form["r2_upload"]);
    let sent = request(Method::PUT, &link, &headers, Body::from(webp.clone()));
    assert!(app.send(sent).await.status.is_success());
    let app = app.anew().await;
    let (code, answer) = submit(&app, &form["id"], json!({"GFPGAN": "R2"})).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    let status = until(&app, &id, |status| status["state"] == "done").await;
    let made = app
        .get(&path(&status["forms"][0]["result"]["GFPGAN"]))
        .await;
    assert_eq!(made.bytes().await, webp);
}

#[tokio::test]
async fn where_there_is_no_room_for_images_the_forms_that_make_none_are_handed_out() {
    let app = App::start().await;
    let id = ask(&app, &["GFPGAN", "caption"]).await;
    let app = app.anew_on_a_full_disk().await;
    // The form was accepted before, and is queued again later.
    let popped = eventually("a form", async || {
        let popped = pop(&app, &["GFPGAN", "caption"], 1).await;
        (!popped["forms"].is_null()).then_some(popped)
    })
    .await;
    assert_eq!(popped["forms"][0]["form"], "caption", "{popped}");
    let worker = json!({"name": "drawer", "forms": ["GFPGAN"], "bridge_agent": "test:1:x"});
    let (code, refused) = post(&app, POP, worker).await;
    assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE, "{refused}");
    until(&app, &id, |status| status["forms"][0]["state"] == "waiting").await;
}

#[tokio::test]
async fn what_failed_waits_again_and_what_is_cancelled_is_not_given_out() {
    let app = App::start().await;
    let id = ask(&app, &["caption"]).await;
    let popped = pop(&app, &["caption"], 1).await;
    let fault = json!({"id": popped["forms"][0]["id"], "result": {}, "state": "faulted"});
    let (code, answer) = post(&app, SUBMIT, fault).await;
    assert_eq!((code, &answer["reward"]), (StatusCode::OK, &json!(0.0)));
    until(&app, &id, |status| status["forms"][0]["state"] == "waiting").await;
    let (code, late) = submit(&app, &popped["forms"][0]["id"], json!("a cat")).await;
    assert_eq!((code.as_u16(), &late["rc"]), (400, &json!("DuplicateGen")));
    let path = format!("{STATUS}/{id}");
    let (code, status) = call(&app, Method::DELETE, &path, Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(status["forms"][0]["state"], "cancelled");
    eventually("no form to be left", async || {
        pop(&app, &["caption"], 1).await["forms"].is_null()
    })
    .await;
}

#[tokio::test]
async fn what_is_cancelled_while_a_worker_is_at_it_says_so_and_is_paid_when_it_comes() {
    let app = App::start().await;
    let id = ask(&app, &["caption", "nsfw"]).await;
    let popped = pop(&app, &["caption"], 1).await;
    let path = format!("{STATUS}/{id}");
    let (_, status) = call(&app, Method::DELETE, &path, Value::Null).await;
    let states = status["forms"].as_array().unwrap().iter();
    let states: Vec<&Value> = states.map(|form| &form["state"]).collect();
    assert_eq!(states, ["cancelled", "cancelled"], "{status}");
    let (code, answer) = submit(&app, &popped["forms"][0]["id"], json!("a cat")).await;
    assert_eq!((code, &answer["reward"]), (StatusCode::OK, &json!(1.0)));
    let status = until(&app, &id, |status| status["forms"][0]["state"] == "done").await;
    assert_eq!(status["forms"][0]["result"], "a cat");
}

#[tokio::test]
async fn a_result_that_is_longer_than_any_is_refused_and_the_form_waits_again_at_once() {
    let app = App::start().await;
    let id = ask(&app, &["interrogation"]).await;
    let popped = pop(&app, &["interrogation"], 1).await;
    let form = &popped["forms"][0]["id"];
    let found = |bytes: usize| json!({"tags": [{"text": "x".repeat(bytes), "confidence": 1}]});
    let (code, answer) = submit(&app, form, found(64 << 10)).await;
    assert_eq!((code.as_u16(), &answer["rc"]), (400, &json!("BadRequest")));
    let popped = pop(&app, &["interrogation"], 1).await;
    let form = &popped["forms"][0]["id"];
    let (code, answer) = submit(&app, form, found(60 << 10)).await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    until(&app, &id, |status| status["state"] == "done").await;
}

#[tokio::test]
async fn replies_that_nobody_reads_keep_others_from_long_results() {
    let app = App::with_little_room().await;
    let id = ask(&app, &["caption"; 3]).await;
    let popped = pop(&app, &["caption"], 3).await;
    for form in popped["forms"].as_array().unwrap() {
        let (code, answer) = submit(&app, &form["id"], json!("x".repeat(14_000))).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
    }
    until(&app, &id, |status| status["state"] == "done").await;
    let path = format!("{STATUS}/{id}");
    let unread = app.get(&path).await;
    assert_eq!(unread.status, StatusCode::OK);
    let refused = app.get(&path).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    drop(unread);
    assert_eq!(app.get(&path).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_form_comes_back_three_times_and_the_next_failure_is_its_last() {
    let app = App::start().await;
    let id = ask(&app, &["caption"]).await;
    for expected in ["waiting", "waiting", "waiting", "faulted"] {
        let popped = pop(&app, &["caption"], 1).await;
        let fault = json!({"id": popped["forms"][0]["id"], "result": {}, "state": "faulted"});
        let (code, answer) = post(&app, SUBMIT, fault).await;
        assert_eq!(code, StatusCode::OK, "{answer}");
        until(&app, &id, |status| status["forms"][0]["state"] == expected).await;
    }
    assert_eq!(look(&app, &id).await["state"], "faulted");
}

#[tokio::test]
async fn a_request_without_forms_is_kept_and_has_failed_and_nobody_looks_at_its_image() {
    let app = App::start().await;
    for image in [PNG, "no base64!", "http://localhost/a.png"] {
        let body = json!({"source_image": image, "forms": []});
        let (code, answer) = post(&app, ASYNC, body).await;
        assert_eq!(code, StatusCode::ACCEPTED, "{answer}");
        let status = look(&app, answer["id"].as_str().unwrap()).await;
        assert_eq!(
            (&status["state"], &status["forms"]),
            (&json!("faulted"), &json!([]))
        );
    }
}

#[tokio::test]
async fn what_is_no_image_is_not_looked_at() {
    let app = App::start().await;
    let check = async |mut body: Value, rc: &str| {
        body["forms"] = json!([{"name": "caption"}]);
        let (status, answer) = post(&app, ASYNC, body).await;
        assert_eq!(
            (status.as_u16(), answer["rc"].as_str()),
            (400, Some(rc)),
            "{answer}"
        );
    };
    check(
        json!({"source_image": "no base64!"}),
        "ImageValidationFailed",
    )
    .await;
    check(
        json!({"source_image": "http://localhost/a.png"}),
        "SourceImageUrlInvalid",
    )
    .await;
    check(
        json!({"source_image": PNG, "webhook": "http://example.org"}),
        "BadRequest",
    )
    .await;
}

#[tokio::test]
async fn an_image_that_is_written_into_its_address_is_kept_here_as_any_other() {
    let app = App::start().await;
    let image = format!("data:image/png;base64,{PNG}");
    let body = json!({"source_image": image, "forms": [{"name": "caption"}]});
    let (status, answer) = post(&app, ASYNC, body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    let worker = json!({"name": "looker", "forms": ["caption"]});
    let (_, popped) = post(&app, POP, worker).await;
    let link = popped["forms"][0]["source_image"].as_str().unwrap();
    assert!(link.starts_with(BASE), "{link}");
}
