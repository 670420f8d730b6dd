//! What moderators do: filters and addresses that are kept out, and what clients and workers notice of it.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::http::serve::PeerAddress;
use muster::coordinator::names::Names;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{self, FinishReason, TextInput};
use muster_testing::eventually;
use serde_json::{Value, json};

use super::{ASYNC, POP, call, call_as, pop, post, worker};
use crate::support::app::{App, request};
use crate::support::puppet::{Puppet, done, started, text};

const FILTERS: &str = "/api/v2/filters";
/// Headers of a worker's socket request.
const UPGRADE: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
];
const ADDRESSES: &str = "/api/v2/operations/ipaddr";
const CHAT: &str = "/v1/chat/completions";

fn chat(messages: &[&str]) -> Value {
    let said = |text: &&str| json!({"role": "user", "content": text});
    let messages: Vec<Value> = messages.iter().map(said).collect();
    json!({"model": "tiny", "messages": messages})
}

async fn put(app: &App, path: &str, body: Value) -> (StatusCode, Value) {
    call(app, Method::PUT, path, body).await
}

async fn get(app: &App, path: &str) -> Value {
    let (status, answer) = call(app, Method::GET, path, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

/// A new filter; its id.
async fn filter(app: &App, regex: &str, kind: i64) -> String {
    let body = json!({"regex": regex, "filter_type": kind, "replacement": "nice"});
    let (status, made) = put(app, FILTERS, body).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    made["id"].as_str().unwrap().to_owned()
}

async fn suspicion(app: &App, prompt: &str) -> Value {
    let (status, answer) = post(app, FILTERS, json!({"prompt": prompt})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    answer
}

/// Sends from an address.
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
async fn a_filter_is_made_read_tried_changed_and_deleted() {
    let app = App::start().await;
    let body = json!({"regex": r"\bdark\b", "filter_type": 10, "description": "a note"});
    let (status, made) = put(&app, FILTERS, body.clone()).await;
    assert_eq!(status, StatusCode::CREATED);
    let id = made["id"].as_str().unwrap().to_owned();
    let expected = json!({
        "id": id, "regex": r"\bdark\b", "filter_type": 10, "description": "a note", "replacement": "",
        "user": "admin#1",
    });
    assert_eq!(made, expected);
    let (status, again) = put(&app, FILTERS, body).await;
    assert_eq!((status, again), (StatusCode::CREATED, made.clone()));
    let path = format!("{FILTERS}/{id}");
    assert_eq!(get(&app, &path).await, json!([made]));
    let found = suspicion(&app, "a d\u{200b}аrk hat").await;
    assert_eq!(found, json!({"suspicion": "1", "matches": ["dark"]}));
    let change = json!({"regex": "light", "description": "", "filter_type": 20});
    let (status, changed) = call(&app, Method::PATCH, &path, change).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    assert_eq!(
        (
            &changed["regex"],
            &changed["filter_type"],
            &changed["description"]
        ),
        (&json!("light"), &json!(20), &json!("a note"))
    );
    assert_eq!(suspicion(&app, "dark").await["suspicion"], "0");
    let (status, done) = call(&app, Method::DELETE, &path, Value::Null).await;
    assert_eq!((status, done), (StatusCode::OK, json!({"message": "OK"})));
    for method in [Method::GET, Method::DELETE] {
        let (status, gone) = call(&app, method, &path, Value::Null).await;
        assert_eq!(
            (status, &gone["rc"]),
            (StatusCode::NOT_FOUND, &json!("FilterNotFound"))
        );
    }
    assert_eq!(suspicion(&app, "light").await["suspicion"], "0");
}

#[tokio::test]
async fn filters_are_listed_by_type_and_by_what_they_contain() {
    let app = App::start().await;
    filter(&app, "one", 10).await;
    filter(&app, "two", 10).await;
    filter(&app, "three", 20).await;
    let listed = async |query: &str| -> Vec<String> {
        let listed = get(&app, &format!("{FILTERS}{query}")).await;
        let listed = listed.as_array().unwrap().iter();
        listed
            .map(|row| row["regex"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(listed("").await, ["one", "two", "three"]);
    assert_eq!(listed("?filter_type=10").await, ["one", "two"]);
    assert_eq!(listed("?contains=t").await, ["two", "three"]);
    assert_eq!(listed("?contains=t&filter_type=20").await, ["three"]);
    assert_eq!(listed("?contains=%27%20OR%201%3D1%00").await, [""; 0]);
    let one = &get(&app, FILTERS).await[0];
    assert!(one.get("description").is_none(), "{one}");
    let (status, answer) = call(
        &app,
        Method::GET,
        &format!("{FILTERS}?filter_type=ten"),
        Value::Null,
    )
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer["errors"]["filter_type"].is_string(), "{answer}");
    let regexes = get(&app, &format!("{FILTERS}/regex")).await;
    let expected = json!([
        {"filter_type": 10, "regex": "one|two"}, {"filter_type": 11}, {"filter_type": 20, "regex": "three"},
    ]);
    assert_eq!(regexes, expected);
    let one = get(&app, &format!("{FILTERS}/regex?filter_type=20")).await;
    assert_eq!(one, json!([{"filter_type": 20, "regex": "three"}]));
}

#[tokio::test]
async fn a_pattern_that_cannot_be_used_is_refused_when_it_is_written_with_the_reason() {
    let app = App::start().await;
    let id = filter(&app, "fine", 10).await;
    for (regex, reason) in [
        ("(", "unclosed group"),
        (r"(a)\1", "backreferences"),
        ("a(?=b)", "look-around"),
        (r"\w{1000}", "larger"),
        ("(?:(?:(?:a{99}){99}){99}){99}", "larger"),
        ("x*", "every prompt"),
        ("", "every prompt"),
    ] {
        let body = json!({"regex": regex, "filter_type": 10});
        let (status, answer) = put(&app, FILTERS, body).await;
        assert_eq!(
            (status, &answer["rc"]),
            (StatusCode::BAD_REQUEST, &json!("BadRequest")),
            "{regex}"
        );
        assert!(
            answer["message"].as_str().unwrap().contains(reason),
            "{answer}"
        );
    }
    let broken = json!({"regex": "("});
    let (status, _) = call(&app, Method::PATCH, &format!("{FILTERS}/{id}"), broken).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let nul = json!({"regex": "a\u{0}b", "filter_type": 10});
    let (status, answer) = put(&app, FILTERS, nul).await;
    assert_eq!(
        (status, &answer["rc"]),
        (StatusCode::BAD_REQUEST, &json!("NulByteInPayload"))
    );
    for kind in [9, 30] {
        let (_, answer) = put(&app, FILTERS, json!({"regex": "x", "filter_type": kind})).await;
        assert!(answer["errors"]["filter_type"].is_string(), "{answer}");
    }
    let (status, answer) = call(
        &app,
        Method::PATCH,
        &format!("{FILTERS}/{id}"),
        json!({"regex": ""}),
    )
    .await;
    assert_eq!(
        (status, &answer["rc"]),
        (StatusCode::BAD_REQUEST, &json!("NoFilterModSelected"))
    );
    assert_eq!(get(&app, FILTERS).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_pattern_that_others_choke_on_takes_no_time() {
    let app = App::start().await;
    filter(&app, "(a+)+$", 10).await;
    filter(&app, "(x|x)*y", 20).await;
    let prompt = format!("{}!{}", "a".repeat(100_000), "x".repeat(100_000));
    assert_eq!(suspicion(&app, &prompt).await["suspicion"], "0");
}

#[tokio::test]
async fn suspicion_is_a_text_and_counts_groups() {
    let app = App::start().await;
    filter(&app, "dark", 10).await;
    filter(&app, "night", 11).await;
    filter(&app, "side", 20).await;
    let check = async |prompt: &str, level: &str, matches: Value| {
        let expected = json!({"suspicion": level, "matches": matches});
        assert_eq!(suspicion(&app, prompt).await, expected, "{prompt}");
    };
    check("a hat", "0", json!([])).await;
    check("a dark night", "1", json!(["dark", "night"])).await;
    check("the (dаrk:1.3) s i d e", "2", json!(["dark", "side"])).await;
    let body = json!({"prompt": "the dark side", "filter_type": 20});
    let (_, one) = post(&app, FILTERS, body).await;
    assert_eq!(one, json!({"suspicion": "1", "matches": ["side"]}));
}

#[tokio::test]
async fn only_moderators_and_administrators_moderate() {
    let app = App::start().await;
    let user = app.account_with(Roles::USER, Scopes::ALL).await;
    let moderator = app.account_with(Roles::MODERATOR, Scopes::ALL).await;
    for (method, path) in [
        (Method::GET, FILTERS),
        (Method::GET, "/api/v2/filters/regex"),
        (Method::GET, ADDRESSES),
        (Method::GET, "/api/v2/operations/ipaddr/192.0.2.7"),
    ] {
        let (status, refused) = call_as(&app, &user, method.clone(), path, Value::Null).await;
        assert_eq!(
            (status, &refused["rc"]),
            (StatusCode::FORBIDDEN, &json!("NotModerator"))
        );
        let (status, _) = call_as(&app, &moderator, method, path, Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn x_fields_masks_what_moderators_read() {
    let app = App::start().await;
    let id = filter(&app, "one", 10).await;
    let masked = async |method: Method, path: &str, mask: &str, body: Value| {
        let headers = [("apikey", app.key.as_str()), ("x-fields", mask)];
        let body = if body.is_null() {
            Body::empty()
        } else {
            body.to_string().into()
        };
        app.send(request(method, path, &headers, body))
            .await
            .json()
            .await
    };
    let get = Method::GET;
    assert_eq!(
        masked(get.clone(), FILTERS, "regex", Value::Null).await,
        json!([{"regex": "one"}])
    );
    let path = format!("{FILTERS}/{id}");
    assert_eq!(
        masked(get.clone(), &path, "{id}", Value::Null).await,
        json!([{"id": id}])
    );
    let path = format!("{FILTERS}/regex?filter_type=10");
    assert_eq!(
        masked(get.clone(), &path, "filter_type", Value::Null).await,
        json!([{"filter_type": 10}])
    );
    let two = json!({"regex": "two", "filter_type": 10});
    assert_eq!(
        masked(Method::PUT, FILTERS, "regex,nothing", two).await,
        json!({"regex": "two"})
    );
    let tried = masked(Method::POST, FILTERS, "suspicion", json!({"prompt": "one"})).await;
    assert_eq!(tried, json!({"suspicion": "1"}));
    put_out(&app, "10.0.0.0/8", 1).await;
    assert_eq!(
        masked(get, ADDRESSES, "ipaddr", Value::Null).await,
        json!([{"ipaddr": "10.0.0.0/8"}])
    );
}

async fn put_out(app: &App, address: &str, hours: u32) {
    let (status, answer) = post(app, ADDRESSES, json!({"ipaddr": address, "hours": hours})).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"message": "OK"})));
}

#[tokio::test]
async fn addresses_are_kept_out_listed_and_let_in_again() {
    let app = App::start().await;
    put_out(&app, "10.0.0.0/8", 2).await;
    put_out(&app, "192.0.2.7", 1).await;
    put_out(&app, "2001:db8::/32", 720).await;
    let listed = get(&app, ADDRESSES).await;
    let listed: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["ipaddr"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]);
    let around = async |address: &str| get(&app, &format!("{ADDRESSES}/{address}")).await;
    let found = around("10.1.2.3").await;
    assert_eq!(
        (found.as_array().unwrap().len(), &found[0]["ipaddr"]),
        (1, &json!("10.0.0.0/8"))
    );
    let seconds = found[0]["seconds"].as_u64().unwrap();
    assert!((7100..=7200).contains(&seconds), "{seconds}");
    assert_eq!(around("192.0.2.7").await[0]["ipaddr"], "192.0.2.7");
    assert_eq!(around("192.0.2.8").await, json!([]));
    assert_eq!(around("10.2.0.0%2F16").await[0]["ipaddr"], "10.0.0.0/8");
    let (status, _) = call(
        &app,
        Method::DELETE,
        ADDRESSES,
        json!({"ipaddr": "10.0.0.0/8"}),
    )
    .await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(around("10.1.2.3").await, json!([]));
}

#[tokio::test]
async fn a_moderator_cannot_block_the_internet_loopback_or_their_own_address() {
    let app = App::start().await;
    let moderator = app.account_with(Roles::MODERATOR, Scopes::ALL).await;
    let refused = async |key: &str, address: &str| {
        let body = json!({"ipaddr": address, "hours": 1});
        let (status, answer) = call_as(&app, key, Method::POST, ADDRESSES, body).await;
        match status {
            StatusCode::OK => None,
            status => Some((status.as_u16(), answer["rc"].clone())),
        }
    };
    let bad = Some((400, json!("BadRequest")));
    for address in [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "::/0",
        "2000::/3",
        "::1",
        "::/64",
    ] {
        assert_eq!(refused(&moderator, address).await, bad, "{address}");
    }
    for address in ["0.0.0.0/0", "128.0.0.0/1", "::/0", "127.0.0.1", "::1"] {
        assert_eq!(refused(&app.key, address).await, bad, "{address}");
    }
    assert_eq!(refused(&moderator, "10.1.0.0/16").await, None);
    assert_eq!(refused(&moderator, "2a00::").await, None);
    assert_eq!(refused(&app.key, "10.0.0.0/8").await, None);
    let own = json!({"ipaddr": "192.0.2.0/24", "hours": 1});
    let (status, _) = from(&app, "192.0.2.7", &moderator, ADDRESSES, &own).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, _) = from(&app, "198.51.100.7", &moderator, ADDRESSES, &own).await;
    assert_eq!(status, StatusCode::OK);
    // Blocks of an earlier version can be deleted anyway.
    for address in ["::1", "0.0.0.0/0"] {
        let body = json!({"ipaddr": address});
        let (status, _) = call(&app, Method::DELETE, ADDRESSES, body).await;
        assert_eq!(status, StatusCode::OK, "{address}");
    }
}

#[tokio::test]
async fn what_is_no_address_is_refused() {
    let app = App::start().await;
    for wrong in [
        "10.0.0.0/33",
        "nonsense",
        "1.2.3.4; DROP TABLE timeouts",
        "10.0.0.256",
    ] {
        let (status, answer) = post(&app, ADDRESSES, json!({"ipaddr": wrong, "hours": 1})).await;
        assert_eq!(
            (status, &answer["rc"]),
            (StatusCode::BAD_REQUEST, &json!("BadRequest")),
            "{wrong}"
        );
        assert!(!answer.to_string().contains(wrong), "{answer}");
        let (status, _) = call(&app, Method::DELETE, ADDRESSES, json!({"ipaddr": wrong})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
    let (status, _) = call(
        &app,
        Method::GET,
        &format!("{ADDRESSES}/nonsense"),
        Value::Null,
    )
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    for hours in [0, 721] {
        let (_, answer) = post(
            &app,
            ADDRESSES,
            json!({"ipaddr": "10.0.0.1", "hours": hours}),
        )
        .await;
        assert!(answer["errors"]["hours"].is_string(), "{answer}");
    }
    let nul = json!({"ipaddr": "10.0.0.1\u{0}", "hours": 1});
    assert_eq!(post(&app, ADDRESSES, nul).await.1["rc"], "NulByteInPayload");
}

#[tokio::test]
async fn clients_and_workers_that_are_kept_out_are_told_for_how_long() {
    let app = App::start().await;
    put_out(&app, "192.0.2.7", 1).await;
    put_out(&app, "10.0.0.0/8", 720).await;
    let text = json!({"prompt": "p"});
    let check = async |address: &str, path: &str, body: &Value, part: &str| {
        let (status, answer) = from(&app, address, &app.key, path, body).await;
        assert_eq!(
            (status, &answer["rc"]),
            (StatusCode::FORBIDDEN, &json!("TimeoutIP")),
            "{answer}"
        );
        assert!(
            answer["message"].as_str().unwrap().ends_with(part),
            "{answer}"
        );
        assert!(!answer.to_string().contains(address));
    };
    check("192.0.2.7", ASYNC, &text, "60 minutes").await;
    check("192.0.2.7", POP, &worker("w1"), "60 minutes").await;
    let (status, refused) = from(&app, "192.0.2.7", &app.key, CHAT, &chat(&["hi"])).await;
    assert_eq!(
        (status, &refused["error"]["code"]),
        (StatusCode::FORBIDDEN, &json!("access_denied"))
    );
    let mut socket = request(Method::GET, "/v1/workers/ws", &UPGRADE, Body::empty());
    let address = PeerAddress("192.0.2.7".parse().unwrap());
    socket.extensions_mut().insert(address);
    assert_eq!(app.send(socket).await.status, StatusCode::FORBIDDEN);
    // More than four days: no time is stated.
    check(
        "10.20.30.40",
        ASYNC,
        &text,
        "temporarily blocked; retry later",
    )
    .await;
    let (status, _) = from(&app, "192.0.2.8", &app.key, ASYNC, &text).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (status, _) = from(&app, "192.0.2.8", &app.key, POP, &worker("w1")).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_workers_address_is_kept_out_for_a_day_or_as_many_as_are_named() {
    let app = App::start().await;
    let (_, popped) = from(&app, "192.0.2.7", &app.key, POP, &worker("w1")).await;
    assert!(popped["id"].is_null());
    let id = worker_id(&app).await;
    let path = format!("/api/v2/operations/block_worker_ipaddr/{id}");
    // The address is stored asynchronously.
    eventually("the worker's address", async || {
        match put(&app, &path, Value::Null).await {
            (StatusCode::OK, _) => Ok(()),
            refused => Err(refused),
        }
    })
    .await;
    let hours = async || {
        let found = get(&app, &format!("{ADDRESSES}/192.0.2.7")).await;
        found[0]["seconds"]
            .as_u64()
            .map(|seconds| seconds.div_ceil(3600))
    };
    assert_eq!(hours().await, Some(24));
    let (_, refused) = from(&app, "192.0.2.7", &app.key, POP, &worker("w1")).await;
    assert_eq!(refused["rc"], "TimeoutIP");
    assert_eq!(
        put(&app, &path, json!({"days": 30})).await.0,
        StatusCode::OK
    );
    assert_eq!(hours().await, Some(720));
    for wrong in [json!({"days": 0}), json!({"days": 31})] {
        let (_, answer) = put(&app, &path, wrong).await;
        assert!(answer["errors"]["days"].is_string(), "{answer}");
    }
    assert_eq!(
        call(&app, Method::DELETE, &path, Value::Null).await.0,
        StatusCode::OK
    );
    assert_eq!(hours().await, None);
    let (status, _) = from(&app, "192.0.2.7", &app.key, POP, &worker("w1")).await;
    assert_eq!(status, StatusCode::OK);
    for unknown in [
        "t",
        "' OR 1=1",
        "%00",
        "00000000-0000-0000-0000-000000000000",
    ] {
        let path = format!(
            "/api/v2/operations/block_worker_ipaddr/{}",
            unknown.replace(' ', "%20")
        );
        for method in [Method::PUT, Method::DELETE] {
            let (status, answer) = call(&app, method, &path, Value::Null).await;
            assert_eq!(
                (status, &answer["rc"]),
                (StatusCode::NOT_FOUND, &json!("WorkerNotFound"))
            );
        }
    }
}

/// The identity of the only worker.
async fn worker_id(app: &App) -> String {
    let workers = app.get("/v1/workers").await.json().await;
    let found = workers.to_string();
    let found = found
        .split('"')
        .find(|word| uuid::Uuid::parse_str(word).is_ok());
    found.unwrap_or_else(|| panic!("{workers}")).to_owned()
}

#[tokio::test]
async fn a_flagged_account_and_a_marked_model_get_no_words_of_the_young() {
    let app = App::with(DoorSettings {
        nsfw_models: ["tiny".to_owned()].into(),
        names: Names::of([("tiny-1b", ["tiny", "tiny-alias"])]),
        ..DoorSettings::default()
    })
    .await;
    filter(&app, "gone", 10).await;
    let flagged = app
        .account_with(Roles::USER.with(Roles::FLAGGED), Scopes::INFERENCE_SUBMIT)
        .await;
    let plain = app
        .account_with(Roles::USER, Scopes::INFERENCE_SUBMIT)
        .await;
    let served = async |key: &str, model: &str| {
        let body = json!({"prompt": "a k\u{200b}id", "models": [model]});
        let (status, answer) = call_as(&app, key, Method::POST, ASYNC, body).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
        pop(&app, "w1").await["payload"]["prompt"].clone()
    };
    assert_eq!(served(&flagged, "other").await, "a adult");
    assert_eq!(served(&plain, "tiny").await, "a adult");
    assert_eq!(served(&plain, "tiny-alias").await, "a adult");
    assert_eq!(served(&plain, "other").await, "a k\u{200b}id");
    // Requests for any model may use this one.
    let body = json!({"prompt": "a kid", "models": []});
    call_as(&app, &plain, Method::POST, ASYNC, body).await;
    assert_eq!(pop(&app, "w1").await["payload"]["prompt"], "a adult");
    let (_, id) = put(&app, FILTERS, json!({"regex": "vanish", "filter_type": 10})).await;
    assert!(id["id"].is_string());
    let body = json!({"prompt": "Vanish!", "models": ["tiny"]});
    let (status, answer) = call_as(&app, &plain, Method::POST, ASYNC, body.clone()).await;
    assert_eq!(
        (status, &answer["rc"]),
        (StatusCode::BAD_REQUEST, &json!("CorruptPrompt"))
    );
    // Users are not blocked for it.
    let body = json!({"prompt": "p"});
    let (status, _) = call_as(&app, &plain, Method::POST, ASYNC, body).await;
    assert_eq!(status, StatusCode::ACCEPTED);
}

#[tokio::test]
async fn chats_are_held_against_the_filters_too_wherever_they_say_it() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    filter(&app, "dark", 10).await;
    filter(&app, "side", 20).await;
    let plain = app
        .account_with(Roles::USER, Scopes::INFERENCE_SUBMIT)
        .await;
    let ask = async |address: &str, body: Value| from(&app, address, &plain, CHAT, &body).await;
    let harmless = chat(&["a dark hat"]);
    let (served, ()) = tokio::join!(ask("192.0.2.7", harmless), rig.answer(&["yes"]));
    assert_eq!(served.0, StatusCode::OK);
    let tool = |description: &str| {
        let function = json!({"name": "f", "description": description});
        json!([{"type": "function", "function": function}])
    };
    let spoken = json!([
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "the dark side"},
        {"role": "user", "content": "what?"},
    ]);
    let with = |name: &str, value: Value| {
        let mut body = chat(&["a dark hat"]);
        body[name] = value;
        body
    };
    for (nth, (body, is_blamed)) in [
        (chat(&["a d\u{200b}аrk hat", "on one s i d e"]), true),
        (chat(&["data: the dark side"]), true),
        (with("tools", tool("on one side")), true),
        (with("messages", spoken), false),
    ]
    .into_iter()
    .enumerate()
    {
        let address = format!("192.0.2.{}", 10 + nth);
        let (status, refused) = ask(&address, body).await;
        let error = &refused["error"];
        assert_eq!(
            (status, &error["code"], &error["param"]),
            (
                StatusCode::BAD_REQUEST,
                &json!("content_policy_violation"),
                &json!("messages")
            ),
            "{nth}: {refused}"
        );
        assert!(!error.to_string().contains("dark"), "{error}");
        // Every suspicious prompt blocks; a suspicious reply of a model does not.
        let again = async { ask(&address, chat(&["a hat"])).await.0 };
        let expected = if is_blamed {
            StatusCode::FORBIDDEN
        } else {
            StatusCode::OK
        };
        let status = match is_blamed {
            true => again.await,
            false => tokio::join!(again, rig.answer(&["yes"])).0,
        };
        assert_eq!(status, expected, "{nth}");
    }
}

#[tokio::test]
async fn a_flagged_account_chats_without_words_of_the_young() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let flagged = app
        .account_with(Roles::USER.with(Roles::FLAGGED), Scopes::INFERENCE_SUBMIT)
        .await;
    let body = chat(&["?!", "a k\u{200b}id", "a hat"]);
    let (answer, offer) = tokio::join!(from(&app, "192.0.2.7", &flagged, CHAT, &body), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started(), text("yes"), done(FinishReason::Stop)])
            .await;
        offer
    });
    assert_eq!(answer.0, StatusCode::OK, "{}", answer.1);
    let job::Body::Text(asked) = &offer.job.body else {
        panic!("a text was asked for");
    };
    let TextInput::Chat(asked) = &asked.input else {
        panic!("a chat was asked for");
    };
    let asked = format!("{:?}", asked.messages);
    assert!(
        asked.contains("a adult") && asked.contains("?!") && asked.contains("a hat"),
        "{asked}"
    );
    // Strangers' workers are given the body itself.
    let body = &offer.job.original.as_ref().unwrap().body;
    assert_eq!(body["messages"][1]["content"], "a adult");
}
