//! What workers are told: by whom, whom it reaches, and who may read it.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{POP, call, call_as, images, pop, post, worker};
use crate::support::app::{App, request};
use crate::support::contract::{assert_all_fit, assert_fits};

const MESSAGES: &str = "/api/v2/workers/messages";

async fn user(app: &App, roles: Roles) -> String {
    app.account_with(roles, Scopes::ALL).await
}

async fn id_of(app: &App, name: &str) -> Value {
    let path = format!("/api/v2/workers/name/{name}");
    app.get(&path).await.json().await["id"].clone()
}

/// Sends a message and returns its path.
async fn tell(app: &App, key: &str, body: Value) -> String {
    let (status, made) = call_as(app, key, Method::POST, MESSAGES, body).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    assert_fits("WorkerMessage", &made);
    format!("{MESSAGES}/{}", made["id"].as_str().unwrap())
}

async fn told(app: &App, key: &str, name: &str) -> Vec<String> {
    let (status, popped) = call_as(app, key, Method::POST, POP, worker(name)).await;
    assert_eq!(status, StatusCode::OK, "{popped}");
    assert_fits("GenerationPayloadText", &popped);
    texts(&popped["messages"])
}

fn texts(list: &Value) -> Vec<String> {
    let messages = list.as_array().unwrap().iter();
    let texts = messages.map(|it| it["message"].as_str().unwrap().to_owned());
    texts.collect()
}

fn check(answer: (StatusCode, Value), status: u16, rc: &str) {
    let found = answer.1["rc"].as_str().unwrap_or_default();
    assert_eq!((answer.0.as_u16(), found), (status, rc), "{}", answer.1);
}

#[tokio::test]
async fn a_message_is_told_with_every_pop_until_it_is_taken_back() {
    let app = App::start().await;
    pop(&app, "w1").await;
    let id = id_of(&app, "w1").await;
    let all = tell(&app, &app.key, json!({"message": "hello, all"})).await;
    let one = json!({"message": "hello, you", "worker_id": id, "origin": "me", "expiry": 1});
    let one = tell(&app, &app.key, one).await;
    for _ in 0..2 {
        assert_eq!(
            told(&app, &app.key, "w1").await,
            ["hello, all", "hello, you"]
        );
    }
    assert_eq!(told(&app, &app.key, "w2").await, ["hello, all"]);
    // With a job as without one.
    super::ask(&app, json!({})).await;
    let popped = pop(&app, "w2").await;
    assert!(popped["id"].is_string());
    assert_eq!(popped["messages"][0]["origin"], "Muster Moderators");
    let drawn = images::popped(&app).await;
    assert_eq!(texts(&drawn["messages"]), ["hello, all"]);
    let (_, shown) = call(&app, Method::GET, &one, Value::Null).await;
    assert_eq!((&shown["worker_id"], &shown["origin"]), (&id, &json!("me")));
    let (_, seen) = call(&app, Method::GET, "/api/v2/workers/name/w1", Value::Null).await;
    assert_eq!(seen["messages"], json!([shown]), "moderators see it there");
    for path in [&all, &one] {
        let gone = call(&app, Method::DELETE, path, Value::Null).await;
        assert_eq!(gone, (StatusCode::OK, json!({"message": "OK"})));
        let shown = app.get(path).await;
        check(
            (shown.status, shown.json().await),
            404,
            "WorkermessageNotFound",
        );
    }
    assert!(told(&app, &app.key, "w1").await.is_empty());
}

#[tokio::test]
async fn owners_write_to_their_workers_and_moderators_to_all() {
    let app = App::with(DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    })
    .await;
    let alice = user(&app, Roles::USER).await;
    let moderator = user(&app, Roles::USER.with(Roles::MODERATOR)).await;
    told(&app, &alice, "hers").await;
    pop(&app, "his").await;
    let (hers, his) = (id_of(&app, "hers").await, id_of(&app, "his").await);
    let write =
        async |key: &str, body: Value| call_as(&app, key, Method::POST, MESSAGES, body).await;
    let to = |id: &Value| json!({"message": "m", "worker_id": id, "origin": "The Moderators"});
    let broadcast = json!({"message": "m"});
    check(write(&alice, to(&his)).await, 403, "MessagesOnlyOwnWorkers");
    check(
        write(&alice, broadcast.clone()).await,
        403,
        "MessagesOnlyOwnWorkers",
    );
    check(
        write("0000000000", broadcast.clone()).await,
        403,
        "AnonForbidden",
    );
    check(
        write(&"A".repeat(22), broadcast).await,
        401,
        "InvalidAPIKey",
    );
    for nobody in [json!(Uuid::new_v4()), json!("x".repeat(36))] {
        check(write(&alice, to(&nobody)).await, 404, "WorkerNotFound");
    }
    for wrong in [
        json!({"message": ""}),
        json!({"message": "m", "expiry": 721}),
        json!({"message": "m", "expiry": 0}),
        json!({"message": "x".repeat(10_241)}),
        json!({}),
    ] {
        let (status, answer) = write(&moderator, wrong).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(answer["errors"].is_object(), "{answer}");
    }
    let (_, own) = write(&alice, to(&hers)).await;
    assert_eq!(own["origin"], own["user_id"], "{own}");
    let (_, other) = write(&moderator, to(&hers)).await;
    assert_eq!(other["origin"], "The Moderators");
    let path = |message: &Value| format!("{MESSAGES}/{}", message["id"].as_str().unwrap());
    let delete = async |key: &str, path: String| {
        call_as(&app, key, Method::DELETE, &path, Value::Null).await
    };
    check(delete(&alice, path(&other)).await, 403, "Forbidden");
    check(delete("0000000000", path(&own)).await, 403, "Forbidden");
    assert_eq!(delete(&moderator, path(&own)).await.0, StatusCode::OK);
    check(
        delete(&moderator, path(&own)).await,
        404,
        "WorkermessageNotFound",
    );
}

