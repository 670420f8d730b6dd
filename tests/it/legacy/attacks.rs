//! What strangers send who want to break something: each is refused clearly, and nothing is lost.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::http::{Answers, ROUTES};
use muster::coordinator::state::DoorSettings;
use muster_testing::eventually;
use serde_json::{Value, json};

use super::{ASYNC, SUBMIT, ask, call, forms, images, look, pop, post, submit, until};
use crate::support::app::{Answer, App, request};
use crate::support::puppet::Puppet;

/// Replacements for texts.
const TEXTS: [&str; 7] = [
    "a\0b",
    "'); DROP TABLE accounts; --",
    "\" OR 1=1; --",
    "%s%n%x${jndi:ldap://x}{{7*7}}",
    "../../../../etc/passwd",
    "\u{202e}\u{feff}\u{fffd}",
    "00000000-0000-0000-0000-000000000000",
];

/// A body for every route that takes one, with every text it may hold.
fn bodies() -> Vec<(Method, &'static str, Value)> {
    let text = json!({
        "prompt": "p", "models": ["m"], "workers": ["w"], "style": "s", "softprompt": "x",
        "webhook": "https://example.org/hook", "params": {"stop_sequence": ["x"]},
    });
    let image = json!({
        "prompt": "p", "models": ["m"], "workers": ["w"], "source_image": images::PNG, "source_mask": images::PNG,
        "style": "s", "params": {
            "seed": "1", "loras": [{"name": "l", "inject_trigger": "t"}], "tis": [{"name": "t"}],
            "extra_texts": [{"text": "t", "reference": "r"}], "special": {"k": "v"},
        },
    });
    let form = json!({
        "source_image": forms::PNG, "webhook": "https://example.org/hook",
        "forms": [{"name": "caption", "payload": {"k": "v"}}],
    });
    let writer = json!({
        "name": "w", "models": ["model"], "bridge_agent": "a:1:u", "priority_usernames": ["a#1"],
        "max_length": 512, "max_context_length": 1024, "softprompts": ["s"],
    });
    let painter = json!({
        "name": "w", "models": ["model"], "bridge_agent": "a:1:u", "priority_usernames": ["a#1"],
        "blacklist": ["b"], "max_pixels": 1_000_000,
    });
    let looker = json!({"name": "l", "forms": ["caption"], "bridge_agent": "a:1:u", "priority_usernames": ["a#1"]});
    let brought = json!({"id": "x", "generation": "g", "seed": 1, "gen_metadata": [{"type": "lora", "value": "csam", "ref": "r"}]});
    let found = json!({"id": "x", "result": "r", "state": "ok"});
    let style = json!({
        "name": "s", "info": "i", "prompt": "{p}{np}", "models": ["m"], "tags": ["t"], "params": {},
    });
    let post = |path, body| (Method::POST, path, body);
    vec![
        post("/api/v2/generate/text/async", text),
        post("/api/v2/generate/async", image),
        post("/api/v2/interrogate/async", form),
        post("/api/v2/generate/text/pop", writer),
        post("/api/v2/generate/pop", painter),
        post("/api/v2/interrogate/pop", looker),
        post("/api/v2/generate/text/submit", brought.clone()),
        post("/api/v2/generate/submit", brought),
        post("/api/v2/interrogate/submit", found),
        post(
            "/api/v2/generate/progress",
            json!({"id": "x", "current_step": 1, "total_steps": 2}),
        ),
        post(
            "/api/v2/generate/rate/x",
            json!({"best": "x".repeat(36), "ratings": [{"id": "x".repeat(36), "rating": 5}]}),
        ),
        post(
            "/api/v2/kudos/transfer",
            json!({"username": "a#1", "amount": 1}),
        ),
        post(
            "/api/v2/kudos/award",
            json!({"username": "a#1", "amount": 1}),
        ),
        post("/api/v2/filters", json!({"prompt": "p"})),
        post(
            "/api/v2/operations/ipaddr",
            json!({"ipaddr": "192.0.2.1", "hours": 1}),
        ),
        post(
            "/api/v2/collections",
            json!({"name": "c", "info": "i", "styles": ["s"]}),
        ),
        post("/api/v2/styles/image", style.clone()),
        post("/api/v2/styles/text", style),
        post(
            "/api/v2/workers/messages",
            json!({"message": "m", "worker_id": "x".repeat(36), "origin": "o"}),
        ),
        post("/api/v2/teams", json!({"name": "team", "info": "i"})),
        (
            Method::PUT,
            "/api/v2/filters",
            json!({"regex": "r", "filter_type": 10, "description": "d", "replacement": "x"}),
        ),
        (
            Method::PATCH,
            "/api/v2/filters/1",
            json!({"regex": "r", "description": "d", "replacement": "x"}),
        ),
        (
            Method::PUT,
            "/api/v2/sharedkeys",
            json!({"name": "key", "kudos": 5}),
        ),
        (
            Method::PATCH,
            "/api/v2/sharedkeys/x",
            json!({"name": "key"}),
        ),
        (
            Method::PUT,
            "/api/v2/users/1",
            json!({"username": "u", "contact": "c", "admin_comment": "x"}),
        ),
        (
            Method::PUT,
            "/api/v2/workers/x",
            json!({"name": "a name", "info": "i", "maintenance_msg": "m", "team": "t"}),
        ),
        (
            Method::PATCH,
            "/api/v2/teams/x",
            json!({"name": "n", "info": "i"}),
        ),
        (
            Method::PATCH,
            "/api/v2/styles/image/x",
            json!({"name": "n", "info": "i", "prompt": "{p}"}),
        ),
        (
            Method::PATCH,
            "/api/v2/collections/x",
            json!({"name": "n", "info": "i", "styles": ["s"]}),
        ),
        (
            Method::DELETE,
            "/api/v2/operations/ipaddr",
            json!({"ipaddr": "192.0.2.1"}),
        ),
    ]
}

