//! Users of the poll API: made for tests, found, seen, changed and sent away.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::KeyOrder;
use muster::coordinator::people::Development;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use serde_json::{Value, json};

use super::call_as;
use super::money::Person;
use crate::support::app::{App, request};

const TEST_USER: &str = "/api/v2/dev/test-user";
const FIND: &str = "/api/v2/find_user";

async fn in_development(admins: &[&str]) -> App {
    let admins = admins.iter().map(|admin| (*admin).to_owned()).collect();
    App::with(DoorSettings {
        development: Some(Development {
            admins,
            ..Development::default()
        }),
        anonymous: true,
        ..DoorSettings::default()
    })
    .await
}

/// A user as asked for.
async fn user(app: &App, body: Value) -> Value {
    let (status, user) = call_as(app, "", Method::POST, TEST_USER, body).await;
    assert_eq!(status, StatusCode::OK, "{user}");
    user
}

async fn named(app: &App, name: &str) -> Value {
    user(app, json!({"username": name, "oauth_id": name})).await
}

async fn get(app: &App, key: &str, path: &str) -> (StatusCode, Value) {
    call_as(app, key, Method::GET, path, Value::Null).await
}

async fn put(app: &App, key: &Value, id: &Value, change: Value) -> (StatusCode, Value) {
    let path = format!("/api/v2/users/{id}");
    call_as(app, key.as_str().unwrap(), Method::PUT, &path, change).await
}

async fn delete(app: &App, key: &Value, id: &Value) -> (StatusCode, Value) {
    let path = format!("/api/v2/users/{id}");
    call_as(
        app,
        key.as_str().unwrap(),
        Method::DELETE,
        &path,
        Value::Null,
    )
    .await
}

async fn find(app: &App, user: &Value) -> Value {
    let (status, found) = get(app, user["api_key"].as_str().unwrap(), FIND).await;
    assert_eq!(status, StatusCode::OK, "{found}");
    found
}

#[tokio::test]
async fn a_test_user_is_made_once_and_given_a_new_key_each_time() {
    let app = in_development(&[]).await;
    let body = json!({"username": "alice", "oauth_id": "a", "kudos": 1000, "trusted": true});
    let first = user(&app, body).await;
    assert_eq!(
        (
            &first["created"],
            &first["kudos"],
            &first["trusted"],
            &first["moderator"]
        ),
        (&json!(true), &json!(1000.0), &json!(true), &json!(false)),
    );
    assert_eq!(first["alias"], format!("alice#{}", first["user_id"]));
    let body = json!({"username": "alice", "oauth_id": "a", "kudos": 30, "moderator": true});
    let again = user(&app, body).await;
    assert_eq!(
        (&again["created"], &again["user_id"]),
        (&json!(false), &first["user_id"])
    );
    assert_eq!(
        (&again["kudos"], &again["trusted"]),
        (&json!(30.0), &json!(true))
    );
    assert_ne!(again["api_key"], first["api_key"]);
    assert_eq!(find(&app, &again).await["kudos"], 30.0);
    let (status, _) = get(&app, first["api_key"].as_str().unwrap(), FIND).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let as_before = user(&app, json!({"username": "alice", "oauth_id": "a"})).await;
    assert_eq!(
        (&as_before["kudos"], &as_before["moderator"]),
        (&json!(30.0), &json!(false))
    );
    let poor = user(&app, json!({"username": "bob", "oauth_id": "b"})).await;
    assert_eq!(poor["kudos"], 25.0, "everybody begins at their floor");
}

#[tokio::test]
async fn without_development_mode_there_is_no_such_path() {
    let app = App::start().await;
    let body = json!({"username": "alice", "oauth_id": "a"});
    let path = request(
        Method::POST,
        TEST_USER,
        &[("apikey", &app.key)],
        body.to_string().into(),
    );
    assert_eq!(app.send(path).await.status, StatusCode::NOT_FOUND);
    let document = app.get("/openapi.json").await.json().await;
    assert!(document["paths"][TEST_USER].is_null());
}

