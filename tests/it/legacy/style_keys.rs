//! Styles whose author pays for their uses, with a shared key.

use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::KeyOrder;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::Kudos;
use serde_json::{Value, json};

use super::money::{Person, refused};
use super::{ASYNC, call_as, pop, submit, until};
use crate::support::app::App;
use crate::support::contract::assert_fits;

const KEYS: &str = "/api/v2/sharedkeys";
const TEXT: &str = "/api/v2/styles/text";
const IMAGE: &str = "/api/v2/styles/image";

async fn author(app: &App, name: &str) -> Person {
    let author = Person::new(app, name, Roles::USER.with(Roles::CUSTOMIZER)).await;
    author.can_give(app, 100).await;
    author
}

async fn key_of(app: &App, owner: &Person, body: Value) -> String {
    let (status, key) = call_as(app, &owner.key, Method::PUT, KEYS, body).await;
    assert_eq!(status, StatusCode::OK, "{key}");
    key["id"].as_str().unwrap().to_owned()
}

/// The style as shown to this key; an empty key is none.
async fn shown(app: &App, key: &str, path: &str) -> Value {
    let (status, shown) = call_as(app, key, Method::GET, path, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{path}");
    shown
}

fn style(name: &str, key: &str) -> Value {
    json!({"name": name, "models": ["tiny"], "prompt": "So: {p}", "sharedkey": key})
}

async fn make(app: &App, owner: &Person, name: &str, key: &str) -> (StatusCode, Value) {
    call_as(app, &owner.key, Method::POST, TEXT, style(name, key)).await
}

async fn ask(app: &App, key: &str, more: Value) -> (StatusCode, Value) {
    let mut body = json!({"prompt": "Once upon", "models": ["tiny"], "style": "letters"});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    call_as(app, key, Method::POST, ASYNC, body).await
}

async fn serve(app: &App, answer: (StatusCode, Value)) {
    assert_eq!(answer.0, StatusCode::ACCEPTED, "{}", answer.1);
    let popped = pop(app, "w1").await;
    assert_eq!(popped["payload"]["prompt"], "So: Once upon");
    submit(app, &popped["id"], " a time.").await;
    let id = answer.1["id"].as_str().unwrap();
    until(app, id, |status| status["done"] == true).await;
}

#[tokio::test]
async fn what_is_made_with_a_style_its_author_pays_and_the_key() {
    let app = App::with(DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    })
    .await;
    let (alice, bob) = (author(&app, "alice").await, author(&app, "bob").await);
    // Limits of a key do not apply to the styles of its own user.
    let limited = json!({"kudos": 50, "max_text_tokens": 16});
    let key = key_of(&app, &alice, limited).await;
    let (status, made) = make(&app, &alice, "letters", &key).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    serve(&app, ask(&app, &bob.key, json!({})).await).await;
    let spent = 100_000 - app.store.spendable(alice.account).await.unwrap().0;
    assert!(spent > 1000, "{spent}");
    assert_eq!(bob.left(&app).await, 100, "he pays nothing");
    let after = shown(&app, "", &format!("{KEYS}/{key}")).await;
    assert_eq!(after["utilized"], spent / 1000);
    serve(&app, ask(&app, "0000000000", json!({})).await).await;
    let twice = shown(&app, "", &format!("{KEYS}/{key}")).await;
    assert!(twice["utilized"].as_i64() > after["utilized"].as_i64());
    // Without the style the key opens nothing.
    let direct = json!({"prompt": "p", "models": ["tiny"]});
    let direct = call_as(&app, &key, Method::POST, ASYNC, direct).await;
    refused(&direct, 403, "SharedKeyAssignedStyles");
    let nobody = ask(&app, &"A".repeat(22), json!({})).await;
    refused(&nobody, 401, "InvalidAPIKey");
    let sums = app.store.ledger_sums().await.unwrap();
    assert_eq!((sums.entries, sums.wrong_jobs), (Kudos(0), 0));
    let path = format!("{TEXT}/{}", made["id"].as_str().unwrap());
    let (status, _) = call_as(&app, &alice.key, Method::DELETE, &path, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let direct = json!({"prompt": "p", "models": ["tiny"], "params": {"max_length": 16}});
    let direct = call_as(&app, &key, Method::POST, ASYNC, direct).await;
    assert_eq!(
        direct.0,
        StatusCode::ACCEPTED,
        "it opens again: {}",
        direct.1
    );
}

#[tokio::test]
async fn a_style_whose_key_has_nothing_left_is_paid_for_by_whoever_uses_it() {
    let app = App::start().await;
    let (alice, bob) = (author(&app, "alice").await, author(&app, "bob").await);
    let key = key_of(&app, &alice, json!({"kudos": 3})).await;
    assert_eq!(make(&app, &alice, "letters", &key).await.0, StatusCode::OK);
    let expensive = json!({"params": {"n": 4}});
    refused(
        &ask(&app, &bob.key, expensive).await,
        403,
        "SharedKeyInsufficientKudos",
    );
    let path = format!("{KEYS}/{key}");
    let change = json!({"kudos": 0});
    call_as(&app, &alice.key, Method::PATCH, &path, change).await;
    serve(&app, ask(&app, &bob.key, json!({})).await).await;
    assert!(bob.left(&app).await < 100);
    assert!(alice.left(&app).await >= 100, "she earns the fee");
    call_as(&app, &alice.key, Method::DELETE, &path, Value::Null).await;
    serve(&app, ask(&app, &bob.key, json!({})).await).await;
}

#[tokio::test]
async fn a_style_whose_key_is_kept_for_others_is_paid_for_by_nobody_else() {
    let app = App::start().await;
    let (alice, bob) = (author(&app, "alice").await, author(&app, "bob").await);
    let key = key_of(&app, &alice, json!({"kudos": 3})).await;
    assert_eq!(make(&app, &alice, "letters", &key).await.0, StatusCode::OK);
    let all = json!({"allow_downgrade": true, "params": {"n": 10}});
    let (status, taken) = ask(&app, &bob.key, all).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{taken}");
    refused(
        &ask(&app, &bob.key, json!({})).await,
        403,
        "SharedKeyInsufficientKudos",
    );
    let (status, made) = make(&app, &alice, "poems", &key).await;
    assert_eq!(status, StatusCode::OK, "{made}");
}

#[tokio::test]
async fn only_a_good_key_of_its_author_pays_for_a_style() {
    let app = App::start().await;
    let (alice, bob) = (author(&app, "alice").await, author(&app, "bob").await);
    let (his, empty) = (
        key_of(&app, &bob, json!({})).await,
        key_of(&app, &alice, json!({"kudos": 0})).await,
    );
    let expired = key_of(&app, &alice, json!({})).await;
    let path = format!("{KEYS}/{expired}");
    call_as(&app, &alice.key, Method::PATCH, &path, json!({"expiry": 0})).await;
    let unknown = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
    for (key, rc) in [
        (&*his, "SharedKeyInvalid"),
        (unknown, "SharedKeyInvalid"),
        ("nonsense", "SharedKeyInvalid"),
        (&*empty, "SharedKeyEmpty"),
        (&*expired, "SharedKeyExpired"),
    ] {
        refused(&make(&app, &alice, "letters", key).await, 400, rc);
    }
    let body = json!({"name": "oil", "models": ["tiny"]});
    let (_, made) = call_as(&app, &alice.key, Method::POST, IMAGE, body).await;
    let path = format!("{IMAGE}/{}", made["id"].as_str().unwrap());
    let patch = async |key: &str| {
        let body = json!({"sharedkey": key});
        call_as(&app, &alice.key, Method::PATCH, &path, body).await
    };
    refused(&patch(&his).await, 400, "SharedKeyInvalid");
    let good = key_of(&app, &alice, json!({"name": "for oil"})).await;
    assert_eq!(patch(&good).await.0, StatusCode::OK);
    let style = shown(&app, &alice.key, &path).await;
    assert_fits("StyleImage", &style);
    assert_eq!(
        (&style["shared_key"]["id"], &style["shared_key"]["name"]),
        (&json!(good), &json!("for oil"))
    );
    let listed = shown(&app, &alice.key, IMAGE).await;
    assert_eq!(listed, json!([style]));
    // Any holder of a key may spend it.
    let order = KeyOrder {
        scopes: Scopes::WORKER_CONNECT,
        ..KeyOrder::default()
    };
    let of_worker = app.accounts.create_key(alice.account, order).await.unwrap();
    let of_worker = of_worker.text.expose();
    for stranger in ["", "0000000000", "wrong", &bob.key, of_worker] {
        let one = shown(&app, stranger, &path).await;
        assert!(one.get("shared_key").is_none(), "{one}");
        assert_eq!(shown(&app, stranger, IMAGE).await, json!([one]));
    }
}

#[tokio::test]
async fn a_key_comes_to_a_text_style_later_and_only_its_author_sees_it() {
    let app = App::start().await;
    let (alice, bob) = (author(&app, "alice").await, author(&app, "bob").await);
    let body = json!({"name": "letters", "models": ["tiny"], "prompt": "So: {p}"});
    let (_, made) = call_as(&app, &alice.key, Method::POST, TEXT, body).await;
    let path = format!("{TEXT}/{}", made["id"].as_str().unwrap());
    let key = key_of(&app, &alice, json!({"kudos": 50})).await;
    let patch = async |key: &str| {
        let body = json!({"sharedkey": key});
        call_as(&app, &alice.key, Method::PATCH, &path, body).await
    };
    refused(&patch("nonsense").await, 400, "SharedKeyInvalid");
    assert_eq!(patch(&key).await.0, StatusCode::OK);
    let style = shown(&app, &alice.key, &path).await;
    assert_eq!(style["shared_key"]["id"], json!(key), "{style}");
    let style = shown(&app, &bob.key, &path).await;
    assert_fits("StyleText", &style);
    assert!(style.get("shared_key").is_none(), "{style}");
    serve(&app, ask(&app, &bob.key, json!({})).await).await;
    assert!(shown(&app, "", &format!("{KEYS}/{key}")).await["utilized"].as_i64() > Some(0));
}

#[tokio::test]
async fn those_who_use_a_style_have_as_much_room_together_as_its_author() {
    let app = App::with(DoorSettings {
        polled_texts: 2,
        ..DoorSettings::default()
    })
    .await;
    let (alice, bob) = (author(&app, "alice").await, author(&app, "bob").await);
    let carol = author(&app, "carol").await;
    let key = key_of(&app, &alice, json!({"kudos": 5000})).await;
    make(&app, &alice, "letters", &key).await;
    for person in [&bob, &carol] {
        let answer = ask(&app, &person.key, json!({})).await;
        assert_eq!(answer.0, StatusCode::ACCEPTED, "{}", answer.1);
    }
    refused(&ask(&app, &bob.key, json!({})).await, 429, "TooManyPrompts");
    let own = json!({"prompt": "p", "models": ["tiny"]});
    let own = call_as(&app, &bob.key, Method::POST, ASYNC, own).await;
    assert_eq!(own.0, StatusCode::ACCEPTED, "his own room is not theirs");
}
