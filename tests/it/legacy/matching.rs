//! Matching of workers and jobs, and strikes: the rules that texts, images and interrogations share.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::address::Network;
use muster::coordinator::http::serve::PeerAddress;
use muster::coordinator::names::Names;
use muster::coordinator::rigs::Quotas;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::Kudos;
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{call, call_as, post};
use crate::support::app::{App, request};
use crate::support::contract::assert_fits;
use crate::support::rig::Closed;

const IMAGES: &str = "/api/v2/generate";
const FORMS: &str = "/api/v2/interrogate";
const NEWEST: &str = "AI Horde Worker reGen:13:test";
/// A worker that takes less has no measured speed.
const WORK: Duration = Duration::from_millis(20);
/// One pixel each.
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
    let drawn = super::images::drawn_at(1024, 640);
    let body = json!({"id": id, "generation": drawn, "seed": 1});
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
    // Results without delay are not used to measure speed.
    sleep(WORK).await;
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
    sleep(WORK).await;
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

#[tokio::test]
async fn the_model_of_a_pop_is_any_of_those_that_both_name() {
    let app = App::start().await;
    let models = json!({"models": ["tiny", "other"], "params": {"n": 2}});
    let mut drawn = BTreeSet::new();
    for _ in 0..20 {
        ask_image(&app, models.clone()).await;
        let (_, popped) = pop_image(
            &app,
            json!({"models": ["third", "tiny", "other"], "amount": 2}),
        )
        .await;
        assert_eq!(popped["ids"].as_array().unwrap().len(), 2, "{popped}");
        drawn.insert(popped["model"].as_str().unwrap().to_owned());
        for id in popped["ids"].as_array().unwrap() {
            assert_eq!(bring_image(&app, id).await.0, StatusCode::OK);
        }
    }
    assert_eq!(drawn, ["other", "tiny"].map(str::to_owned).into());
}