#[tokio::test]
async fn the_configuration_says_who_is_an_administrator_in_development() {
    let app = in_development(&["root", "carol#9999"]).await;
    let (root, carol) = (named(&app, "root").await, named(&app, "carol").await);
    let more = json!({"kudos": 5});
    let (status, changed) = put(&app, &root["api_key"], &carol["user_id"], more.clone()).await;
    assert_eq!(
        (status, &changed),
        (StatusCode::OK, &json!({"new_kudos": 30.0}))
    );
    let (status, refused) = put(&app, &carol["api_key"], &root["user_id"], more).await;
    assert_eq!(
        (status, &refused["rc"]),
        (StatusCode::FORBIDDEN, &json!("NotAdmin"))
    );
}

#[tokio::test]
async fn a_key_finds_its_user_and_an_unknown_one_nobody() {
    let app = in_development(&[]).await;
    let alice = named(&app, "alice").await;
    let found = find(&app, &alice).await;
    assert_eq!(
        (&found["id"], &found["username"]),
        (&alice["user_id"], &alice["alias"])
    );
    assert_eq!(
        (&found["worker_ids"], &found["pseudonymous"]),
        (&json!([]), &json!(false))
    );
    assert!(found.get("evaluating_kudos").is_none() && found.get("contact").is_none());
    let (status, refused) = get(&app, &"A".repeat(22), FIND).await;
    assert_eq!(
        (status, &refused["rc"]),
        (StatusCode::NOT_FOUND, &json!("UserNotFound"))
    );
    let none = app
        .send(request(Method::GET, FIND, &[], Body::empty()))
        .await;
    assert_eq!(none.status, StatusCode::UNAUTHORIZED);
    let (status, anonymous) = get(&app, "0000000000", FIND).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        (
            &anonymous["username"],
            &anonymous["id"],
            &anonymous["concurrency"]
        ),
        (&json!("Anonymous#0"), &json!(0), &json!(500)),
    );
}

#[tokio::test]
async fn what_is_asked_for_without_an_account_is_listed_for_nobody() {
    let app = in_development(&[]).await;
    let boss = user(
        &app,
        json!({"username": "boss", "oauth_id": "boss", "moderator": true}),
    )
    .await;
    let (anonymous, boss) = ("0000000000", boss["api_key"].as_str().unwrap());
    let path = "/api/v2/generate/text/async";
    for key in [anonymous, boss] {
        let (status, asked) = call_as(&app, key, Method::POST, path, json!({"prompt": "p"})).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{asked}");
    }
    for (key, path) in [
        (anonymous, FIND),
        (anonymous, "/api/v2/users/0"),
        ("", "/api/v2/users/0"),
        (boss, "/api/v2/users/0"),
    ] {
        let (status, seen) = get(&app, key, path).await;
        assert_eq!((status, &seen["id"]), (StatusCode::OK, &json!(0)));
        assert!(seen.get("active_generations").is_none(), "{path}: {seen}");
    }
    let (_, own) = get(&app, boss, FIND).await;
    assert_eq!(
        own["active_generations"]["text"].as_array().unwrap().len(),
        1
    );
}

