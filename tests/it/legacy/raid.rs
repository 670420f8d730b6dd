//! A raid: what strangers from addresses that hide them are refused, and what nobody is told.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::{Roles, Scopes};
use muster::coordinator::address::Network;
use muster::coordinator::http::PeerAddress;
use muster::coordinator::state::DoorSettings;
use serde_json::{Value, json};

use super::{ASYNC, POP, ask, call, pop, post, until, worker};
use crate::support::app::{App, request};

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
