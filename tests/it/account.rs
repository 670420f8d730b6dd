//! `/v1/account`: an account's view of itself, its keys, and its money.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use futures_util::future::join_all;
use muster::coordinator::accounts::KeyOrder;
use muster::coordinator::billing::{Charging, MicroUsd, ModelRates, PriceBook};
use muster::coordinator::clock::wall_clock;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::storage::{
    CreditGrant, CreditHold, CreditKind, CreditOutcome, RequestCount,
};
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{
    Capabilities, Event, FailureKind, FinishReason, JobId, Kind, ResultPart, UnixMillis, Vector,
};
use muster_testing::eventually;
use serde_json::{Value, json};

use super::support::app::{Answer, App, request};
use super::support::puppet::{Puppet, done, failed, started, text};

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

async fn post_chat(app: &App, key: &str, body: &Value) -> Answer {
    let path = "/v1/chat/completions";
    call(app, key, Method::POST, path, Some(body.clone())).await
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
async fn an_account_has_a_hundred_valid_keys_however_many_are_created_at_once() {
    let app = App::start().await;
    let create = async |label: usize| {
        let body = json!({"label": label.to_string()});
        create_key(&app, &app.key, body).await.status
    };
    let before = get(&app, &app.key, "/v1/account/keys").await["keys"]
        .as_array()
        .unwrap()
        .len();
    let answers = join_all((0..110).map(create)).await;
    let made = answers.iter();
    let made = made.filter(|status| status.is_success()).count();
    assert_eq!(before + made, 100);
    assert!(answers.contains(&StatusCode::CONFLICT));
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

/// Prices of the only model: 1 USD per million prompt tokens, and 2 of the output.
pub fn charging() -> DoorSettings {
    let usd = |usd: i64| Some(MicroUsd(usd * 1_000_000));
    let reading = ModelRates {
        input_per_mtok: usd(3),
        ..ModelRates::default()
    };
    let rates = ModelRates {
        input_per_mtok: usd(1),
        output_per_mtok: usd(2),
        ..ModelRates::default()
    };
    let rates = rates.with(Kind::Image, usd(1));
    DoorSettings {
        charging: Charging::On,
        price_book: PriceBook::new(None)
            .with("tiny", ["small"], rates)
            .with("reader", [], reading),
        ..DoorSettings::default()
    }
}

/// Adds paid credits to the account of this key.
pub async fn pay(app: &App, key: &str, micro: i64) {
    let grant = CreditGrant {
        account: app.accounts.authenticate(key).await.unwrap().account,
        amount: MicroUsd(micro),
        kind: CreditKind::Paid,
        now: wall_clock(),
    };
    app.store.add_credits(grant).await.unwrap();
}

/// The paid balance and the sum of holds.
pub async fn money(app: &App, key: &str) -> (i64, i64) {
    let credits = get(app, key, "/v1/account/credits").await;
    let micro = |value: &Value| value.as_i64().unwrap();
    (
        micro(&credits["paid"]["balance_micro"]),
        micro(&credits["held_micro"]),
    )
}

#[tokio::test]
async fn a_text_costs_its_tokens_and_the_rest_of_the_hold_is_given_back() {
    let app = App::with(charging()).await;
    let rig = Puppet::connect(&app.board).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 1000).await;
    let body = chat(json!({"max_tokens": 100}));
    let (answer, ()) = tokio::join!(post_chat(&app, &key, &body), async {
        let offer = rig.offer().await;
        let (paid, held) = money(&app, &key).await;
        // What any tokenizer and template may make of the prompt; the output is at most a hundred tokens.
        assert!((329..390).contains(&held), "{held}");
        assert_eq!(paid + held, 1000);
        rig.say(
            &offer,
            [text("hello"), text(" world"), done(FinishReason::Stop)],
        )
        .await;
    });
    assert_eq!(answer.status, StatusCode::OK);
    let jobs = get(&app, &key, "/v1/account/jobs").await;
    let job = &jobs["jobs"][0];
    let cost = job["cost_micro"].as_i64().unwrap();
    let usage = answer.json().await["usage"].clone();
    let tokens = |name: &str| usage[name].as_i64().unwrap();
    // A token of the prompt is one millionth, a token of the output two.
    assert_eq!(
        cost,
        tokens("prompt_tokens") + 2 * tokens("completion_tokens")
    );
    assert_eq!(cost, 11);
    assert_eq!(money(&app, &key).await, (1000 - cost, 0));
}

#[tokio::test]
async fn a_request_without_the_credits_is_402_in_every_dialect() {
    let app = App::with(charging()).await;
    let _rig = Puppet::connect(&app.board).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 10).await;
    let message = json!({"model": "tiny", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]});
    let prompt = json!({"model": "tiny", "max_tokens": 100, "prompt": "hi"});
    for (path, body) in [
        ("/v1/chat/completions", &message),
        ("/v1/completions", &prompt),
        ("/v1/messages", &message),
    ] {
        let refused = call(&app, &key, Method::POST, path, Some(body.clone())).await;
        assert_eq!(refused.status, StatusCode::PAYMENT_REQUIRED, "{path}");
        let refused = refused.json().await;
        assert_eq!(refused["error"]["code"], "insufficient_credits", "{path}");
        assert_eq!(refused["error"]["type"], "billing_error", "{path}");
        let is_anthropic = refused.get("type").is_some();
        assert_eq!(is_anthropic, path == "/v1/messages");
    }
    assert_eq!(money(&app, &key).await, (10, 0));
}

