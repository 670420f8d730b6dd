//! The service about itself: its modes, its load, its numbers, its words.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use futures_util::future::join_all;
use muster::coordinator::documents::{Document, Documents, News};
use muster::coordinator::http::ROUTES;
use muster::coordinator::http::serve::PeerAddress;
use muster::coordinator::names::Names;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster_testing::eventually;
use serde_json::{Value, json};

use super::{ASYNC, POP, ask, call, call_as, images, look, pop, post, submit, until, worker};
use crate::support::app::{Answer, App, request};
use crate::support::contract::{assert_all_fit, assert_fits};

const MODES: &str = "/api/v2/status/modes";

async fn key_of(app: &App, roles: Roles) -> String {
    app.account_with(roles, Scopes::ALL).await
}

async fn switch(app: &App, modes: Value) -> Value {
    let (status, switched) = call(app, Method::PUT, MODES, modes).await;
    assert_eq!(status, StatusCode::OK, "{switched}");
    assert_fits("ModeStatus", &switched);
    switched
}

#[tokio::test]
async fn modes_are_read_without_a_key_but_for_a_raid_and_by_moderators_whole() {
    let app = App::start().await;
    let open = app.get(MODES).await.json().await;
    assert_fits("ModeStatus", &open);
    assert_eq!(
        open,
        json!({"maintenance_mode": false, "invite_only_mode": false})
    );
    let (_, whole) = call(&app, Method::GET, MODES, Value::Null).await;
    assert_fits("ModeStatus", &whole);
    assert_eq!(whole["raid_mode"], json!(false));
    let moderator = key_of(&app, Roles::MODERATOR).await;
    let (_, whole) = call_as(&app, &moderator, Method::GET, MODES, Value::Null).await;
    assert_eq!(whole["raid_mode"], json!(false));
    let check = async |key: &str, status, rc| {
        let (found, answer) = call_as(&app, key, Method::GET, MODES, Value::Null).await;
        assert_eq!((found, &answer["rc"]), (status, &json!(rc)), "{answer}");
    };
    let user = key_of(&app, Roles::USER).await;
    check(&user, StatusCode::FORBIDDEN, "NotModerator").await;
    check("0000000000", StatusCode::FORBIDDEN, "NotModerator").await;
    let of_worker = app.key_for(Scopes::WORKER_CONNECT).await;
    check(&of_worker, StatusCode::FORBIDDEN, "NotModerator").await;
    check(&"A".repeat(22), StatusCode::UNAUTHORIZED, "InvalidAPIKey").await;
}

#[tokio::test]
async fn moderators_switch_modes_and_admins_maintenance() {
    let app = App::start().await;
    let moderator = key_of(&app, Roles::MODERATOR).await;
    let user = key_of(&app, Roles::USER).await;
    let put = async |key: &str, modes| call_as(&app, key, Method::PUT, MODES, modes).await;
    let (status, answer) = put(&moderator, json!({"raid_mode": true})).await;
    assert_eq!(
        (status, answer),
        (StatusCode::OK, json!({"raid_mode": true}))
    );
    let (_, whole) = call(&app, Method::GET, MODES, Value::Null).await;
    assert_eq!(whole["raid_mode"], json!(true));
    for (key, modes, status, rc) in [
        (
            &moderator,
            json!({"maintenance_mode": true}),
            403,
            "NotAdmin",
        ),
        (&moderator, json!({}), 400, "NoHordeModSelected"),
        (&user, json!({"raid_mode": false}), 403, "NotModerator"),
    ] {
        let (found, answer) = put(key, modes).await;
        assert_eq!((found.as_u16(), &answer["rc"]), (status, &json!(rc)));
    }
    let (found, answer) = put(&moderator, json!({"raid_mode": "on"})).await;
    assert_eq!(found, StatusCode::BAD_REQUEST);
    assert!(answer["errors"]["raid_mode"].is_string(), "{answer}");
    let (_, whole) = call(&app, Method::GET, MODES, Value::Null).await;
    assert_eq!(
        whole,
        json!({"maintenance_mode": false, "invite_only_mode": false, "raid_mode": true})
    );
}

