//! Which worker is given what, and what is held against it: whatever is the same for texts, images and questions.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::{Roles, Scopes};
use muster::coordinator::address::Network;
use muster::coordinator::http::PeerAddress;
use muster::coordinator::state::DoorSettings;
use muster::protocol::job::Kudos;
use serde_json::{Value, json};

use super::{call, post};
use crate::support::app::{App, request};
use crate::support::contract::assert_fits;

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
    let large = json!({"params": {"n": 2, "width": 1024, "steps": 40}});
    let (status, told) = ask_image(&app, large).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{told}");
    let (_, popped) = pop_image(&app, json!({"amount": 2, "max_pixels": 4_194_304})).await;
    assert_eq!(popped["ids"].as_array().unwrap().len(), 2, "{popped}");
    for id in popped["ids"].as_array().unwrap() {
        assert_eq!(bring_image(&app, id).await.0, StatusCode::OK);
    }
    let artist = worker(&app, "artist").await;
    let megapixelsteps: f64 = 2.0 * 1024.0 * 512.0 * 40.0 / 1e6;
    assert_eq!(
        artist["megapixelsteps_generated"],
        json!(megapixelsteps.round())
    );
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

#[tokio::test]
async fn an_image_may_name_the_workers_it_is_for_or_those_it_is_not_for() {
    let app = App::start().await;
    for name in ["one", "two"] {
        pop_image(&app, json!({"name": name})).await;
    }
    let two = worker(&app, "two").await["id"].clone();
    for unknown in [json!(uuid::Uuid::new_v4()), json!("nobody")] {
        let (status, told) = ask_image(&app, json!({"workers": [unknown]})).await;
        assert_eq!(
            (status, &told["rc"]),
            (StatusCode::NOT_FOUND, &json!("WorkerNotFound"))
        );
    }
    for (denied, stranger, chosen) in [(false, "one", "two"), (true, "two", "one")] {
        let named = json!({"workers": [two], "worker_blacklist": denied});
        let (status, told) = ask_image(&app, named).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{told}");
        let (_, popped) = pop_image(&app, json!({"name": stranger})).await;
        assert_eq!(
            (&popped["id"], &popped["skipped"]["worker_id"]),
            (&Value::Null, &json!(1))
        );
        let (_, popped) = pop_image(&app, json!({"name": chosen})).await;
        assert!(popped["id"].is_string(), "{popped}");
    }
}

#[tokio::test]
async fn whoever_asks_a_model_for_what_it_is_not_made_for_is_told_and_served() {
    let app = App::start().await;
    // More steps than a model is made for are paid for before.
    app.enrich(Kudos(1_000_000)).await;
    let asked = json!({
        "models": ["DreamShaper XL"], "params": {"steps": 30, "cfg_scale": 7.5, "clip_skip": 1},
    });
    let (status, answer) = ask_image(&app, asked).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_fits("RequestAsync", &answer);
    let warnings = answer["warnings"].as_array().unwrap();
    let codes: Vec<&str> = warnings
        .iter()
        .map(|it| it["code"].as_str().unwrap())
        .collect();
    let expected = [
        "StepsTooMany",
        "CfgScaleTooLarge",
        "SamplerMismatch",
        "NoAvailableWorker",
    ];
    assert_eq!(codes, expected, "{answer}");
    pop_image(&app, json!({})).await;
    let (_, answer) = ask_image(&app, json!({})).await;
    assert!(answer.get("warnings").is_none(), "{answer}");
}

async fn from(app: &App, address: &str, key: &str, path: &str, body: Value) -> (StatusCode, Value) {
    let body = Body::from(body.to_string());
    let mut request = request(Method::POST, path, &[("apikey", key)], body);
    let address = PeerAddress(address.parse().unwrap());
    request.extensions_mut().insert(address);
    let answer = app.send(request).await;
    (answer.status, answer.json().await)
}