#[tokio::test]
async fn a_model_without_a_price_is_402_while_it_is_online_and_charged() {
    let app = App::with(charging()).await;
    let _rig = Puppet::serving(&app.board, "rare", Capabilities::default()).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 1000).await;
    let mut body = chat(json!({}));
    body["model"] = "rare".into();
    let refused = post_chat(&app, &key, &body).await;
    assert_eq!(refused.status, StatusCode::PAYMENT_REQUIRED);
    body["model"] = "unknown".into();
    let refused = post_chat(&app, &key, &body).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_failed_or_refused_text_costs_nothing() {
    let app = App::with(charging()).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 1000).await;
    let body = chat(json!({"max_tokens": 10}));
    let refused = post_chat(&app, &key, &body).await;
    assert!(refused.status.is_client_error() || refused.status.is_server_error());
    assert_eq!(money(&app, &key).await, (1000, 0));
    let rig = Puppet::connect(&app.board).await;
    let (answer, ()) = tokio::join!(post_chat(&app, &key, &body), async {
        let offer = rig.offer().await;
        let failure = failed(FailureKind::ContextLengthExceeded, "too long");
        rig.say(&offer, [failure]).await;
    });
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(money(&app, &key).await, (1000, 0));
}

#[tokio::test]
async fn a_client_that_leaves_pays_for_what_it_got() {
    let app = App::with(charging()).await;
    let rig = Puppet::connect(&app.board).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 1000).await;
    let body = chat(json!({"max_tokens": 100, "stream": true}));
    let (answer, offer) = tokio::join!(post_chat(&app, &key, &body), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started(), text("one"), text(" two")])
            .await;
        offer
    });
    drop(answer);
    rig.cancelled(&offer).await;
    let cost = eventually("the end of the hold", async || {
        match money(&app, &key).await {
            (left, 0) => Ok(1000 - left),
            (_, held) => Err(held),
        }
    })
    .await;
    assert!((5..34).contains(&cost), "{cost}");
}

#[tokio::test]
async fn a_model_of_embeddings_needs_no_price_for_output() {
    let app = App::with(charging()).await;
    let rig = Puppet::of_kind(&app.board, "reader", Kind::Embedding).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    pay(&app, &key, 1000).await;
    let quote = json!({"model": "reader", "modality": "text", "prompt_tokens": 10});
    let path = "/v1/account/credits/quote";
    let quote = call(&app, &key, Method::POST, path, Some(quote)).await;
    let quote = quote.json().await;
    assert_eq!(quote["estimate"]["cost_micro"], 30, "{quote}");
    let body = json!({"model": "reader", "input": "hello world"});
    let vector = Event::Part(Box::new(ResultPart::Vectors(vec![Vector(vec![1.0])])));
    let path = "/v1/embeddings";
    let (answer, ()) = tokio::join!(call(&app, &key, Method::POST, path, Some(body)), async {
        let offer = rig.offer().await;
        rig.say(&offer, [vector, done(FinishReason::Stop)]).await;
    });
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(money(&app, &key).await, (985, 0));
}

#[tokio::test]
async fn embeddings_cost_their_prompt_and_tokens_nothing() {
    let app = App::with(charging()).await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    let rig = Puppet::of_kind(&app.board, "tiny", Kind::Embedding).await;
    let body = json!({"model": "tiny", "input": "hello world"});
    let path = "/v1/embeddings";
    let refused = call(&app, &key, Method::POST, path, Some(body.clone())).await;
    assert_eq!(refused.status, StatusCode::PAYMENT_REQUIRED);
    pay(&app, &key, 1000).await;
    let vector = Event::Part(Box::new(ResultPart::Vectors(vec![Vector(vec![1.0])])));
    let (answer, ()) = tokio::join!(call(&app, &key, Method::POST, path, Some(body)), async {
        let offer = rig.offer().await;
        rig.say(&offer, [vector, done(FinishReason::Stop)]).await;
    });
    assert_eq!(answer.status, StatusCode::OK);
    // As the usage in the reply says.
    assert_eq!(answer.json().await["usage"]["prompt_tokens"], 5);
    assert_eq!(money(&app, &key).await, (995, 0));
}