/// The body once for each text in it, with that one replaced.
fn spoiled(body: &Value, by: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut places = Vec::new();
    texts_in(body, String::new(), &mut places);
    for place in places {
        let mut spoiled = body.clone();
        *spoiled.pointer_mut(&place).unwrap() = json!(by);
        all.push(spoiled);
    }
    all
}

fn texts_in(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::String(_) => places.push(place),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                texts_in(item, format!("{place}/{index}"), places);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                texts_in(field, format!("{place}/{name}"), places);
            }
        }
        _ => {}
    }
}

async fn send(app: &App, method: Method, path: &str, body: impl Into<Body>) -> Answer {
    let headers = [
        ("apikey", app.key.as_str()),
        ("content-type", "application/json"),
    ];
    app.send(request(method, path, &headers, body.into())).await
}

/// Checks that a reply is a valid one of the API, successful or not.
async fn assert_sound(answer: Answer, what: &str) -> Value {
    let status = answer.status;
    assert!(
        !status.is_server_error() || status == StatusCode::NOT_IMPLEMENTED,
        "{status} for {what}"
    );
    if status.is_success() {
        return Value::Null;
    }
    let body = answer.json().await;
    assert!(body["message"].is_string(), "{body} for {what}");
    body
}

#[tokio::test]
async fn no_text_of_any_body_breaks_anything() {
    let app = App::start().await;
    let before = ask(&app, json!({})).await;
    for (method, path, body) in bodies() {
        for text in TEXTS {
            for body in spoiled(&body, text) {
                let what = format!("{method} {path} {body}");
                let answer = send(&app, method.clone(), path, body.to_string()).await;
                let status = answer.status;
                let refused = assert_sound(answer, &what).await;
                if text.contains('\0') {
                    assert!(
                        status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED,
                        "{status} for {what}"
                    );
                    assert_ne!(refused, Value::Null);
                }
            }
        }
    }
    assert_eq!(look(&app, &before).await["done"], false);
    let (status, me) = call(&app, Method::GET, "/api/v2/find_user", Value::Null).await;
    assert_eq!((status, &me["id"]), (StatusCode::OK, &json!(1)));
}

#[tokio::test]
async fn guessed_ids_and_sql_in_paths_find_nothing() {
    let app = App::start().await;
    let guesses = [
        "%27%20OR%201%3D1--",
        "a%00b",
        "%F0%9F%92%A5",
        "00000000-0000-0000-0000-000000000000",
        "-1",
        "99999999999999999999",
        "..%2F..%2Fetc%2Fpasswd",
        "NaN",
        "1%3B%20DROP%20TABLE%20accounts",
    ];
    for route in ROUTES
        .iter()
        .filter(|route| route.is_legacy() && route.path.contains('{'))
    {
        let method = Method::from_bytes(route.method.as_bytes()).unwrap();
        for guess in guesses {
            let path = filled(route.path, guess);
            let answer = send(&app, method.clone(), &path, "{}").await;
            let is_list = answer.status == StatusCode::OK && method == Method::GET;
            assert!(is_list || !answer.status.is_success(), "{method} {path}");
            assert_sound(answer, &path).await;
        }
    }
    let stranger = request(Method::GET, "/api/v2/users/1", &[], Body::empty());
    assert_eq!(app.send(stranger).await.status, StatusCode::OK);
}