#[tokio::test]
async fn strangers_the_user_and_moderators_see_more_and_more() {
    let app = in_development(&[]).await;
    let alice = named(&app, "alice").await;
    let boss = user(
        &app,
        json!({"username": "boss", "oauth_id": "boss", "moderator": true}),
    )
    .await;
    let path = format!("/api/v2/users/{}", alice["user_id"]);
    let keys = async |key: &Value| {
        let (status, seen) = get(&app, key.as_str().unwrap_or_default(), &path).await;
        assert_eq!(status, StatusCode::OK, "{seen}");
        seen.as_object().unwrap().len()
    };
    let seen = (
        keys(&Value::Null).await,
        keys(&alice["api_key"]).await,
        keys(&boss["api_key"]).await,
    );
    assert_eq!(seen, (20, 25, 28));
    let (status, refused) = get(&app, &"A".repeat(22), &path).await;
    assert_eq!(
        (status, &refused["rc"]),
        (StatusCode::UNAUTHORIZED, &json!("InvalidAPIKey"))
    );
    for nobody in [
        "9999",
        "alice%231",
        "t",
        "-1",
        "99999999999999999999",
        "1;--",
        "%00",
    ] {
        let (status, refused) = get(&app, "", &format!("/api/v2/users/{nobody}")).await;
        assert_eq!(
            (status, &refused["rc"]),
            (StatusCode::NOT_FOUND, &json!("UserNotFound")),
            "{nobody}"
        );
    }
}

#[tokio::test]
async fn a_key_that_is_not_for_reading_its_account_sees_what_strangers_see() {
    let app = App::start().await;
    let boss = Person::new(&app, "boss", Roles::ADMINISTRATOR).await;
    let alice = Person::new(&app, "alice", Roles::USER).await;
    let asked = json!({"prompt": "p", "models": ["tiny"]});
    let path = "/api/v2/generate/text/async";
    let (status, asked) = call_as(&app, &boss.key, Method::POST, path, asked).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{asked}");
    let path = "/api/v2/sharedkeys";
    let (status, shared) = call_as(&app, &boss.key, Method::PUT, path, json!({})).await;
    assert_eq!(status, StatusCode::OK, "{shared}");
    let own = get(&app, &boss.key, FIND).await.1.to_string();
    for secret in [&asked["id"], &shared["id"]] {
        assert!(own.contains(secret.as_str().unwrap()), "{own}");
    }
    let of_boss = format!("/api/v2/users/{}", boss.account.0);
    let of_alice = format!("/api/v2/users/{}", alice.account.0);
    let fields = async |key: &str, path: &str| {
        let (status, seen) = get(&app, key, path).await;
        assert_eq!(status, StatusCode::OK, "{seen}");
        let fields = seen.as_object().unwrap().keys().cloned();
        fields.collect::<Vec<String>>()
    };
    let strangers = (fields("", &of_boss).await, fields("", &of_alice).await);
    let rig = Some("rig-2".to_owned());
    for (scopes, worker_name) in [
        (Scopes::WORKER_CONNECT, rig.clone()),
        (Scopes::ALL, rig),
        (Scopes::INFERENCE_SUBMIT, None),
    ] {
        let order = KeyOrder {
            scopes,
            worker_name,
            ..KeyOrder::default()
        };
        let key = app.accounts.create_key(boss.account, order).await.unwrap();
        let key = key.text.expose();
        assert_eq!(fields(key, FIND).await, strangers.0, "{scopes:?}");
        assert_eq!(fields(key, &of_boss).await, strangers.0, "{scopes:?}");
        assert_eq!(fields(key, &of_alice).await, strangers.1, "{scopes:?}");
    }
}

#[tokio::test]
async fn users_are_listed_25_a_page_the_richest_or_the_oldest_first() {
    let app = in_development(&[]).await;
    for number in 0..28 {
        let name = format!("user{number}");
        user(
            &app,
            json!({"username": name, "oauth_id": name, "kudos": 100 + number}),
        )
        .await;
    }
    let page = async |query: &str| {
        let (status, page) = get(&app, "", &format!("/api/v2/users{query}")).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        page.as_array().unwrap().clone()
    };
    let richest = page("").await;
    assert_eq!((richest.len(), &richest[0]["kudos"]), (25, &json!(127.0)));
    assert_eq!(richest[0]["contact"], json!(null));
    // The remaining users, the administrator of the service and the anonymous one.
    let rest = page("?page=2").await;
    assert_eq!((rest.len(), &rest[0]["kudos"]), (5, &json!(102.0)));
    let oldest = page("?sort=age&page=1").await;
    assert_eq!(
        (&oldest[0]["id"], &oldest[1]["username"]),
        (&json!(0), &json!("admin#1"))
    );
    assert!(page("?page=10001").await.is_empty() && page("?page=7").await.is_empty());
    let (status, refused) = get(&app, "", "/api/v2/users?sort=name").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(refused["errors"]["sort"].is_string());
}