#[tokio::test]
async fn without_charging_nothing_is_held_or_charged() {
    let app = App::with(DoorSettings {
        charging: Charging::allowlist(["alice"]),
        ..charging()
    })
    .await;
    let rig = Puppet::connect(&app.board).await;
    let body = chat(json!({}));
    let (answer, ()) = tokio::join!(app.chat(&body), rig.answer(&["hello"]));
    assert_eq!(answer.status, StatusCode::OK);
    let jobs = get(&app, &app.key, "/v1/account/jobs").await;
    assert_eq!(jobs["jobs"][0]["cost_micro"], Value::Null);
    let credits = get(&app, &app.key, "/v1/account/credits").await;
    assert_eq!(credits["charging_enabled"], false);
    assert_eq!(credits["charging_mode"], "allowlist");
    let account = get(&app, &app.key, "/v1/account").await;
    assert_eq!(account["charging"]["charged"], false);
}

#[tokio::test]
async fn a_quote_says_what_a_request_costs_and_who_pays_for_it() {
    let app = App::with(DoorSettings {
        free_credits_per_day: MicroUsd(100),
        ..charging()
    })
    .await;
    pay(&app, &app.key, 1_000_000).await;
    let quote = async |body: Value| {
        let path = "/v1/account/credits/quote";
        let answer = call(&app, &app.key, Method::POST, path, Some(body)).await;
        assert_eq!(answer.status, StatusCode::OK);
        answer.json().await
    };
    let text = quote(json!({"model": "small", "prompt_tokens": 100, "max_tokens": 50})).await;
    assert_eq!(text["estimate"]["cost_micro"], 200);
    assert_eq!(text["estimate"]["from_daily_micro"], 100);
    assert_eq!(text["estimate"]["from_paid_micro"], 100);
    assert_eq!(text["estimate"]["balance_sufficient"], true);
    let images = quote(json!({"model": "tiny", "modality": "image", "n": 4})).await;
    assert_eq!(images["estimate"]["cost_usd"], 4.0);
    assert_eq!(images["estimate"]["shortfall_micro"], 2_999_900);
    assert_eq!(images["estimate"]["balance_sufficient"], false);
    for unpriced in [
        json!({"model": "other"}),
        json!({"model": "tiny", "modality": "3d"}),
    ] {
        let estimate = &quote(unpriced).await["estimate"];
        assert_eq!(estimate["priced"], false);
        assert_eq!(estimate["reason"], "no_price");
    }
}

#[tokio::test]
async fn free_requests_of_a_day_end_with_429_until_midnight() {
    let app = App::with(DoorSettings {
        free_requests_per_day: Some(1),
        ..DoorSettings::default()
    })
    .await;
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    let body = chat(json!({}));
    // What no worker takes is not counted.
    assert!(!post_chat(&app, &key, &body).await.status.is_success());
    let rig = Puppet::connect(&app.board).await;
    let (answer, ()) = tokio::join!(post_chat(&app, &key, &body), rig.answer(&["hello"]));
    assert_eq!(answer.status, StatusCode::OK);
    let refused = post_chat(&app, &key, &body).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&wait), "{wait}");
    let credits = get(&app, &key, "/v1/account/credits").await;
    assert_eq!(credits["free_requests"]["remaining"], 0);
    pay(&app, &key, 1).await;
    let (answer, ()) = tokio::join!(post_chat(&app, &key, &body), rig.answer(&["hello"]));
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn credits_that_were_held_when_the_process_died_are_released_at_the_next_start() {
    let app = App::with(charging()).await;
    pay(&app, &app.key, 1000).await;
    let account = app.accounts.authenticate(&app.key).await.unwrap().account;
    let hold = CreditHold {
        account,
        jobs: vec![(JobId::random(), MicroUsd(400))],
        allowance: MicroUsd(0),
        count: RequestCount::Uncounted,
        now: UnixMillis(wall_clock().0 - 1),
    };
    assert_eq!(app.store.hold_credits(hold).await, Ok(CreditOutcome::Held));
    assert_eq!(money(&app, &app.key).await, (600, 400));
    let app = app.anew().await;
    assert_eq!(money(&app, &app.key).await, (1000, 0));
}

async fn post_with_key(app: &App, idempotency_key: &str, body: &Value) -> Answer {
    let headers = [
        ("apikey", app.key.as_str()),
        ("idempotency-key", idempotency_key),
    ];
    let path = "/v1/chat/completions";
    app.send(request(
        Method::POST,
        path,
        &headers,
        body.to_string().into(),
    ))
    .await
}