#[tokio::test]
async fn a_maintenance_switch_during_a_pop() {
    let app = App::start().await;
    let before = ask(&app, json!({})).await;
    let popped = pop(&app, "w1").await;
    let waiting = ask(&app, json!({})).await;
    let pops = async { post(&app, POP, worker("w2")).await };
    let ((_, second), _) = tokio::join!(pops, switch(&app, json!({"maintenance_mode": true})));
    let body = json!({"prompt": "p", "models": ["tiny"]});
    let (status, refused) = post(&app, ASYNC, body.clone()).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused["rc"], "MaintenanceMode");
    // Workers continue with running and waiting jobs.
    assert_ne!(second["id"], Value::Null, "{second}");
    for (request, job) in [(&before, &popped["id"]), (&waiting, &second["id"])] {
        let (status, submitted) = submit(&app, job, "a text").await;
        assert_eq!(status, StatusCode::OK, "{submitted}");
        let done = until(&app, request, |status| status["done"] == true).await;
        assert_eq!(done["generations"][0]["text"], "a text");
    }
    switch(&app, json!({"maintenance_mode": false})).await;
    let (status, _) = post(&app, ASYNC, body).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!(look(&app, &before).await["finished"], 1);
}

#[tokio::test]
async fn maintenance_ends_images_that_wait_and_not_those_that_are_drawn() {
    let app = App::start().await;
    let id = images::ask(&app, json!({"params": {"n": 3}})).await;
    let popped = images::pop(&app, json!({})).await;
    switch(&app, json!({"maintenance_mode": true})).await;
    let (status, answer) = images::submit(&app, &popped["id"], json!({})).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let done = images::until_done(&app, &id).await;
    assert_eq!(
        (&done["finished"], &done["waiting"], &done["faulted"]),
        (&json!(1), &json!(0), &json!(false)),
        "{done}"
    );
    assert!(images::pop(&app, json!({})).await["id"].is_null());
}

/// A request from that address.
async fn from(app: &App, address: &str, method: Method, path: &str, key: &str) -> Answer {
    let mut asked = request(method, path, &[("apikey", key)], Body::empty());
    let peer = PeerAddress(address.parse().unwrap());
    asked.extensions_mut().insert(peer);
    app.send(asked).await
}

async fn limited() -> App {
    App::with(DoorSettings {
        rate_limits: true,
        ..DoorSettings::default()
    })
    .await
}

#[tokio::test]
async fn every_reply_of_a_limited_route_says_what_is_left_and_the_last_one_when_to_come_back() {
    let app = limited().await;
    let path = "/api/v2/generate/text/status/nobody";
    let look = async |method| from(&app, "192.0.2.1", method, path, &app.key).await;
    for left in (0..60).rev() {
        // Looking and cancelling are counted together.
        let method = [Method::GET, Method::DELETE][left % 2].clone();
        let answer = look(method).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("60"));
        let expected = left.to_string();
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(&*expected));
        let reset: i64 = answer.header("x-ratelimit-reset").unwrap().parse().unwrap();
        assert!(reset > 1_700_000_000);
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait));
    }
    let refused = look(Method::GET).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
    assert!(refused.header("retry-after").is_some());
    let body = refused.json().await;
    assert_fits("RateLimitError", &body);
    assert_eq!(body, json!({"message": "60 per 1 minute"}));
    let other_id = "/api/v2/generate/text/status/somebody";
    for (address, path) in [("192.0.2.2", path), ("192.0.2.1", other_id)] {
        let answer = from(&app, address, Method::GET, path, &app.key).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn the_full_status_of_images_is_shown_ten_times_a_minute() {
    let app = limited().await;
    let path = "/api/v2/generate/status/00000000-0000-0000-0000-000000000000";
    for _ in 0..10 {
        let answer = from(&app, "2001:db8::1", Method::GET, path, &app.key).await;
        assert_ne!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    }
    // Another address of the same household.
    let answer = from(&app, "2001:db8::2", Method::DELETE, path, &app.key).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.json().await["message"], "10 per 1 minute");
}