#[tokio::test]
async fn a_user_is_changed_by_whom_the_field_is_for() {
    let app = in_development(&["root"]).await;
    let (alice, bob) = (named(&app, "alice").await, named(&app, "bob").await);
    let boss = user(
        &app,
        json!({"username": "boss", "oauth_id": "boss", "moderator": true}),
    )
    .await;
    let root = named(&app, "root").await;
    let check = async |who: &Value, change: Value, expected: &str| {
        let (status, answer) = put(&app, &who["api_key"], &alice["user_id"], change.clone()).await;
        let rc = answer["rc"]
            .as_str()
            .unwrap_or(if status == StatusCode::OK { "" } else { "?" });
        assert_eq!(rc, expected, "{change} {answer}");
        answer
    };
    check(&boss, json!({"kudos": 5}), "NotAdmin").await;
    check(&boss, json!({"moderator": true}), "NotAdmin").await;
    check(&alice, json!({"concurrency": 50}), "NotModerator").await;
    check(&alice, json!({"trusted": true}), "NotModerator").await;
    check(&bob, json!({"contact": "me@example.org"}), "NotModerator").await;
    check(&alice, json!({}), "NoUserModSelected").await;
    check(
        &alice,
        json!({"username": "a".repeat(31)}),
        "TooLongUserName",
    )
    .await;
    check(&alice, json!({"undelete": true}), "UserNotDeleted").await;
    check(
        &alice,
        json!({"generate_proxy_passkey": true}),
        "NonServiceForbidden",
    )
    .await;
    let (status, refused) = put(
        &app,
        &json!("0000000000"),
        &alice["user_id"],
        json!({"contact": "a@b.c"}),
    )
    .await;
    assert_eq!(
        (status, &refused["rc"]),
        (StatusCode::FORBIDDEN, &json!("AnonForbiddenUserMod"))
    );
    let (status, refused) = put(&app, &root["api_key"], &json!(0), json!({"trusted": true})).await;
    assert_eq!(
        (status, &refused["rc"]),
        (StatusCode::FORBIDDEN, &json!("AnonForbiddenUserMod"))
    );
    let (status, _) = put(
        &app,
        &root["api_key"],
        &json!(9999),
        json!({"trusted": true}),
    )
    .await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    let own = json!({"username": "alice2", "contact": "me@example.org", "public_workers": true});
    assert_eq!(check(&alice, own.clone(), "").await, own);
    let change = json!({"concurrency": 7, "worker_invited": 3, "customizer": true, "admin_comment": "fine by me"});
    assert_eq!(check(&boss, change.clone(), "").await, change);
    let answer = check(&boss, json!({"service": true, "reset_suspicion": true}), "").await;
    assert_eq!(answer, json!({"service": true, "new_suspicion": 0}));
    // The contract has no place for it in the answer.
    assert_eq!(check(&boss, json!({"filtered": true}), "").await, json!({}));
    check(&alice, json!({"filtered": false}), "NotModerator").await;
    let passkey = check(&alice, json!({"generate_proxy_passkey": true}), "").await;
    assert_eq!(passkey["proxy_passkey"].as_str().unwrap().len(), 22);
    let answer = check(
        &root,
        json!({"kudos": 100, "monthly_kudos": 50, "usage_multiplier": 0.5}),
        "",
    )
    .await;
    assert_eq!(
        answer,
        json!({"new_kudos": 175.0, "monthly_kudos": 50, "usage_multiplier": 0.5})
    );
    for (kudos, sum) in [(5.5, 180.0), (-5.5, 175.0), (0.9, 175.0)] {
        let answer = check(&root, json!({"kudos": kudos}), "").await;
        assert_eq!(answer, json!({"new_kudos": sum}), "{kudos} are whole ones");
    }
    let answer = check(&root, json!({"kudos": -1000}), "").await;
    assert_eq!(
        answer,
        json!({"new_kudos": 25.0}),
        "nobody is taken below the floor"
    );
    let answer = check(&boss, json!({"education": true}), "").await;
    assert_eq!(answer, json!({"education": true, "concurrency": 200}));
    let answer = check(&boss, json!({"education": false}), "").await;
    assert_eq!(answer, json!({"education": false, "concurrency": 30}));
    let both = json!({"education": false, "concurrency": 7});
    assert_eq!(check(&boss, both.clone(), "").await, both);
    check(&boss, json!({"education": true}), "").await;
    let path = format!("/api/v2/users/{}", alice["user_id"]);
    let (_, seen) = get(&app, boss["api_key"].as_str().unwrap(), &path).await;
    assert_eq!(
        (
            &seen["username"],
            &seen["contact"],
            &seen["admin_comment"],
            &seen["worker_invited"]
        ),
        (
            &json!(format!("alice2#{}", alice["user_id"])),
            &json!("me@example.org"),
            &json!("fine by me"),
            &json!(3)
        ),
    );
    assert_eq!(
        (&seen["concurrency"], &seen["service"]),
        (&json!(200), &json!(true))
    );
    assert_eq!(seen["monthly_kudos"]["amount"], 50);
    assert_eq!(seen["kudos_details"]["recurring"], 50.0);
    assert_eq!(seen["kudos_details"]["admin"], -50.0);
}