#[tokio::test]
async fn where_known_image_models_are_served_alone_customizers_may_serve_others() {
    let app = App::with(DoorSettings {
        known_image_models_only: true,
        ..DoorSettings::default()
    })
    .await;
    let pop = async |roles: Roles, name: &str, models: Value| {
        let key = app.account_with(roles, Scopes::ALL).await;
        let body = json!({"name": name, "models": models, "bridge_agent": NEWEST});
        call_as(&app, &key, Method::POST, &format!("{IMAGES}/pop"), body).await
    };
    let (status, told) = pop(
        Roles::USER,
        "plain",
        json!(["AlbedoBase XL (SDXL)", "mine"]),
    )
    .await;
    assert_eq!(status, StatusCode::OK, "{told}");
    let kept = worker(&app, "plain").await["models"].clone();
    assert_eq!(kept, json!(["AlbedoBase XL (SDXL)"]));
    let (status, told) = pop(Roles::USER.with(Roles::VPN), "own", json!(["mine"])).await;
    assert_eq!(
        (status, &told["rc"]),
        (StatusCode::BAD_REQUEST, &json!("BadRequest"))
    );
    let message = told["message"].as_str().unwrap();
    assert!(
        message
            .to_lowercase()
            .contains("we cannot accept workers serving")
    );
    let (status, told) = pop(Roles::CUSTOMIZER, "rich", json!(["mine"])).await;
    assert_eq!(status, StatusCode::OK, "{told}");
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
async fn software_is_given_what_it_can_do_and_told_when_it_is_too_old() {
    let app = App::start().await;
    let skips = async |agent: &str, more: Value| {
        let more = with(json!({"bridge_agent": agent}), more);
        let (_, popped) = pop_image(&app, more).await;
        assert!(popped["id"].is_null(), "{popped}");
        popped["skipped"].clone()
    };
    ask_image(&app, json!({"params": {"loras": [{"name": "a"}]}})).await;
    let lora = json!({"allow_lora": true});
    let skipped = skips("AI Horde Worker:21:x", lora.clone()).await;
    assert_eq!(skipped["lora"], 1, "{skipped}");
    let (_, popped) = pop_image(&app, lora).await;
    assert!(popped["id"].is_string(), "{popped}");
    ask_image(&app, json!({})).await;
    let models = json!({"models": ["tiny", "Flux.1-Schnell fp8 (Compact)"]});
    let skipped = skips("AI Horde Worker reGen:8:x", models.clone()).await;
    assert_eq!(skipped["bridge_version"], 1, "{skipped}");
    let (_, popped) = pop_image(&app, models).await;
    assert!(popped["id"].is_string(), "{popped}");
}

#[tokio::test]
async fn a_soft_prompt_keeps_a_text_from_no_worker_and_its_client_is_told() {
    let app = App::start().await;
    let soft = with(
        super::worker("soft"),
        json!({"softprompts": ["haiku", "noir"]}),
    );
    post(&app, super::POP, soft.clone()).await;
    for worker in [super::worker("plain"), soft] {
        let body = json!({"prompt": "Once", "models": ["tiny"], "softprompt": "noir"});
        let (status, asked) = post(&app, super::ASYNC, body).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{asked}");
        assert_eq!(asked["message"], "softprompt has no effect", "{asked}");
        let (_, popped) = post(&app, super::POP, worker).await;
        assert!(popped["id"].is_string(), "{popped}");
        assert_eq!(popped["softprompt"], Value::Null);
        assert_fits("GenerationPayloadText", &popped);
    }
}

const TEXTS: &str = "/api/v2/generate/text";

/// Looks at a worker until it is as wanted.
async fn until_it_is(app: &App, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually("the wanted worker", async || {
        let worker = worker(app, name).await;
        match wanted(&worker) {
            true => Ok(worker),
            false => Err(worker),
        }
    })
    .await
}

fn check(answer: (StatusCode, Value), status: u16, rc: &str) {
    let found = answer.1["rc"].as_str().unwrap_or_default();
    assert_eq!((answer.0.as_u16(), found), (status, rc), "{}", answer.1);
}

async fn with_quotas() -> App {
    App::with(DoorSettings {
        worker_quotas: Some(Quotas::default()),
        ..DoorSettings::default()
    })
    .await
}

#[tokio::test]
async fn a_name_belongs_to_workers_of_one_kind() {
    let app = App::start().await;
    let bodies = [
        (TEXTS, json!({"models": ["tiny"]})),
        (IMAGES, json!({"models": ["tiny"]})),
        (FORMS, json!({"forms": ["caption"]})),
    ];
    for (path, body) in &bodies {
        let named = with(body.clone(), json!({"name": path}));
        assert_eq!(
            post(&app, &format!("{path}/pop"), named).await.0,
            StatusCode::OK
        );
    }
    for (path, body) in &bodies {
        for (other, _) in bodies.iter().filter(|(other, _)| other != path) {
            let named = with(body.clone(), json!({"name": other}));
            let answer = post(&app, &format!("{path}/pop"), named).await;
            check(answer, 400, "PolymorphicNameConflict");
        }
    }
}

#[tokio::test]
async fn new_workers_come_by_invitation_where_that_is_switched_on() {
    let app = App::start().await;
    let owner = app.account_with(Roles::USER, Scopes::ALL).await;
    let find = "/api/v2/find_user";
    let (_, found) = call_as(&app, &owner, Method::GET, find, Value::Null).await;
    let user = format!("/api/v2/users/{}", found["id"]);
    let come = async |name: &str| {
        let body = json!({"name": name, "models": ["tiny"]});
        call_as(&app, &owner, Method::POST, &format!("{TEXTS}/pop"), body).await
    };
    check(come("before").await, 200, "");
    let modes = json!({"invite_only_mode": true});
    call(&app, Method::PUT, "/api/v2/status/modes", modes).await;
    check(come("before").await, 200, "");
    check(come("one").await, 403, "WorkerInviteOnly");
    call(&app, Method::PUT, &user, json!({"worker_invited": 2})).await;
    check(come("one").await, 200, "");
    check(come("two").await, 403, "WorkerInviteOnly");
    check(come("one").await, 200, "");
}

#[tokio::test]
async fn so_many_new_workers_come_from_one_address() {
    let app = with_quotas().await;
    let trusted = Roles::USER.with(Roles::TRUSTED);
    let owner = app.account_with(trusted, Scopes::ALL).await;
    let find = "/api/v2/find_user";
    let (_, found) = call_as(&app, &owner, Method::GET, find, Value::Null).await;
    let user = format!("/api/v2/users/{}", found["id"]);
    call(&app, Method::PUT, &user, json!({"worker_invited": 40})).await;
    let come = async |address: &str, number: usize| {
        let body = json!({"name": format!("{address} {number}"), "models": ["tiny"]});
        from(&app, address, &owner, &format!("{TEXTS}/pop"), body).await
    };
    for number in 0..21 {
        check(come("192.0.2.7", number).await, 200, "");
    }
    check(come("192.0.2.7", 21).await, 403, "TooManySameIPs");
    check(come("192.0.2.8", 0).await, 200, "");
    check(come("192.0.2.7", 0).await, 200, "");
}

#[tokio::test]
async fn what_a_class_asks_for_is_fit_for_it_and_goes_to_trusted_workers() {
    let app = App::start().await;
    let class = app.account_with(Roles::EDUCATION, Scopes::ALL).await;
    let stranger = app.account_with(Roles::USER, Scopes::ALL).await;
    let asked = json!({
        "prompt": "a cat", "models": ["tiny"], "nsfw": true, "censor_nsfw": false, "shared": true,
    });
    let (status, told) = call_as(
        &app,
        &class,
        Method::POST,
        &format!("{IMAGES}/async"),
        asked,
    )
    .await;
    assert_eq!(status, StatusCode::ACCEPTED, "{told}");
    let mild = json!({
        "name": "theirs", "models": ["tiny"], "bridge_agent": NEWEST, "nsfw": false,
    });
    let path = format!("{IMAGES}/pop");
    let (_, popped) = call_as(&app, &stranger, Method::POST, &path, mild).await;
    assert_eq!(popped["skipped"]["untrusted"], 1, "{popped}");
    assert_eq!(popped["skipped"]["nsfw"], 0);
    let (_, popped) = pop_image(&app, json!({"nsfw": false})).await;
    assert_eq!(popped["payload"]["use_nsfw_censor"], true, "{popped}");
    assert_eq!(bring_image(&app, &popped["id"]).await.0, StatusCode::OK);
}

#[tokio::test]
async fn all_who_ask_without_a_key_share_the_room_of_a_model_and_not_of_all() {
    let app = App::with(DoorSettings {
        anonymous: true,
        names: Names::of([("crowded", ["Org/Crowded"]), ("quiet", ["Org/Quiet"])]),
        ..DoorSettings::default()
    })
    .await;
    let ask = async |model: &str| {
        let body = json!({"prompt": "p", "models": [model], "params": {"n": 20}});
        let path = format!("{TEXTS}/async");
        call_as(&app, "0000000000", Method::POST, &path, body).await
    };
    let mut taken = 0;
    let full = loop {
        match ask("crowded").await {
            (StatusCode::ACCEPTED, _) => taken += 1,
            full => break full,
        }
        assert!(taken < 100);
    };
    check(full, 429, "TooManyPrompts");
    assert_eq!(taken, 25, "500 texts");
    check(ask("quiet").await, 202, "");
    check(ask("Org/Crowded").await, 429, "TooManyPrompts");
    // Unlisted models without workers share one limit under all names.
    for number in 0..25 {
        check(ask(&format!("made up {number}")).await, 202, "");
    }
    check(ask("another").await, 429, "TooManyPrompts");
    check(ask("quiet").await, 202, "");
}

/// A text that this worker takes and does not make, and another does.
async fn dropped_by(app: &App, name: &str, ask: impl AsyncFn() -> Value) {
    let path = format!("{TEXTS}/submit");
    let pop = async |name: &str| {
        let body = json!({"name": name, "models": ["tiny"], "max_length": 512});
        post(app, &format!("{TEXTS}/pop"), body).await.1["id"].clone()
    };
    ask().await;
    let fault = json!({"id": pop(name).await, "generation": "", "state": "faulted"});
    assert_eq!(post(app, &path, fault).await.0, StatusCode::OK);
    let done = json!({"id": pop("other").await, "generation": "made"});
    assert_eq!(post(app, &path, done).await.0, StatusCode::OK);
    // Occasional failures block no worker.
    ask().await;
    let done = json!({"id": pop(name).await, "generation": "made"});
    assert_eq!(post(app, &path, done).await.0, StatusCode::OK);
}

#[tokio::test]
async fn whoever_drops_too_many_jobs_is_in_maintenance_and_jobs_that_fail_everywhere_are_nobodys_fault()
 {
    let app = App::start().await;
    let ask = async || {
        let body = json!({"prompt": "p", "models": ["tiny"], "params": {"max_length": 80}});
        post(&app, &format!("{TEXTS}/async"), body).await.1
    };
    for _ in 0..20 {
        dropped_by(&app, "careless", ask).await;
    }
    assert_eq!(worker(&app, "careless").await["maintenance_mode"], false);
    assert_eq!(worker(&app, "careless").await["uncompleted_jobs"], 20);
    // A job that no worker can complete.
    let id = ask().await["id"].as_str().unwrap().to_owned();
    for name in ["careless", "other", "third"] {
        let body = json!({"name": name, "models": ["tiny"], "max_length": 512});
        let (_, popped) = post(&app, &format!("{TEXTS}/pop"), body).await;
        let fault = json!({"id": popped["id"], "generation": "", "state": "faulted"});
        assert_eq!(
            post(&app, &format!("{TEXTS}/submit"), fault).await.0,
            StatusCode::OK
        );
    }
    let status = super::until(&app, &id, |status| status["faulted"] == true).await;
    assert_eq!(status["done"], true);
    let careless = worker(&app, "careless").await;
    assert_eq!(
        (&careless["uncompleted_jobs"], &careless["maintenance_mode"]),
        (&json!(20), &json!(false))
    );
    dropped_by(&app, "careless", ask).await;
    until_it_is(&app, "careless", |worker| {
        worker["maintenance_mode"] == true
    })
    .await;
    assert_eq!(worker(&app, "other").await["maintenance_mode"], false);
}

#[tokio::test]
async fn whoever_is_faster_than_any_card_is_paused_after_the_fifth_time() {
    let app = with_quotas().await;
    app.enrich(Kudos(10_000_000)).await;
    let owner = app.account_with(Roles::USER, Scopes::ALL).await;
    let pop = async || {
        let body = json!({"name": "wonder", "models": ["tiny"], "bridge_agent": NEWEST});
        call_as(&app, &owner, Method::POST, &format!("{IMAGES}/pop"), body)
            .await
            .1
    };
    for number in 0..5 {
        // So many steps that looking at the image is no part of its time worth naming.
        let many = json!({"params": {"steps": 300}});
        let (status, told) = ask_image(&app, many).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{told}");
        let popped = pop().await;
        assert_eq!(worker(&app, "wonder").await["paused"], false, "{number}");
        // Nothing has to be encoded anew, which would take longer than the drawing.
        let sent = super::images::upload(&app, &popped["r2_upload"]).await;
        assert_eq!(sent, StatusCode::OK);
        let body = json!({"id": popped["id"], "generation": "R2", "seed": 1});
        let (status, told) = call_as(
            &app,
            &owner,
            Method::POST,
            &format!("{IMAGES}/submit"),
            body,
        )
        .await;
        assert_eq!(status, StatusCode::OK, "{told}");
    }
    until_it_is(&app, "wonder", |worker| worker["paused"] == true).await;
    let (_, asked) = ask_image(&app, json!({})).await;
    let shown = pop().await;
    assert!(shown["id"].is_string());
    let path = format!("{IMAGES}/check/{}", asked["id"].as_str().unwrap());
    let status = app.get(&path).await.json().await;
    assert_eq!(status["waiting"], 1, "it is given copies");
}

#[tokio::test]
async fn a_worker_on_a_socket_is_kept_out_by_its_address_like_one_that_polls() {
    let app = App::start().await;
    let mut rig = app.dial_from("192.0.2.44").await;
    let registration = json!({
        "apikey": app.key, "name": "painter", "models": ["tiny"], "job_types": ["image"],
        "bridge_agent": "painter/1",
    });
    rig.send(registration).await;
    assert_eq!(rig.next().await["type"], "ready");
    let id = worker(&app, "painter").await["id"].clone();
    let path = format!(
        "/api/v2/operations/block_worker_ipaddr/{}",
        id.as_str().unwrap()
    );
    // The address is stored during the registration.
    eventually("the worker's address", async || {
        match call(&app, Method::PUT, &path, json!({})).await {
            (StatusCode::OK, _) => Ok(()),
            refused => Err(refused),
        }
    })
    .await;
    let body = json!({"name": "other", "models": ["tiny"]});
    let path = format!("{TEXTS}/pop");
    let answer = from(&app, "192.0.2.44", &app.key, &path, body).await;
    check(answer, 403, "TimeoutIP");
    let told = rig.frame().await;
    assert_eq!(told["type"], "error", "{told}");
    assert_eq!(rig.closed().await, Closed::Code(4003));
}