#[tokio::test]
async fn ratings_are_limited_whatever_ids_are_made_up() {
    let app = limited().await;
    let rate = async |id: usize| {
        let path = format!("/api/v2/generate/rate/00000000-0000-0000-0000-{id:012}");
        from(&app, "192.0.2.1", Method::POST, &path, &app.key).await
    };
    for id in 0..90 {
        assert_ne!(rate(id).await.status, StatusCode::TOO_MANY_REQUESTS);
    }
    let answer = rate(90).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.json().await["message"], "90 per 1 minute");
}

#[tokio::test]
async fn the_shortest_limit_is_named_and_a_known_address_may_ask_more_often() {
    let app = limited().await;
    let user = key_of(&app, Roles::USER).await;
    let trusted = key_of(&app, Roles::TRUSTED).await;
    let ask = async |address: &str, key: &str| {
        let body = json!({"prompt": "p", "models": ["tiny"]}).to_string();
        let mut asked = request(Method::POST, ASYNC, &[("apikey", key)], body.into());
        let peer = PeerAddress(address.parse().unwrap());
        asked.extensions_mut().insert(peer);
        app.send(asked).await
    };
    let answers = join_all((0..6).map(|_| ask("192.0.2.7", &user))).await;
    let refused = answers
        .into_iter()
        .find(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS);
    let refused = refused.unwrap().json().await;
    assert_eq!(refused, json!({"message": "2 per 1 second"}));
    let first = ask("192.0.2.8", &trusted).await;
    assert_eq!(first.status, StatusCode::ACCEPTED);
    assert_eq!(first.header("x-ratelimit-limit"), Some("2"));
    let second = ask("192.0.2.8", &user).await;
    assert_eq!(second.header("x-ratelimit-limit"), Some("10"));
}

#[tokio::test]
async fn the_heartbeat_is_not_limited_and_nothing_is_where_limits_are_off() {
    let app = limited().await;
    for _ in 0..100 {
        let path = "/api/v2/status/heartbeat";
        let answer = from(&app, "192.0.2.1", Method::GET, path, &app.key).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.header("x-ratelimit-limit"), None);
    }
    let app = App::start().await;
    for _ in 0..100 {
        let answer = from(&app, "192.0.2.1", Method::GET, MODES, &app.key).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.header("x-ratelimit-limit"), None);
    }
}

#[tokio::test]
async fn every_route_of_the_poll_api_is_limited_but_the_heartbeat() {
    for route in ROUTES.iter().filter(|route| route.is_legacy()) {
        let is_heartbeat = route.path == "/api/v2/status/heartbeat";
        assert_eq!(route.rates().is_empty(), is_heartbeat, "{}", route.path);
    }
}

#[tokio::test]
async fn replies_have_the_headers_that_clients_look_for() {
    let app = App::start().await;
    let headers = [("host", "horde.example:7010")];
    let show = async |path: &str| {
        app.send(request(Method::GET, path, &headers, Body::empty()))
            .await
    };
    for path in [MODES, "/api/v2/status/heartbeat", "/api/v2/documents/terms"] {
        let answer = show(path).await;
        assert_eq!(
            answer.header("content-type"),
            Some("application/json; charset=utf-8")
        );
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        let methods = answer.header("access-control-allow-methods").unwrap();
        for method in ["POST", "GET", "OPTIONS", "PUT", "DELETE", "PATCH"] {
            assert!(methods.contains(method), "{methods}");
        }
        let allowed = answer.header("access-control-allow-headers").unwrap();
        for name in [
            "apikey",
            "Client-Agent",
            "X-Fields",
            "Proxied-For",
            "Proxy-Authorization",
        ] {
            assert!(allowed.contains(name), "{allowed}");
        }
        let node = answer.header("horde-node").unwrap();
        assert_eq!(
            node,
            format!("horde.example:7010:{}", env!("CARGO_PKG_VERSION"))
        );
    }
    let missing = show("/api/v2/nothing/here").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert!(missing.json().await["message"].is_string());
    let wrong = app
        .send(request(Method::PATCH, MODES, &[], Body::empty()))
        .await;
    assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
    let body = wrong.json().await;
    assert!(
        body["message"].is_string() && body.get("rc").is_none(),
        "{body}"
    );
}