/// The path with this in every one of its places.
fn filled(path: &str, by: &str) -> String {
    let mut filled = String::new();
    let mut rest = path;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        filled.push_str(by);
        rest = after.split_once('}').unwrap().1;
    }
    filled + rest
}

#[tokio::test]
async fn deep_and_broken_and_wrong_bodies_are_refused_on_every_route() {
    let app = App::start().await;
    let deep = [
        "[".repeat(100_000),
        format!("{}1{}", "{\"prompt\":".repeat(50_000), "}".repeat(50_000)),
        "{\"prompt\": \"p\", \"params\": ".to_owned() + &"[".repeat(200) + &"]".repeat(200) + "}",
        "{\"prompt\": 1e999}".to_owned(),
        "null".to_owned(),
        "\u{feff}{}".to_owned(),
        "{\"a\": \"\\ud800\"}".to_owned(),
    ];
    for (method, path, _) in bodies() {
        for body in &deep {
            let begin: String = body.chars().take(30).collect();
            let what = format!("{method} {path} {begin}");
            let answer = send(&app, method.clone(), path, body.clone()).await;
            assert!(
                answer.status.is_client_error(),
                "{} for {what}",
                answer.status
            );
            assert_sound(answer, &what).await;
        }
        let bytes = send(&app, method, path, vec![0xff, 0xfe, 0x00]).await;
        assert!(bytes.status.is_client_error(), "{path}");
    }
}

#[tokio::test]
async fn a_body_is_read_as_json_whatever_it_says_it_is() {
    let app = App::start().await;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
    ] {
        let headers = [("apikey", app.key.as_str()), ("content-type", kind)];
        let body = json!({"prompt": "p"}).to_string();
        let asked = request(Method::POST, ASYNC, &headers, body.into());
        assert_eq!(app.send(asked).await.status, StatusCode::ACCEPTED, "{kind}");
    }
}

