//! Requests as returned to their clients.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::Kudos;
use muster_testing::eventually;
use serde_json::{Value, json};

use super::images::PNG;
use super::money::{Person, refused};
use super::{ASYNC, call, call_as, images, look, pop};
use crate::support::app::{App, request};

const IMAGE: &str = "/api/v2/generate/request";
const TEXT: &str = "/api/v2/generate/text/request";
const KEYS: &str = "/api/v2/sharedkeys";
const STYLES: &str = "/api/v2/styles/text";
const ANYBODY: &str = "0000000000";

/// Asks for it; its id.
async fn ask(app: &App, key: &str, path: &str, body: &Value) -> String {
    let (status, answer) = call_as(app, key, Method::POST, path, body.clone()).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

async fn read(app: &App, key: &str, path: &str, id: &str) -> (StatusCode, Value) {
    let path = format!("{path}/{id}");
    call_as(app, key, Method::GET, &path, Value::Null).await
}

async fn given_back(app: &App, key: &str, path: &str, id: &str) -> Value {
    let (status, sent) = read(app, key, path, id).await;
    assert_eq!(status, StatusCode::OK, "{sent}");
    sent
}

/// Whether the reply contains the whole request.
#[track_caller]
fn holds(sent: &Value, asked: &Value) {
    for (name, value) in asked.as_object().unwrap() {
        match value {
            Value::Object(_) => holds(&sent[name], value),
            value => assert_eq!(&sent[name], value, "{name} in {sent}"),
        }
    }
}

#[tokio::test]
async fn a_request_is_given_back_as_it_was_sent_and_can_be_sent_again() {
    let app = App::start().await;
    app.enrich(Kudos(1_000_000)).await;
    let image = json!({
        "prompt": "a horde of robots", "nsfw": true, "censor_nsfw": false, "trusted_workers": true,
        "slow_workers": false, "models": ["tiny"],
        "params": {
            "width": 512, "height": 576, "steps": 8, "cfg_scale": 1.5, "sampler_name": "k_euler_a", "n": 2,
            "seed": "42",
        },
    });
    let text = json!({
        "prompt": "a text", "trusted_workers": true, "validated_backends": false, "models": ["tiny"],
        "params": {"max_length": 80, "max_context_length": 1024, "n": 1},
    });
    for (from, to, asked) in [(images::ASYNC, IMAGE, image), (ASYNC, TEXT, text)] {
        let mut body = asked.clone();
        body["allow_downgrade"] = json!(true);
        let id = ask(&app, &app.key, from, &body).await;
        let sent = given_back(&app, &app.key, to, &id).await;
        holds(&sent, &asked);
        for untold in ["allow_downgrade", "dry_run", "replacement_filter"] {
            assert_eq!(sent.get(untold), None);
        }
        assert!(!sent.to_string().contains("null"), "{sent}");
        let again = ask(&app, &app.key, from, &sent).await;
        assert_eq!(given_back(&app, &app.key, to, &again).await, sent);
        let headers = [("apikey", app.key.as_str())];
        let path = format!("{to}/{id}");
        let answer = request(Method::GET, &path, &headers, Body::empty());
        let answer = app.send(answer).await;
        assert_eq!(answer.header("cache-control"), Some("private, no-store"));
    }
}

#[tokio::test]
async fn who_wants_no_words_replaced_says_so_again() {
    let app = App::start().await;
    let body = json!({"prompt": "a cat", "models": ["tiny"], "replacement_filter": false});
    let id = ask(&app, &app.key, images::ASYNC, &body).await;
    holds(&given_back(&app, &app.key, IMAGE, &id).await, &body);
}

#[tokio::test]
async fn images_that_came_along_are_given_back_until_they_are_gone() {
    let app = App::start().await;
    let body = json!({
        "prompt": "a cat", "models": ["tiny"], "source_image": PNG, "source_mask": PNG,
        "source_processing": "inpainting",
    });
    let id = ask(&app, &app.key, images::ASYNC, &body).await;
    let sent = given_back(&app, &app.key, IMAGE, &id).await;
    for image in ["source_image", "source_mask"] {
        let image = STANDARD.decode(sent[image].as_str().unwrap()).unwrap();
        assert!(image.starts_with(b"RIFF"));
    }
    assert_eq!(sent["source_processing"], "inpainting");
    let again = ask(&app, &app.key, images::ASYNC, &sent).await;
    for id in [&id, &again] {
        let path = format!("/api/v2/generate/status/{id}");
        call(&app, Method::DELETE, &path, Value::Null).await;
    }
    eventually("no source images", async || app.sources() == 0).await;
    let sent = given_back(&app, &app.key, IMAGE, &id).await;
    assert_eq!(sent["prompt"], "a cat");
    for gone in ["source_image", "source_mask", "source_processing"] {
        assert_eq!(sent.get(gone), None, "{sent}");
    }
    ask(&app, &app.key, images::ASYNC, &sent).await;
}

#[tokio::test]
async fn only_who_has_sent_it_may_read_it() {
    let app = App::with(DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    })
    .await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let bob = Person::new(&app, "bob", Roles::USER.with(Roles::MODERATOR)).await;
    alice.can_give(&app, 1000).await;
    let mut shared = Vec::new();
    for _ in 0..2 {
        let budget = json!({"kudos": 100});
        let (_, key) = call_as(&app, &alice.key, Method::PUT, KEYS, budget).await;
        shared.push(key["id"].as_str().unwrap().to_owned());
    }
    let body = json!({"prompt": "p", "models": ["tiny"]});
    for (from, to) in [(images::ASYNC, IMAGE), (ASYNC, TEXT)] {
        let by_shared = ask(&app, &shared[0], from, &body).await;
        for key in [&shared[0], &alice.key] {
            assert_eq!(given_back(&app, key, to, &by_shared).await["prompt"], "p");
        }
        let by_alice = ask(&app, &alice.key, from, &body).await;
        given_back(&app, &alice.key, to, &by_alice).await;
        for (key, id) in [
            (&shared[1], &by_shared),
            (&bob.key, &by_shared),
            (&app.key, &by_shared),
            (&shared[0], &by_alice),
            (&bob.key, &by_alice),
        ] {
            refused(&read(&app, key, to, id).await, 403, "NotRequestOwner");
        }
        let by_anybody = ask(&app, ANYBODY, from, &body).await;
        for id in [&by_alice, &by_anybody] {
            refused(&read(&app, ANYBODY, to, id).await, 403, "AnonForbidden");
        }
        let unknown = read(&app, "not a key at all", to, &by_alice).await;
        refused(&unknown, 401, "InvalidAPIKey");
    }
}