/// Asks for a text and has it made.
async fn made(app: &App, max_length: u64) {
    let id = ask(app, json!({"max_length": max_length})).await;
    let popped = pop(app, "w1").await;
    let (status, _) = submit(app, &popped["id"], "once upon a time there was a test").await;
    assert_eq!(status, StatusCode::OK);
    until(app, &id, |status| status["done"] == true).await;
}

/// Asks until it is as wanted.
async fn shown(app: &App, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(path, async || {
        let answer = app.get(path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        let answer = answer.json().await;
        match wanted(&answer) {
            true => Ok(answer),
            false => Err(answer),
        }
    })
    .await
}

#[tokio::test]
async fn what_was_written_is_counted_in_every_window_and_by_model() {
    let app = App::start().await;
    let nothing = app.get("/api/v2/stats/text/totals").await.json().await;
    assert_fits("StatsTxtTotals", &nothing);
    made(&app, 80).await;
    made(&app, 20).await;
    let totals = shown(&app, "/api/v2/stats/text/totals", |totals| {
        totals["total"]["requests"] == 2
    })
    .await;
    assert_fits("StatsTxtTotals", &totals);
    for window in ["minute", "hour", "day", "month", "total"] {
        assert_eq!(totals[window], json!({"requests": 2, "tokens": 100}));
    }
    let models = app.get("/api/v2/stats/text/models").await.json().await;
    assert_fits("TxtModelStats", &models);
    assert_eq!(models["day"], json!({"tiny": 2}));
    assert_eq!(
        (&models["month"], &models["total"]),
        (&models["day"], &models["day"])
    );
    let images = app.get("/api/v2/stats/img/totals").await.json().await;
    assert_fits("StatsImgTotals", &images);
    assert_eq!(images["total"], json!({"images": 0, "ps": 0}));
    let models = app.get("/api/v2/stats/img/models?model_state=all").await;
    assert_fits("ImgModelStats", &models.json().await);
}

#[tokio::test]
async fn what_waits_and_who_works_is_told_for_the_service_and_for_each_model() {
    let app = App::with(DoorSettings {
        names: Names::of([("tiny", ["tiny"])]),
        ..DoorSettings::default()
    })
    .await;
    ask(&app, json!({"max_length": 80, "n": 2})).await;
    let waiting = shown(&app, "/api/v2/status/performance", |load| {
        load["queued_text_requests"] == 2
    })
    .await;
    assert_fits("ServicePerformance", &waiting);
    assert_eq!(waiting["queued_tokens"], json!(160.0));
    assert_eq!(waiting["text_worker_count"], json!(0));
    let path = "/api/v2/status/models?type=text";
    let unserved = app.get(path).await.json().await;
    assert_all_fit("ActiveModel", &unserved);
    assert_eq!(
        (
            &unserved[0]["name"],
            &unserved[0]["eta"],
            &unserved[0]["count"]
        ),
        (&json!("tiny"), &json!(10_000), &json!(0))
    );
    assert_eq!(
        (&unserved[0]["queued"], &unserved[0]["jobs"]),
        (&json!(160.0), &json!(2.0))
    );
    let popped = pop(&app, "w1").await;
    submit(&app, &popped["id"], "once upon a time").await;
    let served = shown(&app, path, |models| models.as_array().unwrap().len() == 2).await;
    assert_all_fit("ActiveModel", &served);
    let named = |name: &str| {
        let all = served.as_array().unwrap();
        all.iter()
            .find(|model| model["name"] == name)
            .unwrap()
            .clone()
    };
    assert!(named("tiny")["count"].as_u64() > Some(0));
    assert_eq!(named("other")["eta"], json!(0));
    let load = app.get("/api/v2/status/performance").await.json().await;
    assert_eq!(load["text_worker_count"], json!(1));
    for (query, expected) in [
        ("&model_state=known", json!(["tiny"])),
        ("&model_state=custom", json!(["other"])),
        ("&min_count=1000", json!([])),
        ("&max_count=0", json!([])),
    ] {
        let models = app.get(&format!("{path}{query}")).await.json().await;
        let names: Vec<&Value> = models
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["name"])
            .collect();
        assert_eq!(json!(names), expected, "{query}");
    }
    for query in ["&model_state=none", "&min_count=few", "&type=sound"] {
        let refused = app
            .get(&format!("/api/v2/status/models?type=text{query}"))
            .await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}");
        assert_eq!(refused.json().await["rc"], "BadRequest");
    }
    let images = app.get("/api/v2/status/models").await.json().await;
    assert_eq!(images, json!([]));
}

