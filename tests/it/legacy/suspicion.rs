//! Suspicion of users and workers, and its effects.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::http::serve::PeerAddress;
use muster::coordinator::rigs::Quotas;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster_testing::eventually;
use serde_json::{Value, json};

use super::{ASYNC, POP, SUBMIT, ask, call, call_as, post, worker};
use crate::support::app::{App, request};

const IMAGES: &str = "/api/v2/generate/async";
/// Too long to be written in no time.
const NOVEL: &str = "and so it went on and on for many years until nobody knew why it had begun or how it would end, \
                     which is how it ended at last one day in the spring of another year than anybody had expected";

/// Where workers are counted, they are looked at, too.
async fn watched() -> App {
    App::with(DoorSettings {
        worker_quotas: Some(Quotas {
            untrusted: 9,
            trusted: 9,
        }),
        ..DoorSettings::default()
    })
    .await
}

async fn owner(app: &App) -> String {
    let roles = Roles::USER.with(Roles::WORKER_OWNER);
    app.account_with(roles, Scopes::ALL).await
}

/// As a moderator sees them.
async fn user(app: &App, key: &str) -> Value {
    let (_, me) = call_as(app, key, Method::GET, "/api/v2/find_user", Value::Null).await;
    let path = format!("/api/v2/users/{}", me["id"]);
    call(app, Method::GET, &path, Value::Null).await.1
}

async fn change_user(app: &App, key: &str, id: &Value, change: Value) -> (StatusCode, Value) {
    call_as(
        app,
        key,
        Method::PUT,
        &format!("/api/v2/users/{id}"),
        change,
    )
    .await
}

/// Suspicion is stored asynchronously after the request.
async fn until(is_so: impl AsyncFn() -> bool) {
    eventually("the suspicion to be written down", is_so).await;
}

async fn until_suspicious(app: &App, key: &str, level: u64) {
    until(async || user(app, key).await["suspicious"] == json!(level)).await;
}

/// Suspicion is written down first.
async fn until_paused(app: &App, name: &str) {
    until(async || is_paused(app, name).await).await;
}

async fn is_paused(app: &App, name: &str) -> bool {
    let path = format!("/api/v2/workers/name/{name}");
    let (_, worker) = call(app, Method::GET, &path, Value::Null).await;
    worker["paused"] == json!(true)
}

#[tokio::test]
async fn a_worker_that_is_too_fast_five_times_is_paused_until_its_owner_is_trusted() {
    let app = watched().await;
    let cheat = owner(&app).await;
    for brought in 1..=5 {
        ask(&app, json!({})).await;
        let (_, popped) = call_as(&app, &cheat, Method::POST, POP, worker("fast")).await;
        let body = json!({"id": popped["id"], "generation": NOVEL});
        let (status, answer) = call_as(&app, &cheat, Method::POST, SUBMIT, body).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        until_suspicious(&app, &cheat, brought).await;
        assert!(brought == 5 || !is_paused(&app, "fast").await);
    }
    until_paused(&app, "fast").await;
    let id = user(&app, &cheat).await["id"].clone();
    let gift = json!({"username": format!("admin#{}", 1), "amount": 1});
    let path = "/api/v2/kudos/transfer";
    let (status, refused) = call_as(&app, &cheat, Method::POST, path, gift).await;
    assert_eq!(
        (status, &refused["rc"]),
        (StatusCode::BAD_REQUEST, &json!("FaultWhenKudosSending"))
    );
    let (status, _) = change_user(&app, &app.key, &id, json!({"trusted": true})).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!is_paused(&app, "fast").await);
}

