//! A raid: refusals for strangers behind proxies, and silent effects.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::address::Network;
use muster::coordinator::http::serve::PeerAddress;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ASYNC, POP, SUBMIT, ask, call, pop, post, until, worker};
use crate::support::app::{App, PATIENCE, request};
use crate::support::rig::{Closed, public};

const IMAGES: &str = "/api/v2/generate/async";
const FORMS: &str = "/api/v2/interrogate/async";
const HIDDEN: &str = "198.51.100.7";
const PLAIN: &str = "192.0.2.7";

async fn app() -> App {
    let hidden = Network::parse("198.51.100.0/24").unwrap();
    App::with(DoorSettings {
        unsafe_networks: [hidden].into_iter().collect(),
        ..DoorSettings::default()
    })
    .await
}

async fn raid(app: &App, is_on: bool) {
    let path = "/api/v2/status/modes";
    let (status, _) = call(app, Method::PUT, path, json!({"raid_mode": is_on})).await;
    assert_eq!(status, StatusCode::OK);
}

async fn from(
    app: &App,
    address: &str,
    key: &str,
    path: &str,
    body: &Value,
) -> (StatusCode, Value) {
    let body = Body::from(body.to_string());
    let mut request = request(Method::POST, path, &[("apikey", key)], body);
    let address = PeerAddress(address.parse().unwrap());
    request.extensions_mut().insert(address);
    let answer = app.send(request).await;
    (answer.status, answer.json().await)
}

#[tokio::test]
async fn in_a_raid_untrusted_users_ask_for_nothing_from_where_they_hide() {
    let app = app().await;
    let stranger = app.account_with(Roles::USER, Scopes::ALL).await;
    let known = [Roles::TRUSTED, Roles::VPN, Roles::MODERATOR];
    let asks = [
        (ASYNC, json!({"prompt": "p"})),
        (IMAGES, json!({"prompt": "p"})),
        (
            FORMS,
            json!({"source_image": super::forms::PNG, "forms": [{"name": "caption"}]}),
        ),
    ];
    for (path, body) in &asks {
        let (status, answer) = from(&app, HIDDEN, &stranger, path, body).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{path}: {answer}");
    }
    raid(&app, true).await;
    for (path, body) in &asks {
        let (status, answer) = from(&app, HIDDEN, &stranger, path, body).await;
        assert_eq!(
            (status, &answer["rc"]),
            (StatusCode::FORBIDDEN, &json!("UntrustedUnsafeIP")),
            "{path}"
        );
        let (status, _) = from(&app, PLAIN, &stranger, path, body).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{path}");
    }
    for role in known {
        let key = app.account_with(role, Scopes::ALL).await;
        let (status, _) = from(&app, HIDDEN, &key, ASYNC, &json!({"prompt": "p"})).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{role:?}");
    }
}

#[tokio::test]
async fn a_chat_from_where_one_hides_is_for_trusted_workers_and_in_a_raid_for_none() {
    const CHAT: &str = "/v1/chat/completions";
    let (app, user) = (app().await, Roles::USER);
    let stranger = app.account_with(user, Scopes::ALL).await;
    let untrusted = app
        .account_with(user.with(Roles::WORKER_OWNER), Scopes::ALL)
        .await;
    let trusted = app
        .account_with(user.with(Roles::TRUSTED), Scopes::ALL)
        .await;
    let chat = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]});
    let comes = async |key: &str, name: &str| from(&app, PLAIN, key, POP, &worker(name)).await.1;
    comes(&untrusted, "theirs").await;
    comes(&trusted, "ours").await;
    let work = async {
        eventually("a job for the trusted", async || {
            comes(&untrusted, "theirs").await["skipped"]["untrusted"] == 1
        })
        .await;
        let popped = comes(&trusted, "ours").await;
        let brought = json!({"id": popped["id"], "generation": " hello", "seed": 1});
        let (status, told) = from(&app, PLAIN, &trusted, SUBMIT, &brought).await;
        assert_eq!(status, StatusCode::OK, "{told}");
    };
    let asked = from(&app, HIDDEN, &stranger, CHAT, &chat);
    let ((status, answer), ()) = timeout(PATIENCE, async { tokio::join!(asked, work) })
        .await
        .unwrap();
    assert_eq!(status, StatusCode::OK, "{answer}");
    raid(&app, true).await;
    let (status, answer) = from(&app, HIDDEN, &stranger, CHAT, &chat).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::FORBIDDEN, &json!("access_denied")),
        "{answer}"
    );
}

#[tokio::test]
async fn a_socket_comes_from_where_one_hides_only_if_its_owner_is_known() {
    let (app, user) = (app().await, Roles::USER);
    let stranger = app
        .account_with(user.with(Roles::WORKER_OWNER), Scopes::ALL)
        .await;
    let known = app.account_with(user.with(Roles::VPN), Scopes::ALL).await;
    let comes = async |key: &str, name: &str, address: &str| {
        let mut rig = app.dial_from(address).await;
        let mut registration = public(name);
        registration["apikey"] = json!(key);
        rig.send(registration).await;
        (rig.next().await, rig)
    };
    for (key, name, address) in [(&stranger, "theirs", PLAIN), (&known, "known", HIDDEN)] {
        let (told, _rig) = comes(key, name, address).await;
        assert_eq!(told["type"], "ready", "{told}");
    }
    for is_on in [false, true] {
        raid(&app, is_on).await;
        let (told, mut rig) = comes(&stranger, "theirs", HIDDEN).await;
        assert_eq!(told["type"], "error", "{told}");
        assert_eq!(rig.closed().await, Closed::Code(4003));
    }
}

#[tokio::test]
async fn in_a_raid_nobody_is_told_that_no_worker_is_online() {
    let app = app().await;
    let told = async |path: &str| {
        let (status, answer) = post(&app, path, json!({"prompt": "p"})).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        (
            answer.get("message").cloned(),
            answer.get("warnings").cloned(),
        )
    };
    let (message, warnings) = told(IMAGES).await;
    assert!(message.is_some() && warnings.is_some());
    assert!(told(ASYNC).await.0.is_some());
    raid(&app, true).await;
    assert_eq!(told(IMAGES).await, (None, None));
    assert_eq!(told(ASYNC).await.0, None);
}

#[tokio::test]
async fn workers_that_hide_are_refused_and_in_a_raid_get_their_owners_jobs_and_no_word() {
    let app = app().await;
    let stranger = app.account_with(Roles::USER.with(Roles::WORKER_OWNER), Scopes::ALL);
    let stranger = stranger.await;
    let come = async || from(&app, HIDDEN, &stranger, POP, &worker("hidden")).await;
    for path in [POP, "/api/v2/generate/pop", "/api/v2/interrogate/pop"] {
        let (status, answer) = from(&app, HIDDEN, &stranger, path, &worker("hidden")).await;
        assert_eq!(
            (status, &answer["rc"]),
            (StatusCode::FORBIDDEN, &json!("UnsafeIP")),
            "{path}"
        );
    }
    raid(&app, true).await;
    let others = ask(&app, json!({})).await;
    let (status, answer) = come().await;
    assert_eq!((status, &answer["id"]), (StatusCode::OK, &Value::Null));
    let own = json!({"prompt": "p", "models": ["tiny"]});
    from(&app, PLAIN, &stranger, ASYNC, &own).await;
    let (_, given) = come().await;
    assert!(given["id"].is_string(), "{given}");
    assert!(come().await.1["id"].is_null());
    assert!(pop(&app, "w1").await["id"].is_string());
    until(&app, &others, |status| status["processing"] == 1).await;
}