#[tokio::test]
async fn a_model_is_found_by_its_name_whatever_is_in_it() {
    let app = App::start().await;
    let body = json!({"name": "w1", "models": ["Org/Model 7B"], "bridge_agent": "test:1:url"});
    post(&app, POP, body).await;
    let path = "/api/v2/status/models/Org%2FModel%207B";
    let found = shown(&app, path, |found| found != &json!([])).await;
    assert_all_fit("ActiveModel", &found);
    assert_eq!(
        (found.as_array().unwrap().len(), &found[0]["name"]),
        (1, &json!("Org/Model 7B"))
    );
    let nobody = app.get("/api/v2/status/models/nobody").await.json().await;
    assert_eq!(nobody, json!([]));
    let (_, wanted) = call(&app, Method::GET, "/api/v2/auto_worker_type", Value::Null).await;
    assert_fits("AutoWorkerTypeResponse", &wanted);
    assert_eq!(wanted["recommended_worker_type"], "image");
}

#[tokio::test]
async fn a_model_that_only_its_owner_is_served_by_stands_in_no_list() {
    let app = App::start().await;
    pop(&app, "w1").await;
    let path = "/api/v2/status/models?type=text";
    shown(&app, path, |models| models != &json!([])).await;
    let (_, rig) = call(&app, Method::GET, "/api/v2/workers/name/w1", Value::Null).await;
    let change = format!("/api/v2/workers/{}", rig["id"].as_str().unwrap());
    for on in [true, false] {
        let (status, _) = call(&app, Method::PUT, &change, json!({"maintenance": on})).await;
        assert_eq!(status, StatusCode::OK);
        shown(&app, path, |models| (models == &json!([])) == on).await;
    }
}

#[tokio::test]
async fn a_model_of_one_account_is_found_by_its_name_and_stands_in_no_list() {
    let app = App::start().await;
    let (_, me) = call(&app, Method::GET, "/api/v2/find_user", Value::Null).await;
    let model = format!("horde_special::{}", me["username"].as_str().unwrap());
    let body = json!({"name": "w1", "models": [model, "tiny"], "bridge_agent": "test:1:url"});
    let (status, popped) = post(&app, POP, body).await;
    assert_eq!(status, StatusCode::OK, "{popped}");
    let path = format!("/api/v2/status/models/{}", model.replace('#', "%23"));
    let found = shown(&app, &path, |found| found != &json!([])).await;
    assert_eq!(found[0]["name"], json!(model));
    let listed = app
        .get("/api/v2/status/models?type=text")
        .await
        .json()
        .await;
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["name"]),
        (1, &json!("tiny"))
    );
}