#[tokio::test]
async fn everybody_reads_what_is_theirs_and_moderators_read_all() {
    let app = App::start().await;
    let (alice, bob) = (
        user(&app, Roles::USER).await,
        user(&app, Roles::USER.with(Roles::TRUSTED)).await,
    );
    told(&app, &alice, "hers").await;
    told(&app, &bob, "his").await;
    let (hers, his) = (id_of(&app, "hers").await, id_of(&app, "his").await);
    tell(&app, &app.key, json!({"message": "to all"})).await;
    tell(
        &app,
        &app.key,
        json!({"message": "to her", "worker_id": hers}),
    )
    .await;
    tell(&app, &bob, json!({"message": "to his", "worker_id": his})).await;
    let list = async |key: &str, query: &str| {
        let path = format!("{MESSAGES}{query}");
        call_as(&app, key, Method::GET, &path, Value::Null).await
    };
    let seen = async |key: &str, query: &str| {
        let (status, list) = list(key, query).await;
        assert_eq!(status, StatusCode::OK, "{list}");
        assert_all_fit("WorkerMessage", &list);
        let mut texts = texts(&list);
        texts.sort_unstable();
        texts
    };
    assert_eq!(seen(&alice, "").await, ["to all", "to her"]);
    assert_eq!(seen(&bob, "").await, ["to all", "to his"]);
    assert_eq!(seen(&app.key, "").await, ["to all", "to her", "to his"]);
    assert!(seen(&app.key, "?validity=expired").await.is_empty());
    assert_eq!(seen(&app.key, "?validity=all").await.len(), 3);
    assert!(seen(&app.key, "?page=2").await.is_empty());
    let of = |id: &Value| format!("?worker_id={}", id.as_str().unwrap());
    assert_eq!(seen(&alice, &of(&hers)).await, ["to her"]);
    check(list(&alice, &of(&his)).await, 403, "Forbidden");
    assert_eq!(seen(&app.key, &of(&his)).await, ["to his"]);
    let (_, whoever) = call_as(&app, &bob, Method::GET, "/api/v2/find_user", Value::Null).await;
    let by_bob = format!("?user_id={}", whoever["id"]);
    assert_eq!(seen(&bob, &by_bob).await, ["to his"]);
    check(list(&alice, &by_bob).await, 403, "Forbidden");
    check(list(&alice, "?validity=old").await, 400, "BadRequest");
    check(
        list(&alice, "?worker_id=nobody").await,
        404,
        "WorkerNotFound",
    );
    check(list(&alice, "?user_id=nobody").await, 400, "BadRequest");
}

#[tokio::test]
async fn a_worker_is_not_told_more_than_it_can_hear() {
    let app = App::start().await;
    pop(&app, "w1").await;
    let body = json!({"message": "m", "worker_id": id_of(&app, "w1").await});
    for _ in 0..20 {
        tell(&app, &app.key, body.clone()).await;
    }
    check(post(&app, MESSAGES, body).await, 403, "Forbidden");
    tell(&app, &app.key, json!({"message": "m"})).await;
    assert_eq!(told(&app, &app.key, "w1").await.len(), 21);
}

#[tokio::test]
async fn x_fields_masks_what_is_told() {
    let app = App::start().await;
    let headers = [("apikey", app.key.as_str()), ("x-fields", "message")];
    let send = async |method: Method, path: &str, body: Body| {
        let answer = app.send(request(method, path, &headers, body)).await;
        answer.json().await
    };
    let one = json!({"message": "m"});
    let body = || one.to_string().into();
    assert_eq!(send(Method::POST, MESSAGES, body()).await, one);
    let list = send(Method::GET, MESSAGES, Body::empty()).await;
    assert_eq!(list, json!([one]));
    let path = tell(&app, &app.key, one.clone()).await;
    assert_eq!(send(Method::GET, &path, Body::empty()).await, one);
    let gone = send(Method::DELETE, &path, Body::empty()).await;
    assert_eq!(gone, json!({"message": "OK"}));
}
