//! A moderator changes nothing that belongs to a moderator or an administrator.

use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::KeyOrder;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use serde_json::{Value, json};

use super::{POP, call_as, pop, worker};
use crate::support::app::App;
use crate::support::rig::public;

const WORKERS: &str = "/api/v2/workers";

async fn moderator(app: &App) -> String {
    let roles = Roles::USER.with(Roles::MODERATOR).with(Roles::TRUSTED);
    app.account_with(roles, Scopes::ALL).await
}

/// The path of the user who holds this key.
async fn user(app: &App, key: &str) -> String {
    let find = "/api/v2/find_user";
    let (_, found) = call_as(app, key, Method::GET, find, Value::Null).await;
    format!("/api/v2/users/{}", found["id"])
}

/// Creates a resource and returns its path.
async fn made(app: &App, key: &str, path: &str, body: Value) -> String {
    let (status, made) = call_as(app, key, Method::POST, path, body).await;
    assert_eq!(status, StatusCode::OK, "{path}: {made}");
    format!("{path}/{}", made["id"].as_str().unwrap())
}

/// The resources of this key's user, with a change of each.
async fn belongings(app: &App, key: &str, name: &str) -> Vec<(Method, String, Value)> {
    let (status, popped) = call_as(app, key, Method::POST, POP, worker(name)).await;
    assert_eq!(status, StatusCode::OK, "{popped}");
    let path = format!("{WORKERS}/name/{name}");
    let id = app.get(&path).await.json().await["id"].clone();
    let id = id.as_str().unwrap();
    let team = json!({"name": format!("team {name}")});
    let team = made(app, key, "/api/v2/teams", team).await;
    let style = json!({"name": name, "models": ["painter"]});
    let style = made(app, key, "/api/v2/styles/image", style).await;
    let message = json!({"message": "hello", "worker_id": id});
    let message = made(app, key, "/api/v2/workers/messages", message).await;
    let blocked = format!("/api/v2/operations/block_worker_ipaddr/{id}");
    vec![
        (
            Method::PUT,
            user(app, key).await,
            json!({"trusted": true, "username": "loser"}),
        ),
        (
            Method::PUT,
            format!("{WORKERS}/{id}"),
            json!({"maintenance": true}),
        ),
        (Method::PUT, blocked.clone(), json!({})),
        (Method::DELETE, blocked, Value::Null),
        (Method::PATCH, team.clone(), json!({"info": "changed"})),
        (Method::DELETE, team, Value::Null),
        (Method::DELETE, style, Value::Null),
        (Method::DELETE, message, Value::Null),
    ]
}

#[tokio::test]
async fn a_moderator_changes_nothing_of_another_moderator_or_an_administrator() {
    let app = App::start().await;
    pop(&app, "w0").await;
    let (one, other) = (moderator(&app).await, moderator(&app).await);
    let plain = Roles::USER.with(Roles::TRUSTED);
    let plain = app.account_with(plain, Scopes::ALL).await;
    let admin = app.key.clone();
    let mut changes = belongings(&app, &admin, "of-admin").await;
    changes.extend(belongings(&app, &other, "of-moderator").await);
    for (method, path, body) in changes.clone() {
        let place = format!("{method} {path}");
        let (status, answer) = call_as(&app, &one, method, &path, body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{place}: {answer}");
    }
    let may = async |key: &str, changes: Vec<(Method, String, Value)>| {
        for (method, path, body) in changes {
            let place = format!("{method} {path}");
            let (status, answer) = call_as(&app, key, method, &path, body).await;
            assert_ne!(status, StatusCode::FORBIDDEN, "{place}: {answer}");
        }
    };
    may(&one, belongings(&app, &plain, "of-user").await).await;
    may(&admin, changes).await;
}

#[tokio::test]
async fn a_key_that_only_submits_connects_workers_where_a_setting_allows_it() {
    for submit_keys_connect_workers in [false, true] {
        let app = App::with(DoorSettings {
            submit_keys_connect_workers,
            ..DoorSettings::default()
        })
        .await;
        let key = app.key_for(Scopes::INFERENCE_SUBMIT).await;
        let (status, popped) = call_as(&app, &key, Method::POST, POP, worker("polling")).await;
        let expected = match submit_keys_connect_workers {
            true => StatusCode::OK,
            false => StatusCode::FORBIDDEN,
        };
        assert_eq!(status, expected, "{popped}");
        let mut rig = app.dial().await;
        let mut registration = public("on-socket");
        registration["apikey"] = json!(key);
        rig.send(registration).await;
        let answer = rig.next().await;
        let expected = match submit_keys_connect_workers {
            true => "ready",
            false => "error",
        };
        assert_eq!(answer["type"], expected, "{answer}");
    }
}

#[tokio::test]
async fn a_key_that_is_bound_to_a_worker_changes_nothing_else() {
    let app = App::start().await;
    let account = app.accounts.create_account("owner", Roles::USER).await;
    let order = KeyOrder {
        scopes: Scopes::ALL,
        worker_name: Some("rig".to_owned()),
        ..KeyOrder::default()
    };
    let key = app.accounts.create_key(account.unwrap(), order).await;
    let key = key.unwrap().text.expose().to_owned();
    let transfer = json!({"username": "admin#1", "amount": 1});
    let path = "/api/v2/kudos/transfer";
    let (status, answer) = call_as(&app, &key, Method::POST, path, transfer).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("account.manage")
    );
}