#[tokio::test]
async fn an_account_is_marked_and_may_come_back() {
    let app = in_development(&[]).await;
    let (alice, bob) = (named(&app, "alice").await, named(&app, "bob").await);
    let boss = user(
        &app,
        json!({"username": "boss", "oauth_id": "boss", "moderator": true}),
    )
    .await;
    let refused = async |who: &Value, whom: &Value, rc: &str| {
        let (status, answer) = delete(&app, who, whom).await;
        assert_eq!((status, &answer["rc"]), (StatusCode::FORBIDDEN, &json!(rc)));
    };
    refused(&bob["api_key"], &alice["user_id"], "NotUserOrMod").await;
    refused(&boss["api_key"], &boss["user_id"], "CannotDeleteMod").await;
    refused(&json!("0000000000"), &json!(0), "AnonForbiddenUser").await;
    let (status, answer) = delete(&app, &alice["api_key"], &alice["user_id"]).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"message": "OK"})));
    assert_eq!(find(&app, &alice).await["deleted"], true);
    refused(&alice["api_key"], &alice["user_id"], "CannotWipeActiveUser").await;
    let (status, answer) = put(
        &app,
        &alice["api_key"],
        &alice["user_id"],
        json!({"undelete": true}),
    )
    .await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({"undeleted": true}))
    );
    assert_eq!(find(&app, &alice).await["deleted"], false);
}

#[tokio::test]
async fn a_deleted_account_asks_for_nothing_and_pops_nothing() {
    let app = in_development(&[]).await;
    let alice = named(&app, "alice").await;
    delete(&app, &alice["api_key"], &alice["user_id"]).await;
    let key = alice["api_key"].as_str().unwrap();
    for path in ["/api/v2/generate/text/async", "/api/v2/generate/text/pop"] {
        let (status, refused) =
            call_as(&app, key, Method::POST, path, json!({"prompt": "p"})).await;
        assert_eq!(
            (status, &refused["rc"]),
            (StatusCode::FORBIDDEN, &json!("DeletedUser")),
            "{path}"
        );
    }
    let (status, refused) =
        call_as(&app, key, Method::POST, "/v1/chat/completions", json!({})).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(refused["error"]["code"], "account_deleted");
}