#[tokio::test]
async fn what_comes_from_a_hidden_address_goes_to_trusted_workers_that_take_such() {
    let hidden = Network::parse("198.51.100.0/24").unwrap();
    let app = App::with(DoorSettings {
        unsafe_networks: [hidden].into_iter().collect(),
        ..DoorSettings::default()
    })
    .await;
    let (user, trusted) = (Roles::USER, Roles::USER.with(Roles::TRUSTED));
    let stranger = app.account_with(user, Scopes::ALL).await;
    let known = app.account_with(trusted, Scopes::ALL).await;
    let image = json!({"prompt": "a cat", "models": ["tiny"]});
    let path = format!("{IMAGES}/async");
    let (status, _) = from(&app, "198.51.100.7", &stranger, &path, image.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let come = async |key: &str, name: &str, more: Value| {
        let plain = json!({
            "name": name, "models": ["tiny"], "bridge_agent": NEWEST, "max_pixels": 1_048_576,
        });
        let path = format!("{IMAGES}/pop");
        from(&app, "192.0.2.7", key, &path, with(plain, more))
            .await
            .1
    };
    let popped = come(&stranger, "theirs", json!({})).await;
    assert_eq!(popped["skipped"]["untrusted"], 1, "{popped}");
    let wary = json!({"allow_unsafe_ipaddr": false});
    let popped = come(&known, "wary", wary.clone()).await;
    assert_eq!(popped["skipped"]["unsafe_ip"], 1, "{popped}");
    assert!(come(&known, "ours", json!({})).await["id"].is_string());
    let (status, _) = from(&app, "198.51.100.7", &known, &path, image).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert!(come(&stranger, "wary too", wary).await["id"].is_string());

    let forms = json!({"source_image": PNG, "forms": [{"name": "caption"}, {"name": "caption"}]});
    let path = format!("{FORMS}/async");
    from(&app, "198.51.100.7", &stranger, &path, forms).await;
    let looker = json!({"name": "looker", "forms": ["caption"]});
    let path = format!("{FORMS}/pop");
    let (_, popped) = from(&app, "192.0.2.7", &stranger, &path, looker).await;
    assert_eq!(popped["skipped"], json!({"untrusted": 2}));
}

#[tokio::test]
async fn skipped_images_are_counted_by_their_requests() {
    let app = App::start().await;
    for n in [1, 4] {
        let asked = json!({"models": ["another"], "params": {"n": n}});
        ask_image(&app, asked).await;
    }
    let (_, popped) = pop_image(&app, json!({})).await;
    assert_eq!(popped["skipped"]["models"], 2, "{popped}");
    ask_image(&app, json!({"prompt": "a Dog", "params": {"n": 3}})).await;
    let (_, popped) = pop_image(&app, json!({"blacklist": ["dog"]})).await;
    assert_eq!(popped["skipped"]["blacklist"], 1, "{popped}");
}

#[tokio::test]
async fn a_text_with_a_soft_prompt_goes_to_a_worker_that_names_it() {
    let app = App::start().await;
    let body = json!({"prompt": "Once", "models": ["tiny"], "softprompt": "noir"});
    let (status, asked) = post(&app, super::ASYNC, body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{asked}");
    let plain = super::pop(&app, "plain").await;
    assert_eq!(
        (&plain["id"], &plain["skipped"], &plain["softprompt"]),
        (
            &Value::Null,
            &json!({"matching_softprompt": 1}),
            &Value::Null
        )
    );
    let soft = with(
        super::worker("soft"),
        json!({"softprompts": ["haiku", "noir"]}),
    );
    let (_, popped) = post(&app, super::POP, soft.clone()).await;
    assert_eq!(popped["softprompt"], "noir", "{popped}");
    assert_fits("GenerationPayloadText", &popped);
    // What wants none is for all.
    super::ask(&app, json!({})).await;
    let (_, other) = post(&app, super::POP, soft).await;
    assert_eq!(other["softprompt"], Value::Null);
    assert!(other["id"].is_string());
}