#[tokio::test]
async fn what_a_worker_is_called_and_says_of_itself_is_held_against_it_once() {
    let app = watched().await;
    let vain = owner(&app).await;
    let long = "w".repeat(101);
    let come = async |path: &str, body: Value| call_as(&app, &vain, Method::POST, path, body).await;
    for _ in 0..2 {
        assert_eq!(come(POP, worker(&long)).await.0, StatusCode::OK);
        until_suspicious(&app, &vain, 1).await;
    }
    let boast = json!({"name": "large", "models": ["tiny"], "max_pixels": 1_000_000_000_000_i64});
    for _ in 0..2 {
        let (status, answer) = come("/api/v2/generate/pop", boast.clone()).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        until_suspicious(&app, &vain, 2).await;
    }
    for _ in 0..2 {
        let (_, answer) = come(POP, worker("b1tch")).await;
        assert_eq!(answer["rc"], "ProfaneWorkerName");
        until_suspicious(&app, &vain, 3).await;
    }
    for _ in 0..2 {
        let (status, _) = come(POP, worker(&"w".repeat(201))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        until_suspicious(&app, &vain, 4).await;
    }
    let id = user(&app, &vain).await["id"].clone();
    for (name, rc, level) in [
        ("u".repeat(31), "TooLongUserName", 5),
        ("a$$hole".to_owned(), "ProfaneUserName", 6),
    ] {
        let (_, answer) = change_user(&app, &vain, &id, json!({"username": name})).await;
        assert_eq!(answer["rc"], rc);
        until_suspicious(&app, &vain, level).await;
    }
    let alias = user(&app, &vain).await["username"].clone();
    let gift = json!({"username": alias, "amount": 1});
    let (status, refused) = post(&app, "/api/v2/kudos/transfer", gift).await;
    assert_eq!(
        (status, &refused["rc"]),
        (StatusCode::BAD_REQUEST, &json!("FaultWhenKudosReceiving"))
    );
}

#[tokio::test]
async fn a_suspicion_of_two_blocks_a_prompt_for_a_text_as_one_for_an_image() {
    let app = App::start().await;
    let stranger = owner(&app).await;
    for (regex, kind) in [("dark", 10), ("side", 20)] {
        let filter = json!({"regex": regex, "filter_type": kind, "replacement": "nice"});
        let (status, _) = call(&app, Method::PUT, "/api/v2/filters", filter).await;
        assert_eq!(status, StatusCode::CREATED);
    }
    let send = async |path: &str, prompt: &str| {
        let body = json!({"prompt": prompt, "replacement_filter": false});
        call_as(&app, &stranger, Method::POST, path, body).await
    };
    for path in [ASYNC, IMAGES] {
        let (status, answer) = send(path, "the dark night").await;
        assert_eq!(status, StatusCode::ACCEPTED, "{path}: {answer}");
    }
    for (path, level) in [(ASYNC, 1), (IMAGES, 1)] {
        let (status, answer) = send(path, "the d4rk s1de").await;
        assert_eq!(
            (status, &answer["rc"]),
            (StatusCode::BAD_REQUEST, &json!("CorruptPrompt")),
            "{path}"
        );
        until_suspicious(&app, &stranger, level).await;
        // Where it came from is kept out now.
        let (_, answer) = send(path, "a harmless text").await;
        assert_eq!(answer["rc"], "TimeoutIP", "{path}");
        let address = json!({"ipaddr": "127.0.0.1"});
        call(&app, Method::DELETE, "/api/v2/operations/ipaddr", address).await;
    }
}

#[tokio::test]
async fn check_is_not_for_programs_that_do_not_say_who_they_are_where_they_are_kept_out() {
    let app = App::start().await;
    let (status, answer) = post(&app, IMAGES, json!({"prompt": "p"})).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let path = format!("/api/v2/generate/check/{}", answer["id"].as_str().unwrap());
    let check = async |agent: Option<&str>| {
        let headers: Vec<_> = agent
            .map(|agent| ("client-agent", agent))
            .into_iter()
            .collect();
        let mut request = request(Method::GET, &path, &headers, Body::empty());
        let address = PeerAddress("192.0.2.7".parse().unwrap());
        request.extensions_mut().insert(address);
        let answer = app.send(request).await;
        (answer.status.as_u16(), answer.json().await["rc"].clone())
    };
    assert_eq!(check(None).await.0, 200);
    let block = json!({"ipaddr": "192.0.2.7", "hours": 1});
    let (status, _) = post(&app, "/api/v2/operations/ipaddr", block).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(check(None).await, (403, json!("Forbidden")));
    assert_eq!(check(Some("unknown:0:unknown")).await.0, 403);
    assert_eq!(check(Some("client:1:somebody")).await.0, 200);
}