#[tokio::test]
async fn a_user_has_a_limit_of_their_own_and_others_the_usual_one() {
    let app = App::with(DoorSettings {
        polled_texts: 2,
        ..DoorSettings::default()
    })
    .await;
    let boss = json!(app.key);
    let ask = async |n: u32| {
        let body = json!({"prompt": "p", "models": ["tiny"], "params": {"n": n}});
        call_as(
            &app,
            &app.key,
            Method::POST,
            "/api/v2/generate/text/async",
            body,
        )
        .await
    };
    let (status, refused) = ask(3).await;
    assert_eq!(
        (status, &refused["rc"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("TooManyPrompts"))
    );
    let (status, changed) = put(&app, &boss, &json!(1), json!({"concurrency": 3})).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    let (status, _) = ask(3).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (status, found) = get(&app, &app.key, FIND).await;
    assert_eq!((status, &found["concurrency"]), (StatusCode::OK, &json!(3)));
    assert_eq!(
        found["active_generations"]["text"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(ask(1).await.0, StatusCode::TOO_MANY_REQUESTS);
}

/// One asks for a text and another writes it; what that is worth.
async fn work_once(app: &App, asks: &Value, works: &Value) -> f64 {
    let post = async |who: &Value, path: &str, body: Value| {
        let path = format!("/api/v2/generate/text/{path}");
        let (status, answer) = call_as(
            app,
            who["api_key"].as_str().unwrap(),
            Method::POST,
            &path,
            body,
        )
        .await;
        assert!(status.is_success(), "{answer}");
        answer
    };
    let job = json!({"prompt": "Once upon", "models": ["tiny"], "params": {"max_length": 100}});
    post(asks, "async", job).await;
    let popped = post(works, "pop", json!({"name": "w1", "models": ["tiny"]})).await;
    let made = json!({"id": popped["id"], "generation": " a time there was a test.", "seed": 1});
    let brought = post(works, "submit", made).await;
    brought["reward"].as_f64().unwrap()
}

#[tokio::test]
async fn a_test_user_who_is_trusted_is_paid_in_full_at_once() {
    let app = in_development(&[]).await;
    let asks = named(&app, "asks").await;
    let trusted = json!({"username": "works", "oauth_id": "works", "trusted": true});
    let works = user(&app, trusted).await;
    let reward = work_once(&app, &asks, &works).await;
    let earned = find(&app, &works).await["kudos"].as_f64().unwrap() - 25.0;
    assert!(reward > 0.0 && (earned - reward).abs() < 0.01, "{earned}");
}

#[tokio::test]
async fn an_owner_earns_half_until_trusted_and_both_sides_are_counted() {
    let app = in_development(&[]).await;
    let (asks, works) = (named(&app, "asks").await, named(&app, "works").await);
    let reward = work_once(&app, &asks, &works).await;
    let boss = user(
        &app,
        json!({"username": "boss", "oauth_id": "boss", "moderator": true}),
    )
    .await;
    let path = format!("/api/v2/users/{}", works["user_id"]);
    let (_, seen) = get(&app, boss["api_key"].as_str().unwrap(), &path).await;
    let kept = seen["evaluating_kudos"].as_f64().unwrap();
    let earned = seen["kudos_details"]["accumulated"].as_f64().unwrap();
    assert!(
        (kept - reward / 2.0).abs() < 0.01 && (earned + kept - reward).abs() < 0.01,
        "{seen}"
    );
    assert_eq!(seen["records"]["fulfillment"]["text"], 1);
    assert!(seen["records"]["contribution"]["tokens"].as_i64().unwrap() > 0);
    assert_eq!(
        (
            &seen["worker_count"],
            seen["worker_ids"].as_array().unwrap().len()
        ),
        (&json!(1), 1)
    );
    let found = find(&app, &asks).await;
    assert_eq!(
        (&found["kudos"], &found["records"]["request"]["text"]),
        (&json!(25.0), &json!(1))
    );
}