#[tokio::test]
async fn a_request_that_is_sent_again_with_its_key_gets_the_stored_reply() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = chat(json!({}));
    let (first, ()) = tokio::join!(post_with_key(&app, "one", &body), rig.answer(&["hello"]));
    assert_eq!(first.header("idempotent-replayed"), None);
    let job = first.header("x-job-id").unwrap().to_owned();
    let first = first.json().await;
    let again = post_with_key(&app, "one", &body).await;
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("x-job-id"), Some(job.as_str()));
    assert_eq!(again.json().await, first);
    // Keys of JSON have no order.
    let entries = body.as_object().unwrap().clone();
    let turned = Value::Object(entries.into_iter().rev().collect());
    assert_ne!(turned.to_string(), body.to_string());
    let turned = post_with_key(&app, "one", &turned).await;
    assert_eq!(turned.header("idempotent-replayed"), Some("true"));
    let other = post_with_key(&app, "one", &chat(json!({"max_tokens": 5}))).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    // The key of another account is another key.
    let key = app.account_with(Roles::USER, Scopes::ALL).await;
    let headers = [("apikey", key.as_str()), ("idempotency-key", "one")];
    let request = request(
        Method::POST,
        "/v1/chat/completions",
        &headers,
        body.to_string().into(),
    );
    let (answer, ()) = tokio::join!(app.send(request), rig.answer(&["hello"]));
    assert_eq!(answer.header("idempotent-replayed"), None);
    let long = "k".repeat(256);
    let refused = post_with_key(&app, &long, &body).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_reply_to_a_key_outlasts_the_process_and_shows_nothing_in_the_database() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = chat(json!({}));
    let (first, ()) = tokio::join!(
        post_with_key(&app, "one", &body),
        rig.answer(&["sesquipedalian"])
    );
    let first = first.text().await;
    assert!(first.contains("sesquipedalian"), "{first}");
    assert_eq!(app.places_of("sesquipedalian"), Vec::<&str>::new());
    drop(rig);
    let app = app.anew().await;
    let again = post_with_key(&app, "one", &body).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.text().await, first);
    let other = post_with_key(&app, "one", &chat(json!({"max_tokens": 5}))).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn a_request_with_a_key_ends_without_its_client_and_is_paid_once() {
    let app = App::with(charging()).await;
    pay(&app, &app.key, 1_000_000).await;
    let rig = Puppet::connect(&app.board).await;
    let body = chat(json!({"max_tokens": 10}));
    let offer = tokio::select! {
        _ = post_with_key(&app, "one", &body) => panic!("nobody has answered yet"),
        offer = rig.offer() => offer,
    };
    // The client is gone.
    rig.say(&offer, [started(), text("hello"), done(FinishReason::Stop)])
        .await;
    let again = eventually_stored(&app, &body).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    let reply = again.json().await;
    assert_eq!(reply["choices"][0]["message"]["content"], "hello");
    let (left, held) = money(&app, &app.key).await;
    assert_eq!(held, 0);
    let jobs = get(&app, &app.key, "/v1/account/jobs").await;
    let jobs = jobs["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 1);
    assert!(left < 1_000_000, "{left}");
}

/// The reply of a request whose client has gone, once it has ended.
async fn eventually_stored(app: &App, body: &Value) -> Answer {
    eventually("the end of the request", async || {
        let again = post_with_key(app, "one", body).await;
        (again.status != StatusCode::CONFLICT).then_some(again)
    })
    .await
}

#[tokio::test]
async fn a_key_is_taken_while_its_request_runs_and_free_again_after_a_failure() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = chat(json!({}));
    let (failure, ()) = tokio::join!(post_with_key(&app, "one", &body), async {
        let offer = rig.offer().await;
        let refused = post_with_key(&app, "one", &body).await;
        assert_eq!(refused.status, StatusCode::CONFLICT);
        let failure = failed(FailureKind::ContextLengthExceeded, "too long");
        rig.say(&offer, [failure]).await;
    });
    assert_eq!(failure.status, StatusCode::BAD_REQUEST);
    let streamed = chat(json!({"stream": true}));
    let (first, offer) = tokio::join!(post_with_key(&app, "one", &streamed), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started(), text("hello")]).await;
        offer
    });
    let refused = post_with_key(&app, "one", &streamed).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    rig.say(&offer, [done(FinishReason::Stop)]).await;
    first.chunks().await;
    let (again, ()) = tokio::join!(
        post_with_key(&app, "one", &streamed),
        rig.answer(&["hello"])
    );
    assert_eq!(again.status, StatusCode::OK);
    assert_eq!(again.header("idempotent-replayed"), None);
}