#[tokio::test]
async fn images_of_a_model_that_everybody_knows_are_counted_as_of_a_known_one() {
    let app = App::start().await;
    for model in ["AlbedoBase XL (SDXL)", "my own"] {
        let asked = json!({"r2": false, "models": [model]});
        let id = images::ask(&app, asked).await;
        let popped = images::pop(&app, json!({"models": [model]})).await;
        let (status, told) = images::submit(&app, &popped["id"], json!({})).await;
        assert_eq!(status, StatusCode::OK, "{told}");
        images::until_done(&app, &id).await;
    }
    let path = "/api/v2/stats/img/models";
    shown(&app, &format!("{path}?model_state=all"), |models| {
        models["total"].as_object().unwrap().len() == 2
    })
    .await;
    for (query, expected) in [
        ("", json!({"AlbedoBase XL (SDXL)": 1})),
        ("?model_state=custom", json!({"my own": 1})),
    ] {
        let models = app.get(&format!("{path}{query}")).await.json().await;
        assert_fits("ImgModelStats", &models);
        assert_eq!(models["total"], expected, "{query}");
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_read_names_nothing() {
    let app = App::start().await;
    let mut walked = 0;
    for route in ROUTES {
        let has_part = route.path.ends_with('}') && route.path.matches('{').count() == 1;
        // No list has such a model, and invalid addresses are refused as such.
        let is_looked_up = !["/api/v2/status/models/", "/api/v2/operations/ipaddr/"]
            .iter()
            .any(|other| route.path.starts_with(other));
        if !route.is_legacy() || route.method != "GET" || !has_part || !is_looked_up {
            continue;
        }
        let (before, _) = route.path.split_once('{').unwrap();
        let (status, told) = call(&app, Method::GET, &format!("{before}%FF"), Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{}: {told}", route.path);
        assert!(told["message"].is_string(), "{}: {told}", route.path);
        walked += 1;
    }
    assert!(walked >= 10, "{walked}");
    let nobody = app.get("/api/v2/status/models/%FF").await.json().await;
    assert_eq!(nobody, json!([]));
}

#[tokio::test]
async fn the_operator_says_what_is_in_documents_and_news() {
    let news = |date: &str| News {
        date: date.to_owned(),
        text: "**new**".to_owned(),
        title: Some("New".to_owned()),
        importance: None,
        tags: vec!["a".to_owned()],
        links: Vec::new(),
    };
    let documents = Documents {
        terms: Document::of("# Be *kind*"),
        ..Documents::default()
    };
    let app = App::with(DoorSettings {
        documents: documents.with_news(vec![news("2026-01-01"), news("2026-05-01")]),
        ..DoorSettings::default()
    })
    .await;
    let show = async |path: &str| app.get(&format!("/api/v2/{path}")).await.json().await;
    for name in ["terms", "privacy", "sponsors"] {
        for format in ["", "?format=html", "?format=markdown"] {
            let document = show(&format!("documents/{name}{format}")).await;
            assert_fits("DocumentResponse", &document);
            assert_eq!(document.as_object().unwrap().len(), 1);
        }
    }
    let expected = json!({"html": "<h1>Be <em>kind</em></h1>\n"});
    assert_eq!(show("documents/terms").await, expected);
    let expected = json!({"markdown": "# Be *kind*"});
    assert_eq!(show("documents/terms?format=markdown").await, expected);
    let refused = app.get("/api/v2/documents/terms?format=pdf").await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.json().await["rc"], "BadRequest");
    let told = show("status/news").await;
    assert_all_fit("Newspiece", &told);
    assert_eq!(
        (&told[0]["date_published"], &told[1]["date_published"]),
        (&json!("2026-05-01"), &json!("2026-01-01"))
    );
    let info = app.get("/.well-known/serviceinfo").await.json().await;
    assert_eq!(info["api"]["aihorde"]["base_url"], "/api");
    assert!(info["software"]["version"].is_string() && info["name"].is_string());
}

#[tokio::test]
async fn x_fields_leave_of_every_reply_what_was_asked_for() {
    let app = App::start().await;
    made(&app, 20).await;
    let masked = async |path: &str, mask: &str| {
        let headers = [("apikey", &*app.key), ("x-fields", mask)];
        let answer = app.send(request(Method::GET, path, &headers, Body::empty()));
        answer.await
    };
    let mut walked = 0;
    for route in ROUTES {
        let takes_no_id = !route.path.contains('{');
        if !route.is_legacy() || route.method != "GET" || !takes_no_id {
            continue;
        }
        let (_, whole) = call(&app, Method::GET, route.path, Value::Null).await;
        let one = |value: &Value| match value {
            Value::Array(items) => items.first().cloned().unwrap_or(json!({})),
            other => other.clone(),
        };
        if app.get(route.path).await.status != StatusCode::OK {
            continue;
        }
        let first = one(&whole);
        let Some(name) = first.as_object().and_then(|fields| fields.keys().next()) else {
            continue;
        };
        let answer = masked(route.path, name).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", route.path);
        let left = one(&answer.json().await);
        let names: Vec<&String> = left.as_object().unwrap().keys().collect();
        assert_eq!(names, [name], "{}", route.path);
        let broken = masked(route.path, "{a,").await;
        assert_eq!(broken.status, StatusCode::BAD_REQUEST, "{}", route.path);
        let body = broken.json().await;
        assert!(body["message"].is_string() && body.get("rc").is_none());
        walked += 1;
    }
    assert!(walked >= 11, "{walked}");
}

#[tokio::test]
async fn a_masked_or_privileged_reply_reaches_nobody_else() {
    let app = App::start().await;
    let masked = app
        .send(request(
            Method::GET,
            MODES,
            &[("apikey", &app.key), ("x-fields", "raid_mode")],
            Body::empty(),
        ))
        .await;
    assert_eq!(masked.json().await, json!({"raid_mode": false}));
    let open = app.get(MODES).await.json().await;
    assert_eq!(
        open,
        json!({"maintenance_mode": false, "invite_only_mode": false})
    );
}

#[tokio::test]
async fn a_service_that_shows_its_passkey_says_for_whom_it_asks() {
    let app = limited().await;
    let service = key_of(&app, Roles::SERVICE).await;
    let find = "/api/v2/find_user";
    let (_, user) = call_as(&app, &service, Method::GET, find, Value::Null).await;
    let path = format!("/api/v2/users/{}", user["id"]);
    let body = json!({"generate_proxy_passkey": true});
    let (status, made) = call_as(&app, &service, Method::PUT, &path, body).await;
    assert_eq!(status, StatusCode::OK, "{made}");
    let passkey = made["proxy_passkey"].as_str().unwrap();
    let ask_for = async |path: &str, passkey: &str, client: &str| {
        let headers = [
            ("apikey", &*service),
            ("proxy-authorization", passkey),
            ("proxied-for", client),
        ];
        let mut asked = request(Method::POST, path, &headers, "{}".into());
        let peer = PeerAddress("192.0.2.9".parse().unwrap());
        asked.extensions_mut().insert(peer);
        app.send(asked).await
    };
    let ask = async |passkey: &str, client: &str| ask_for(ASYNC, passkey, client).await;
    let refused = async |passkey: &str| {
        let clients = ["203.0.113.1", "203.0.113.2", "203.0.113.3", "2001:db8::1"];
        let answers = join_all(clients.map(|client| ask(passkey, client))).await;
        let too_many = |answer: &&Answer| answer.status == StatusCode::TOO_MANY_REQUESTS;
        answers.iter().filter(too_many).count()
    };
    // An unknown passkey is ignored: all users share the proxy's address.
    assert!(refused(&"A".repeat(22)).await > 0);
    // The right one is known within seconds; each client then is counted by itself.
    eventually("the passkey", async || refused(passkey).await == 0).await;
    // The same for chats: a block applies to one client, and not to all of them.
    let out = json!({"ipaddr": "203.0.113.9", "hours": 1});
    let (status, _) = post(&app, "/api/v2/operations/ipaddr", out).await;
    assert_eq!(status, StatusCode::OK);
    let status = async |client| {
        ask_for("/v1/chat/completions", passkey, client)
            .await
            .status
    };
    assert_eq!(status("203.0.113.9").await, StatusCode::FORBIDDEN);
    assert_eq!(status("203.0.113.8").await, StatusCode::BAD_REQUEST);
}
