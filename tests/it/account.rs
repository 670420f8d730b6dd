//! `/v1/account`: what an account sees of itself, its keys, and its money.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::{KeyOrder, Roles, Scopes};
use serde_json::{Value, json};

use super::support::app::{Answer, App, request};
use super::support::puppet::Puppet;

async fn call(app: &App, key: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    let body = body.map_or(Body::empty(), |body| body.to_string().into());
    app.send(request(method, path, &[("apikey", key)], body))
        .await
}

async fn get(app: &App, key: &str, path: &str) -> Value {
    let answer = call(app, key, Method::GET, path, None).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}");
    answer.json().await
}

async fn create_key(app: &App, key: &str, body: Value) -> Answer {
    call(app, key, Method::POST, "/v1/account/keys", Some(body)).await
}

fn chat(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn an_account_shows_its_keys_without_their_texts() {
    let app = App::start().await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    let answer = call(&app, &key, Method::GET, "/v1/account", None).await;
    assert_eq!(answer.header("cache-control"), Some("private, no-store"));
    let text = answer.text().await;
    assert!(!text.contains(&key), "{text}");
    let account: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(account["keys"].as_array().unwrap().len(), 1);
    assert_eq!(account["keys"][0]["revoked"], false);
    assert!(account["kudos"].is_number());
}

#[tokio::test]
async fn a_key_is_created_with_some_scopes_shown_once_and_revoked_at_once() {
    let app = App::start().await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    let body = json!({"label": "laptop", "scopes": ["account.read"], "expires_in": 3600});
    let made = create_key(&app, &key, body).await;
    assert_eq!(made.status, StatusCode::OK);
    let made = made.json().await;
    assert_eq!(made["scopes"], json!(["account.read"]));
    assert!(made["expires"].is_string());
    let new = made["api_key"].as_str().unwrap();
    let listed = get(&app, new, "/v1/account/keys").await;
    assert_eq!(listed["count"], 2);
    assert_eq!(listed["keys"][1]["label"], "laptop");
    assert!(listed["keys"][1].get("api_key").is_none());
    let refused = create_key(&app, new, json!({})).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let path = format!("/v1/account/keys/{}", made["id"].as_str().unwrap());
    for count in [1, 0] {
        let revoked = call(&app, &key, Method::DELETE, &path, None).await;
        assert_eq!(revoked.json().await["count"], count);
    }
    let answer = call(&app, new, Method::GET, "/v1/account", None).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_key_creates_no_key_with_more_scopes_or_a_longer_life() {
    let app = App::start().await;
    let scopes = Scopes::ACCOUNT_READ.with(Scopes::ACCOUNT_MANAGE);
    let key = app.account_with(Roles::USER, scopes).await;
    let more = json!({"scopes": ["account.manage", "inference.submit"]});
    let refused = create_key(&app, &key, more).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let refused = refused.json().await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("inference.submit"), "{message}");
    // By default what its own key is good for.
    let usual = create_key(&app, &key, json!({})).await.json().await;
    assert_eq!(usual["scopes"], json!(["account.read"]));
    for (body, param) in [
        (json!({"scopes": []}), "scopes"),
        (json!({"scopes": ["everything"]}), "scopes"),
        (json!({"purpose": "validator"}), "purpose"),
        (json!({"name": "laptop"}), "name"),
    ] {
        let refused = create_key(&app, &key, body).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{param}");
        assert_eq!(refused.json().await["error"]["param"], param);
    }
    let short = create_key(
        &app,
        &key,
        json!({"scopes": ["account.manage"], "expires_in": 60}),
    );
    let short = short.await.json().await;
    let short = short["api_key"].as_str().unwrap();
    let scopes = json!(["account.manage"]);
    let refused = create_key(&app, short, json!({"scopes": scopes, "expires_in": 3600})).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let inherited = create_key(&app, short, json!({"scopes": scopes})).await;
    assert!(inherited.json().await["expires"].is_string());
}

#[tokio::test]
async fn keys_of_another_account_are_not_found() {
    let app = App::start().await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    let others = get(&app, &app.key, "/v1/account/keys").await;
    let path = format!(
        "/v1/account/keys/{}",
        others["keys"][0]["id"].as_str().unwrap()
    );
    let refused = call(&app, &key, Method::DELETE, &path, None).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
    get(&app, &app.key, "/v1/account").await;
}

#[tokio::test]
async fn a_key_that_is_bound_to_a_worker_does_not_open_the_account() {
    let app = App::start().await;
    let keys = app.accounts.list_keys().await.unwrap();
    let order = KeyOrder {
        scopes: Scopes::ALL,
        worker_name: Some("rig".to_owned()),
        ..KeyOrder::default()
    };
    let bound = app
        .accounts
        .create_key(keys[0].account, order)
        .await
        .unwrap();
    for path in ["/v1/account", "/v1/account/keys", "/v1/account/jobs"] {
        let answer = call(&app, bound.text.expose(), Method::GET, path, None).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
}

#[tokio::test]
async fn an_account_lists_its_own_jobs_page_by_page() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let other = app.account_with(Roles::USER, Scopes::ALL).await;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let body = chat(json!({}));
        let (answer, ()) = tokio::join!(app.chat(&body), rig.answer(&["Hel", "lo"]));
        jobs.push(answer.header("x-job-id").unwrap().to_owned());
    }
    jobs.reverse();
    let ids = |page: &Value| -> Vec<String> {
        let jobs = page["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = get(&app, &app.key, "/v1/account/jobs?limit=2").await;
    assert_eq!(ids(&first), jobs[..2]);
    assert_eq!(first["jobs"][0]["state"], "delivered");
    assert_eq!(first["jobs"][0]["completion_tokens"], 3);
    let next = first["next_before"].as_str().unwrap();
    let path = format!("/v1/account/jobs?limit=2&before={next}");
    let second = get(&app, &app.key, &path).await;
    assert_eq!(ids(&second), jobs[2..]);
    assert_eq!(second["next_before"], Value::Null);
    assert_eq!(
        get(&app, &other, "/v1/account/jobs").await["jobs"],
        json!([])
    );
    let text = first.to_string();
    for secret in ["prompt\"", "messages", "Hel"] {
        assert!(!text.contains(secret), "{text}");
    }
    for wrong in ["limit=0", "limit=201", "before=some"] {
        let path = format!("/v1/account/jobs?{wrong}");
        let answer = call(&app, &app.key, Method::GET, &path, None).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let workers = get(&app, &app.key, "/v1/account/workers").await;
    assert_eq!(workers["count"], 0);
}