#[tokio::test]
async fn a_key_that_only_asks_reads_what_it_has_asked_itself() {
    let app = App::start().await;
    let asks = app.key_for(Scopes::INFERENCE_SUBMIT).await;
    let other = app.key_for(Scopes::INFERENCE_SUBMIT).await;
    let body = json!({"prompt": "p", "models": ["tiny"]});
    let id = ask(&app, &asks, ASYNC, &body).await;
    given_back(&app, &asks, TEXT, &id).await;
    given_back(&app, &app.key, TEXT, &id).await;
    refused(&read(&app, &other, TEXT, &id).await, 403, "NotRequestOwner");
}

#[tokio::test]
async fn what_is_not_there_or_of_another_kind_is_not_found() {
    let app = App::start().await;
    let body = json!({"prompt": "p", "models": ["tiny"]});
    let image = ask(&app, &app.key, images::ASYNC, &body).await;
    let text = ask(&app, &app.key, ASYNC, &body).await;
    let nobodys = uuid::Uuid::nil().to_string();
    for (path, id) in [
        (IMAGE, &text),
        (TEXT, &image),
        (IMAGE, &nobodys),
        (TEXT, &nobodys),
        (IMAGE, &"guess".to_owned()),
        (TEXT, &"guess".to_owned()),
    ] {
        let answer = read(&app, &app.key, path, id).await;
        refused(&answer, 404, "RequestNotFound");
    }
}

#[tokio::test]
async fn what_a_style_and_a_filter_have_made_of_it_workers_read_and_its_client_what_was_sent() {
    let app = App::start().await;
    let author = Person::new(&app, "author", Roles::USER.with(Roles::CUSTOMIZER)).await;
    let style = json!({
        "name": "tale", "prompt": "A tale: {p}{rest}", "models": ["other"], "params": {"temperature": 0.5},
    });
    let (status, made) = call_as(&app, &author.key, Method::POST, STYLES, style).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    // Whose words about the young are replaced.
    let flagged = Person::new(&app, "flagged", Roles::USER.with(Roles::FLAGGED)).await;
    let body =
        json!({"prompt": "a kid", "models": ["tiny"], "style": "tale", "params": {"top_k": 4}});
    let id = ask(&app, &flagged.key, ASYNC, &body).await;
    let sent = given_back(&app, &flagged.key, TEXT, &id).await;
    holds(&sent, &body);
    assert_eq!(sent["params"].get("temperature"), None);
    assert!(!look(&app, &id).await.to_string().contains("a kid"));
    let app = app.anew().await;
    assert_eq!(given_back(&app, &flagged.key, TEXT, &id).await, sent);
    refused(
        &read(&app, &author.key, TEXT, &id).await,
        403,
        "NotRequestOwner",
    );
    let popped = pop(&app, "w1").await;
    assert_eq!(popped["payload"]["prompt"], "A tale: a adult", "{popped}");
}

#[tokio::test]
async fn who_pays_for_a_request_by_a_style_does_not_read_it() {
    let app = App::start().await;
    let author = Person::new(&app, "author", Roles::USER.with(Roles::CUSTOMIZER)).await;
    author.can_give(&app, 100).await;
    let asker = Person::new(&app, "asker", Roles::USER).await;
    let (_, key) = call_as(&app, &author.key, Method::PUT, KEYS, json!({"kudos": 50})).await;
    let style =
        json!({"name": "paid", "models": ["tiny"], "prompt": "So: {p}", "sharedkey": key["id"]});
    let (status, made) = call_as(&app, &author.key, Method::POST, STYLES, style).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    let body = json!({"prompt": "Once", "models": ["tiny"], "style": "paid"});
    let id = ask(&app, &asker.key, ASYNC, &body).await;
    holds(&given_back(&app, &asker.key, TEXT, &id).await, &body);
    for key in [&author.key, &key["id"].as_str().unwrap().to_owned()] {
        refused(&read(&app, key, TEXT, &id).await, 403, "NotRequestOwner");
    }
}
