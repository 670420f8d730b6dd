//! Who pays for a request, and what is kept of their kudos until it has ended.

use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::Roles;
use muster::coordinator::state::DoorSettings;
use muster::protocol::job::{AccountId, Kudos};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::money::{Person, refused};
use super::{ASYNC, STATUS, call_as, look, pop, submit, until};
use crate::support::app::{App, PATIENCE};

const KEYS: &str = "/api/v2/sharedkeys";

/// A shared key of somebody.
async fn shared_key(app: &App, owner: &Person, body: Value) -> String {
    let (status, key) = call_as(app, &owner.key, Method::PUT, KEYS, body).await;
    assert_eq!(status, StatusCode::OK, "{key}");
    key["id"].as_str().unwrap().to_owned()
}

async fn shown(app: &App, key: &str) -> Value {
    let path = format!("{KEYS}/{key}");
    call_as(app, "", Method::GET, &path, Value::Null).await.1
}

async fn ask(app: &App, key: &str, more: Value) -> (StatusCode, Value) {
    let mut body = json!({"prompt": "Once upon", "models": ["tiny"]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    call_as(app, key, Method::POST, ASYNC, body).await
}

#[track_caller]
fn accepted((status, body): (StatusCode, Value)) -> String {
    assert_eq!(status, StatusCode::ACCEPTED, "{body}");
    body["id"].as_str().unwrap().to_owned()
}

/// Waits until nothing is kept of an account any more.
async fn nothing_is_held(app: &App, account: AccountId) {
    let began = Instant::now();
    while app.store.held(account).await.unwrap() != Kudos(0) {
        assert!(began.elapsed() < PATIENCE, "something is kept");
        sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_dry_run_is_answered_with_its_price_alone_and_asks_nobody() {
    let app = App::start().await;
    let dry = json!({"dry_run": true, "params": {"max_length": 100, "max_context_length": 1024}});
    let (status, answer) = ask(&app, &app.key, dry.clone()).await;
    // Of a model of a billion parameters: 100 · 2.2 / 100, and two kudos more.
    assert_eq!((status, answer), (StatusCode::OK, json!({"kudos": 4.0})));
    assert_eq!(app.board.overview().queued, 0);
    refused(
        &ask(&app, "not a key at all", dry.clone()).await,
        401,
        "InvalidAPIKey",
    );
    let wrong = json!({"dry_run": true, "prompt": ""});
    refused(&ask(&app, &app.key, wrong).await, 400, "MissingPrompt");
}

#[tokio::test]
async fn what_is_asked_with_a_shared_key_its_owner_pays_and_the_key() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let key = shared_key(&app, &alice, json!({"kudos": 50})).await;
    let id = accepted(ask(&app, &key, json!({})).await);
    let popped = pop(&app, "w1").await;
    submit(&app, &popped["id"], " a time.").await;
    until(&app, &id, |status| status["done"] == true).await;
    let key = shown(&app, &key).await;
    let spent = 100_000 - app.store.spendable(alice.account).await.unwrap().0;
    assert!(spent > 1000, "{spent}");
    assert_eq!(key["utilized"], spent / 1000);
    assert_eq!(key["kudos"], (50_000 - spent).div_euclid(1000));
    let sums = app.store.ledger_sums().await.unwrap();
    assert_eq!((sums.entries, sums.wrong_jobs), (Kudos(0), 0));
}

#[tokio::test]
async fn a_shared_key_opens_nothing_but_what_it_is_for() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let key = shared_key(&app, &alice, json!({})).await;
    for path in [
        "/api/v2/kudos/transfer",
        "/api/v2/kudos/award",
        "/v1/chat/completions",
    ] {
        let (status, _) = call_as(&app, &key, Method::POST, path, json!({})).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let unknown = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    refused(&ask(&app, unknown, json!({})).await, 401, "InvalidAPIKey");
}

#[tokio::test]
async fn a_shared_key_is_refused_where_it_cannot_pay() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let empty = shared_key(&app, &alice, json!({"kudos": 0})).await;
    let poor = shared_key(&app, &alice, json!({"kudos": 1})).await;
    let small = shared_key(&app, &alice, json!({"max_text_tokens": 20})).await;
    refused(&ask(&app, &empty, json!({})).await, 403, "SharedKeyEmpty");
    refused(
        &ask(&app, &poor, json!({})).await,
        403,
        "SharedKeyInsufficientKudos",
    );
    let long = json!({"params": {"max_length": 21}});
    refused(&ask(&app, &small, long).await, 400, "BadRequest");
    accepted(ask(&app, &small, json!({"params": {"max_length": 20}})).await);
    let path = format!("{KEYS}/{small}");
    call_as(&app, &alice.key, Method::PATCH, &path, json!({"expiry": 0})).await;
    refused(&ask(&app, &small, json!({})).await, 403, "SharedKeyExpired");
}

#[tokio::test]
async fn who_takes_less_for_an_empty_key_waits_as_anonymous() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 100).await;
    let empty = shared_key(&app, &alice, json!({"kudos": 0})).await;
    let id = accepted(ask(&app, &empty, json!({"allow_downgrade": true})).await);
    let popped = pop(&app, "w1").await;
    submit(&app, &popped["id"], " a time.").await;
    until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(alice.left(&app).await, 100, "she pays nothing");
    assert_eq!(shown(&app, &empty).await["utilized"], 0);
}

#[tokio::test]
async fn a_long_text_is_paid_for_before_and_what_was_kept_is_given_back() {
    let settings = DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    // 1,000 tokens of a model of a billion parameters: 47.6 kudos.
    let long = json!({"params": {"max_length": 1000, "max_context_length": 2048}});
    alice.can_give(&app, 40).await;
    refused(
        &ask(&app, &alice.key, long.clone()).await,
        403,
        "KudosUpfront",
    );
    assert_eq!(app.board.overview().queued, 0);
    alice.can_give(&app, 60).await;
    let id = accepted(ask(&app, &alice.key, long.clone()).await);
    assert_eq!(alice.left(&app).await, 12, "the rest is kept");
    // It can neither be kept twice nor given away.
    refused(
        &ask(&app, &alice.key, long.clone()).await,
        403,
        "KudosUpfront",
    );
    let bob = Person::new(&app, "bob", Roles::USER).await;
    let gift = json!({"username": bob.alias(), "amount": 20});
    let gift = call_as(
        &app,
        &alice.key,
        Method::POST,
        "/api/v2/kudos/transfer",
        gift,
    )
    .await;
    refused(&gift, 400, "KudosTransferNotEnough");
    let path = format!("{STATUS}/{id}");
    call_as(&app, "", Method::DELETE, &path, Value::Null).await;
    nothing_is_held(&app, alice.account).await;
    assert_eq!(alice.left(&app).await, 60);
}

#[tokio::test]
async fn who_takes_less_for_too_few_kudos_gets_a_shorter_text() {
    let app = App::start().await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    alice.can_give(&app, 0).await;
    let long = json!({
        "params": {"max_length": 1000, "max_context_length": 2048}, "allow_downgrade": true,
    });
    let id = accepted(ask(&app, &alice.key, long).await);
    let popped = pop(&app, "w1").await;
    assert_eq!(popped["payload"]["max_length"], 512);
    assert_eq!(look(&app, &id).await["processing"], 1);
    assert_eq!(app.store.held(alice.account).await.unwrap(), Kudos(0));
}