#[tokio::test]
async fn strangers_learn_neither_what_exists_nor_what_is_switched_on() {
    let app = App::start().await;
    let modes = json!({"maintenance_mode": true});
    let (status, _) = call(&app, Method::PUT, "/api/v2/status/modes", modes).await;
    assert_eq!(status, StatusCode::OK);
    let nobodys = "A".repeat(22);
    let routes = ROUTES.iter().filter(|route| route.is_legacy());
    for route in routes.filter(|route| route.who.key().is_some()) {
        let method = Method::from_bytes(route.method.as_bytes()).unwrap();
        let path = filled(route.path, "1");
        for key in ["", &nobodys] {
            let broken = Body::from("{");
            let asked = request(method.clone(), &path, &[("apikey", key)], broken);
            let answer = app.send(asked).await;
            let status = answer.status;
            let refused = answer.json().await;
            assert_eq!(
                (status, &refused["rc"]),
                (StatusCode::UNAUTHORIZED, &json!("InvalidAPIKey")),
                "{method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn bodies_that_are_too_large_are_refused_on_every_route() {
    let app = App::with(DoorSettings {
        largest_request: 1024,
        ..DoorSettings::default()
    })
    .await;
    for (method, path, _) in bodies() {
        let body = json!({"prompt": "p".repeat(2000)}).to_string();
        let answer = send(&app, method, path, body).await;
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
        assert_sound(answer, path).await;
    }
}

#[tokio::test]
async fn what_is_kept_of_requests_takes_memory_until_their_jobs_have_ended() {
    let app = App::with(DoorSettings {
        largest_request: 1 << 20,
        polled_texts: 100,
        ..DoorSettings::default()
    })
    .await;
    let long = json!({"prompt": "p".repeat(900 << 10), "params": {"n": 20}});
    let ask = async || post(&app, ASYNC, long.clone()).await;
    let (status, first) = ask().await;
    assert_eq!(status, StatusCode::ACCEPTED, "{first}");
    let (status, full) = ask().await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{full}");
    let at = format!(
        "/api/v2/generate/text/status/{}",
        first["id"].as_str().unwrap()
    );
    let (status, _) = call(&app, Method::DELETE, &at, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    eventually("room for the request", async || match ask().await {
        (StatusCode::ACCEPTED, _) => Ok(()),
        refused => Err(refused),
    })
    .await;
}

#[tokio::test]
async fn large_requests_that_wait_keep_neither_workers_nor_others_out() {
    let app = App::with(DoorSettings {
        largest_request: 512 << 10,
        polled_texts: 100,
        ..DoorSettings::default()
    })
    .await;
    let id = ask(&app, json!({})).await;
    for n in [20, 10] {
        let long = json!({"prompt": "p".repeat(500 << 10), "models": ["served by nobody"], "params": {"n": n}});
        post(&app, ASYNC, long).await;
    }
    let large = json!({"prompt": "p".repeat(400 << 10), "models": ["tiny"], "dry_run": true});
    let (status, answer) = post(&app, ASYNC, large).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let popped = pop(&app, "w1").await;
    let (status, answer) = submit(&app, &popped["id"], "text").await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    until(&app, &id, |status| status["done"] == true).await;
}

#[tokio::test]
async fn a_mask_that_cannot_be_read_is_refused_on_every_route() {
    let app = App::start().await;
    let mut routes = 0;
    for route in ROUTES.iter().filter(|route| route.is_legacy()) {
        if route.answers == Answers::Unbuilt {
            continue;
        }
        let method = Method::from_bytes(route.method.as_bytes()).unwrap();
        let headers = [
            ("apikey", app.key.as_str()),
            ("x-fields", "{done,generations{img"),
        ];
        let path = filled(route.path, "1");
        let answer = app
            .send(request(method, &path, &headers, Body::from("{}")))
            .await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        let body = answer.json().await;
        assert!(
            body["message"].is_string() && body.get("rc").is_none(),
            "{path}: {body}"
        );
        routes += 1;
    }
    assert!(routes > 80, "{routes}");
}

#[tokio::test]
async fn images_that_are_none_or_too_much_are_refused_before_they_are_drawn() {
    let app = App::start().await;
    let base64 = |bytes: &[u8]| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(bytes)
    };
    let svg = base64(
        b"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"><script/></svg>",
    );
    let bomb = base64(&images::bomb());
    for image in [
        svg,
        bomb,
        base64(b"GIF89a"),
        "data:image/png;base64,!!".to_owned(),
    ] {
        for (path, body) in [
            (images::ASYNC, json!({"prompt": "p", "source_image": image})),
            (
                images::ASYNC,
                json!({"prompt": "p", "source_image": images::PNG, "source_mask": image, "source_processing": "inpainting"}),
            ),
            (
                forms::ASYNC,
                json!({"source_image": image, "forms": [{"name": "caption"}]}),
            ),
        ] {
            let (status, answer) = post(&app, path, body).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {answer}");
            assert!(answer["rc"].is_string(), "{answer}");
        }
    }
    let id = images::ask(&app, json!({})).await;
    let popped = images::pop(&app, json!({})).await;
    let drawn = json!({"generation": base64(&images::bomb())});
    let (status, answer) = images::submit(&app, &popped["id"], drawn).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    // Another worker makes it.
    let popped = images::pop(&app, json!({"name": "another"})).await;
    let (status, _) = images::submit(&app, &popped["id"], json!({})).await;
    assert_eq!(status, StatusCode::OK);
    images::until_done(&app, &id).await;
}

#[tokio::test]
async fn a_text_that_is_longer_than_its_job_can_need_is_refused_and_another_worker_makes_one() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, "w1").await;
    let long = "x".repeat((64 << 10) + 1);
    let (status, answer) = submit(&app, &popped["id"], &long).await;
    assert_eq!(
        (status, &answer["rc"]),
        (StatusCode::BAD_REQUEST, &json!("BadRequest")),
        "{answer}"
    );
    let popped = pop(&app, "w2").await;
    let (status, answer) = submit(&app, &popped["id"], &long[1..]).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let status = super::until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(status["generations"][0]["text"], long[1..]);
}

#[tokio::test]
async fn replies_that_nobody_reads_keep_others_from_long_texts_and_no_cancel_from_its_work() {
    let app = App::with_little_room().await;
    let id = ask(&app, json!({"n": 4})).await;
    for _ in 0..3 {
        let popped = pop(&app, "w1").await;
        let (status, answer) = submit(&app, &popped["id"], &"x".repeat(14_000)).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    super::until(&app, &id, |status| status["finished"] == 3).await;
    let path = format!("{}/{id}", super::STATUS);
    let unread = app.get(&path).await;
    assert_eq!(unread.status, StatusCode::OK);
    let refused = app.get(&path).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    let (refused, _) = call(&app, Method::DELETE, &path, Value::Null).await;
    assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
    drop(unread);
    let status = super::until(&app, &id, |status| status["waiting"] == 0).await;
    assert_eq!(status["generations"].as_array().unwrap().len(), 3);
    assert!(pop(&app, "w1").await["id"].is_null());
}

#[tokio::test]
async fn an_answer_to_a_chat_that_nobody_reads_takes_its_room() {
    let app = App::with_little_room().await;
    let id = ask(&app, json!({"n": 3})).await;
    for _ in 0..3 {
        let popped = pop(&app, "w1").await;
        submit(&app, &popped["id"], &"x".repeat(14_000)).await;
    }
    super::until(&app, &id, |status| status["done"] == true).await;
    let rig = Puppet::connect(&app.board).await;
    let long = "x".repeat(40_000);
    let chat = json!({"model": "tiny", "n": 2, "messages": [{"role": "user", "content": "hi"}]});
    let (unread, ()) = tokio::join!(app.chat(&chat), async {
        for _ in 0..2 {
            rig.answer(&[&long]).await;
        }
    });
    assert_eq!(unread.status, StatusCode::OK);
    let path = format!("{}/{id}", super::STATUS);
    let refused = app.get(&path).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    let reply = unread.json().await;
    assert_eq!(reply["choices"][1]["message"]["content"], long);
    assert_eq!(app.get(&path).await.status, StatusCode::OK);
}

#[tokio::test]
async fn no_spelling_of_a_private_address_is_fetched_from() {
    let app = App::start().await;
    for host in [
        "127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0x7f.1",
        "127.1",
        "0",
        "0.0.0.0",
        "[::]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
        "[64:ff9b::7f00:1]",
        "100.64.0.1",
        "224.0.0.1",
        "a@127.0.0.1",
        "127.0.0.1:22",
        "１２７.0.0.1",
        "[::127.0.0.1]",
        "[2002:7f00:1::]",
    ] {
        for scheme in ["http", "https"] {
            let address = format!("{scheme}://{host}/a.png");
            for (path, body) in [
                (
                    images::ASYNC,
                    json!({"prompt": "p", "source_image": address}),
                ),
                (
                    forms::ASYNC,
                    json!({"source_image": address, "forms": [{"name": "caption"}]}),
                ),
            ] {
                let (status, answer) = post(&app, path, body).await;
                assert_eq!(status, StatusCode::BAD_REQUEST, "{address}: {answer}");
            }
        }
    }
    for address in [
        "file:///etc/passwd",
        "ftp://example.org/a.png",
        "gopher://x",
        "https://",
    ] {
        let body = json!({"prompt": "p", "source_image": address});
        let (status, answer) = post(&app, images::ASYNC, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{address}: {answer}");
    }
}

#[tokio::test]
async fn a_job_that_was_given_back_is_nobodys_to_bring_and_its_place_is_not_taken_twice() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let first = pop(&app, "w1").await;
    let fault = json!({"id": first["id"], "generation": "", "state": "faulted"});
    assert_eq!(post(&app, SUBMIT, fault).await.0, StatusCode::OK);
    let (status, late) = submit(&app, &first["id"], "late").await;
    assert_eq!(
        (status, &late["rc"]),
        (StatusCode::BAD_REQUEST, &json!("AbortedGen"))
    );
    let second = pop(&app, "w2").await;
    assert_ne!(second["id"], first["id"], "an id for each attempt");
    assert_eq!(
        submit(&app, &second["id"], "in time").await.0,
        StatusCode::OK
    );
    let status = super::until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(status["generations"][0]["text"], "in time");
    assert!(pop(&app, "w3").await["id"].is_null());
}

#[tokio::test]
async fn what_is_sent_to_ask_is_not_kept_when_it_is_refused() {
    let app = App::start().await;
    for body in [
        json!({"prompt": "a\0b"}),
        json!({"prompt": ""}),
        json!({"prompt": 1}),
    ] {
        assert_eq!(post(&app, ASYNC, body).await.0, StatusCode::BAD_REQUEST);
    }
    let (_, load) = call(&app, Method::GET, "/api/v2/status/performance", Value::Null).await;
    assert_eq!(load["queued_text_requests"], 0, "{load}");
}
