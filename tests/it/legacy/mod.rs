//! The poll API, from a client's first question to its worker's reward.

mod annotations;
mod attacks;
mod chat;
mod errors;
mod expiry;
mod forms;
pub mod images;
mod kinds;
mod library;
mod masks;
mod matching;
mod messages;
mod moderation;
mod money;
mod our_forms;
mod our_worker;
mod payers;
mod people;
mod produced;
mod raid;
mod ranks;
mod restarts;
mod rigs;
mod sent;
mod service;
mod settings;
mod streamed;
mod style_keys;
mod styles;
mod suspicion;
mod teams;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::{Caller, Payer};
use muster::coordinator::clock::wall_clock;
use muster::coordinator::dispatch::Standing;
use muster::coordinator::names::Names;
use muster::coordinator::requests::Order;
use muster::coordinator::requests::orders::Asked;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{Body as Asks, Kudos, RequestId};
use muster::protocol::legacy::Body as _;
use muster::protocol::legacy::text::request::GenerationInputText;
use muster_testing::eventually;
use serde_json::{Value, json};

use crate::support::app::{Answer, App, request};
use crate::support::puppet::Puppet;

const ASYNC: &str = "/api/v2/generate/text/async";
const STATUS: &str = "/api/v2/generate/text/status";
const POP: &str = "/api/v2/generate/text/pop";
const SUBMIT: &str = "/api/v2/generate/text/submit";

/// Calls with the admin's key, and reads what comes back.
async fn call(app: &App, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    call_as(app, &app.key, method, path, body).await
}

async fn call_as(
    app: &App,
    key: &str,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    let body = match body {
        Value::Null => Body::empty(),
        body => body.to_string().into(),
    };
    let answer = app
        .send(request(method, path, &[("apikey", key)], body))
        .await;
    (answer.status, answer.json().await)
}

async fn post(app: &App, path: &str, body: Value) -> (StatusCode, Value) {
    call(app, Method::POST, path, body).await
}

/// Asks for texts of `tiny`; the id of the request.
async fn ask(app: &App, params: Value) -> String {
    let body = json!({"prompt": "Once upon", "models": ["tiny"], "params": params});
    let (status, answer) = post(app, ASYNC, body).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

async fn look(app: &App, id: &str) -> Value {
    let answer = app.get(&format!("{STATUS}/{id}")).await;
    assert_eq!(answer.status, StatusCode::OK);
    answer.json().await
}

/// Looks until it is as wanted.
async fn until(app: &App, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually("the wanted status", async || {
        let status = look(app, id).await;
        match wanted(&status) {
            true => Ok(status),
            false => Err(status),
        }
    })
    .await
}

fn worker(name: &str) -> Value {
    json!({
        "name": name, "models": ["tiny", "other"], "max_length": 512, "max_context_length": 4096,
        "bridge_agent": "test:1:url",
    })
}

async fn pop(app: &App, name: &str) -> Value {
    let (status, popped) = post(app, POP, worker(name)).await;
    assert_eq!(status, StatusCode::OK, "{popped}");
    popped
}

async fn submit(app: &App, id: &Value, text: &str) -> (StatusCode, Value) {
    post(
        app,
        SUBMIT,
        json!({"id": id, "generation": text, "seed": 1}),
    )
    .await
}

#[tokio::test]
async fn a_text_is_asked_for_popped_submitted_and_read() {
    let app = App::start().await;
    let params = json!({
        "max_length": 100, "max_context_length": 1024, "temperature": 0.7, "rep_pen": 1.07, "tfs": 0.9,
        "sampler_order": [6, 0, 1, 2, 3, 4, 5], "stop_sequence": ["You:"],
    });
    let id = ask(&app, params.clone()).await;
    let status = look(&app, &id).await;
    assert_eq!(
        (
            &status["waiting"],
            &status["processing"],
            &status["finished"],
            &status["done"]
        ),
        (&json!(1), &json!(0), &json!(0), &json!(false)),
    );
    assert_eq!(
        (&status["queue_position"], &status["is_possible"]),
        (&json!(1), &json!(false))
    );
    let popped = pop(&app, "w1").await;
    assert_eq!(
        (&popped["model"], &popped["ttl"]),
        (&json!("tiny"), &json!(150))
    );
    assert_eq!(popped["payload"]["prompt"], "Once upon");
    for (name, sent) in params.as_object().unwrap() {
        assert_eq!(&popped["payload"][name], sent, "{name}");
    }
    let status = look(&app, &id).await;
    assert_eq!(
        (&status["waiting"], &status["processing"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(
        (&status["queue_position"], &status["is_possible"]),
        (&json!(0), &json!(true))
    );
    let (code, submitted) = submit(&app, &popped["id"], " a time there was a test.").await;
    assert_eq!(code, StatusCode::OK, "{submitted}");
    let reward = submitted["reward"].as_f64().unwrap();
    // 20 tokens of an unknown model, by a trusted owner: 20 * 0.027 * (1.2 + 2.2 ^ log2(20 / 1024)).
    assert_eq!(reward, 0.654);
    let status = until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(status["is_possible"], true, "clients look at this first");
    assert_eq!(
        (&status["finished"], &status["faulted"]),
        (&json!(1), &json!(false))
    );
    let charged = (reward + 2.0).round();
    assert_eq!(status["kudos"].as_f64().unwrap(), charged);
    let text = &status["generations"][0];
    assert_eq!(text["text"], " a time there was a test.");
    assert_eq!(
        (&text["worker_name"], &text["model"], &text["state"]),
        (&json!("w1"), &json!("tiny"), &json!("ok")),
    );
}

#[tokio::test]
async fn a_place_in_the_queue_is_one_of_requests() {
    let app = App::start().await;
    let first = ask(&app, json!({"n": 5})).await;
    let second = ask(&app, json!({})).await;
    assert_eq!(look(&app, &first).await["queue_position"], 1);
    assert_eq!(look(&app, &second).await["queue_position"], 2);
}

#[tokio::test]
async fn one_pop_takes_as_many_jobs_of_a_request_as_it_says() {
    let app = App::start().await;
    let id = ask(&app, json!({"n": 3})).await;
    let mut wanted = worker("w1");
    wanted["amount"] = json!(2);
    let (_, popped) = post(&app, POP, wanted).await;
    let ids = popped["ids"].as_array().unwrap();
    assert_eq!((ids.len(), &ids[0]), (2, &popped["id"]));
    for (number, id) in ids.iter().enumerate() {
        let (code, _) = submit(&app, id, &format!("text {number}")).await;
        assert_eq!(code, StatusCode::OK);
    }
    let status = until(&app, &id, |status| status["finished"] == 2).await;
    assert_eq!(
        (&status["waiting"], &status["done"]),
        (&json!(1), &json!(false))
    );
}

#[tokio::test]
async fn who_asks_for_many_is_told_how_long_all_of_them_take() {
    let app = App::start().await;
    let one = ask(&app, json!({})).await;
    let wait = look(&app, &one).await["wait_time"].as_u64().unwrap();
    let many = ask(&app, json!({"n": 20})).await;
    let all = look(&app, &many).await["wait_time"].as_u64().unwrap();
    assert!(all >= 19 * wait && wait > 0, "{all} s, one takes {wait} s");
}

#[tokio::test]
async fn a_worker_on_a_socket_serves_a_request_that_is_polled_for() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let id = ask(&app, json!({"frmttriminc": true})).await;
    rig.answer(&["There was ", "a king. And th"]).await;
    let status = until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(status["generations"][0]["text"], "There was a king.");
}

#[tokio::test]
async fn who_was_given_a_job_before_is_told_from_who_has_it_now() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let first = pop(&app, "w1").await["id"].clone();
    let fault = json!({"id": first, "generation": "", "seed": 1, "state": "faulted"});
    assert_eq!(post(&app, SUBMIT, fault).await.0, StatusCode::OK);
    let second = pop(&app, "w2").await["id"].clone();
    assert_ne!(first, second);
    let (late, told) = submit(&app, &first, " by who had it before").await;
    assert_eq!(late, StatusCode::BAD_REQUEST, "{told}");
    let (code, told) = submit(&app, &second, " by who has it").await;
    assert_eq!(code, StatusCode::OK, "{told}");
    let status = until(&app, &id, |status| status["done"] == true).await;
    let text = &status["generations"][0];
    assert_eq!(
        (&text["worker_name"], &text["text"]),
        (&json!("w2"), &json!(" by who has it"))
    );
}

#[tokio::test]
async fn who_asks_for_more_than_any_worker_reaches_is_told() {
    let app = App::start().await;
    pop(&app, "w1").await;
    for (window, is_told) in [(4096, false), (8192, true)] {
        let params = json!({"max_context_length": window});
        let body = json!({"prompt": "p", "models": ["tiny"], "params": params});
        let (_, answer) = post(&app, ASYNC, body).await;
        assert_eq!(answer["message"].is_string(), is_told, "{window}: {answer}");
        let status = look(&app, answer["id"].as_str().unwrap()).await;
        assert_eq!(status["is_possible"], !is_told, "{window}");
    }
}

#[tokio::test]
async fn a_worker_on_a_socket_is_told_the_settings_and_the_client_which_it_does_without() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = json!({"prompt": "p", "models": ["tiny"], "params": {"tfs": 0.9}});
    let (_, answer) = post(&app, ASYNC, body).await;
    assert!(answer["message"].is_null(), "{answer}");
    let offer = rig.offer().await;
    let Asks::Text(text) = &offer.job.body else {
        panic!("a text was asked for");
    };
    let legacy = text.sampling.legacy.as_ref().unwrap();
    assert_eq!(legacy.tfs, Some(0.9));
    let body = json!({"prompt": "p", "models": ["tiny"], "params": {"rep_pen": 1.1, "rep_pen_slope": 0.7}});
    let (_, answer) = post(&app, ASYNC, body).await;
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("rep_pen_slope")
    );
}

#[tokio::test]
async fn what_is_brought_twice_or_late_or_by_another_is_refused_by_its_code() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, "w1").await;
    let other = app
        .account_with(Roles::WORKER_OWNER, Scopes::WORKER_CONNECT)
        .await;
    let check = |answer: (StatusCode, Value), status: u16, rc: &str, part: &str| {
        assert_eq!(answer.0.as_u16(), status, "{}", answer.1);
        assert_eq!(answer.1["rc"], rc);
        assert!(
            answer.1["message"].as_str().unwrap().contains(part),
            "{}",
            answer.1
        );
    };
    let body = json!({"id": popped["id"], "generation": "mine"});
    let stolen = call_as(&app, &other, Method::POST, SUBMIT, body).await;
    check(stolen, 403, "WrongCredentials", "wrong credentials");
    let unknown = json!(uuid::Uuid::new_v4());
    check(
        submit(&app, &unknown, "x").await,
        404,
        "InvalidJobID",
        "does not exist",
    );
    check(
        submit(&app, &json!("no uuid"), "x").await,
        404,
        "InvalidJobID",
        "does not exist",
    );
    assert_eq!(submit(&app, &popped["id"], "once").await.0, StatusCode::OK);
    check(
        submit(&app, &popped["id"], "twice").await,
        400,
        "DuplicateGen",
        "already submitted",
    );
    let status = until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(status["generations"].as_array().unwrap().len(), 1);
    assert_eq!(status["generations"][0]["text"], "once");
}

#[tokio::test]
async fn of_many_that_bring_the_same_at_once_one_is_paid() {
    let app = App::start().await;
    ask(&app, json!({})).await;
    let popped = pop(&app, "w1").await;
    let tries = (0..16).map(|_| submit(&app, &popped["id"], "text"));
    let answers = futures_util::future::join_all(tries).await;
    let paid = answers
        .iter()
        .filter(|(status, _)| *status == StatusCode::OK);
    assert_eq!(paid.count(), 1, "{answers:?}");
    assert!(answers.iter().all(|(status, body)| {
        *status == StatusCode::OK || body["rc"] == "DuplicateGen" || body["rc"] == "AbortedGen"
    }));
}

#[tokio::test]
async fn a_fault_puts_the_job_back_and_the_next_worker_gets_it() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, "w1").await;
    let fault = json!({"id": popped["id"], "generation": "", "state": "faulted"});
    let (code, answer) = post(&app, SUBMIT, fault).await;
    assert_eq!((code, &answer["reward"]), (StatusCode::OK, &json!(0.0)));
    let status = until(&app, &id, |status| status["waiting"] == 1).await;
    assert_eq!(status["restarted"], 1);
    let again = pop(&app, "w2").await;
    assert_ne!(again["id"], popped["id"], "an id for each attempt");
    assert_eq!(submit(&app, &again["id"], "fine").await.0, StatusCode::OK);
    until(&app, &id, |status| status["done"] == true).await;
    let (code, late) = submit(&app, &popped["id"], "late").await;
    assert_eq!(
        (code, &late["rc"]),
        (StatusCode::BAD_REQUEST, &json!("AbortedGen"))
    );
}

/// Three workers take what there is of a request and make nothing of it, until it is given up.
async fn fail_it(app: &App, id: &str) -> Value {
    for name in ["w1", "w2", "w3"].iter().cycle().take(7) {
        let popped = pop(app, name).await;
        if popped["id"].is_string() {
            let fault = json!({"id": popped["id"], "generation": "", "state": "faulted"});
            assert_eq!(post(app, SUBMIT, fault).await.0, StatusCode::OK);
        }
    }
    until(app, id, |status| status["faulted"] == true).await
}

#[tokio::test]
async fn a_text_that_failed_for_good_ends_its_request_and_leaves_what_is_finished() {
    let app = App::start().await;
    let id = ask(&app, json!({"n": 5})).await;
    let first = pop(&app, "w1").await;
    assert_eq!(
        submit(&app, &first["id"], "the first").await.0,
        StatusCode::OK
    );
    let out = pop(&app, "busy").await;
    // Three are left, and seven failures are too few for all of them.
    let status = fail_it(&app, &id).await;
    assert_eq!(
        (&status["done"], &status["waiting"], &status["finished"]),
        (&json!(true), &json!(0), &json!(1)),
        "{status}"
    );
    assert_eq!(status["generations"][0]["text"], "the first");
    assert!(pop(&app, "w4").await["id"].is_null());
    let (code, answer) = submit(&app, &out["id"], "all the same").await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert!(answer["reward"].as_f64().unwrap() > 0.0);
    let status = until(&app, &id, |status| status["finished"] == 2).await;
    assert_eq!(status["faulted"], true);
    assert!(!is_given_up(&app, &id));
}

/// Whether its client gets no further updates.
fn is_given_up(app: &App, id: &str) -> bool {
    let request = app.requests.find(RequestId(id.parse().unwrap()));
    request.unwrap().is_given_up()
}

#[tokio::test]
async fn what_failed_for_good_before_the_coordinator_began_anew_is_given_to_nobody() {
    let app = App::start().await;
    let id = ask(&app, json!({"n": 3})).await;
    fail_it(&app, &id).await;
    let app = app.anew().await;
    let status = look(&app, &id).await;
    assert_eq!(
        (&status["done"], &status["faulted"], &status["waiting"]),
        (&json!(true), &json!(true), &json!(0)),
        "{status}"
    );
    assert!(pop(&app, "w4").await["id"].is_null());
    assert!(!is_given_up(&app, &id));
    let path = format!("{STATUS}/{id}");
    call(&app, Method::DELETE, &path, Value::Null).await;
    assert!(is_given_up(&app, &id));
}

#[tokio::test]
async fn cancelling_returns_what_was_there_and_nothing_more_is_given_out() {
    let app = App::start().await;
    let id = ask(&app, json!({"n": 2})).await;
    let popped = pop(&app, "w1").await;
    submit(&app, &popped["id"], "the first").await;
    until(&app, &id, |status| status["finished"] == 1).await;
    let path = format!("{STATUS}/{id}");
    let (code, status) = call(&app, Method::DELETE, &path, Value::Null).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(status["generations"][0]["text"], "the first");
    assert_eq!(status["waiting"], 1);
    let status = until(&app, &id, |status| status["done"] == true).await;
    assert_eq!(
        (&status["waiting"], &status["finished"]),
        (&json!(0), &json!(1))
    );
    assert!(pop(&app, "w1").await["id"].is_null());
}

/// On one thread: the request's own task has done nothing yet.
#[tokio::test]
async fn what_is_cancelled_right_after_it_was_accepted_is_given_to_nobody() {
    let app = App::start().await;
    let payer = Payer::of(&Caller::anonymous(), None, false, wall_clock()).unwrap();
    let asked = json!({"prompt": "p", "models": ["tiny"]}).to_string();
    let asked = GenerationInputText::parse(asked.as_bytes()).unwrap();
    let order = Order::new(RequestId::random(), &payer, Asked::text(asked));
    let new = order.request(Standing::default(), None, &Names::default());
    let request = app.requests.accept(new).await.unwrap();
    app.requests.cancel(&request).await.unwrap();
    let id = request.id.to_string();
    until(&app, &id, |status| status["done"] == true).await;
    assert!(pop(&app, "w1").await["id"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_after_a_submit_was_thanked_for_finds_what_it_brought() {
    let app = App::start().await;
    for nth in 0..100 {
        let id = ask(&app, json!({})).await;
        let popped = pop(&app, "w1").await;
        let (code, _) = submit(&app, &popped["id"], "a text").await;
        assert_eq!(code, StatusCode::OK);
        let status = look(&app, &id).await;
        assert_eq!(
            (&status["done"], &status["generations"][0]["text"]),
            (&json!(true), &json!("a text")),
            "{nth}: {status}"
        );
    }
}

#[tokio::test]
async fn work_that_was_out_when_its_request_was_cancelled_is_still_paid() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, "w1").await;
    call(&app, Method::DELETE, &format!("{STATUS}/{id}"), Value::Null).await;
    let (code, answer) = submit(&app, &popped["id"], "all the same").await;
    assert_eq!(code, StatusCode::OK, "{answer}");
    assert!(answer["reward"].as_f64().unwrap() > 0.0);
    let status = until(&app, &id, |status| status["finished"] == 1).await;
    assert_eq!(status["generations"][0]["text"], "all the same");
}

#[tokio::test]
async fn what_is_hidden_costs_only_the_fee_though_its_request_was_cancelled() {
    let app = App::start().await;
    let brought = async |cancelled: bool| {
        let id = ask(&app, json!({})).await;
        let popped = pop(&app, "w1").await;
        if cancelled {
            call(&app, Method::DELETE, &format!("{STATUS}/{id}"), Value::Null).await;
        }
        let body = json!({"id": popped["id"], "generation": "text", "state": "censored"});
        let (status, paid) = post(&app, SUBMIT, body).await;
        assert_eq!(status, StatusCode::OK, "{paid}");
        let status = until(&app, &id, |status| status["finished"] == 1).await;
        assert_eq!(status["generations"][0]["state"], "censored", "{status}");
        (status["kudos"].clone(), paid["reward"].clone())
    };
    assert_eq!(brought(true).await, brought(false).await);
}

#[tokio::test]
async fn a_pop_with_nothing_says_why() {
    let app = App::start().await;
    let of = async |model: &str, params: Value| {
        let body = json!({"prompt": "p", "models": [model], "params": params});
        assert_eq!(post(&app, ASYNC, body).await.0, StatusCode::ACCEPTED);
    };
    // Long requests need kudos first.
    app.enrich(Kudos(100_000)).await;
    of("another", json!({})).await;
    of("tiny", json!({"max_length": 600})).await;
    of("tiny", json!({"max_context_length": 8192})).await;
    let popped = pop(&app, "w1").await;
    assert!(popped["id"].is_null() && popped["model"].is_null());
    assert_eq!(popped["ids"], json!([]));
    assert_eq!(
        popped["skipped"],
        json!({"models": 1, "max_length": 1, "max_context_length": 1})
    );
}

#[tokio::test]
async fn without_a_key_or_with_a_wrong_one_or_a_lesser_one_nothing_is_done() {
    let app = App::start().await;
    let none = app
        .send(request(Method::POST, ASYNC, &[], Body::from("{}")))
        .await;
    assert_eq!(none.status, StatusCode::UNAUTHORIZED);
    let none = none.json().await;
    assert_eq!(
        (&none["message"], &none["rc"]),
        (&json!("Invalid API Key"), &json!("InvalidAPIKey"))
    );
    assert!(none["errors"]["apikey"].is_string());
    let (status, wrong) = call_as(&app, "nobody's", Method::POST, ASYNC, json!({})).await;
    assert_eq!(
        (status.as_u16(), &wrong["rc"]),
        (401, &json!("InvalidAPIKey"))
    );
    assert!(wrong.get("errors").is_none());
    let reader = app.key_for(Scopes::ACCOUNT_READ).await;
    let (status, lesser) = call_as(&app, &reader, Method::POST, POP, worker("w")).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(lesser["rc"], "Forbidden");
    let message = lesser["message"].as_str().unwrap();
    assert!(
        message.contains("lacks the scope worker.connect"),
        "{message}"
    );
}

#[tokio::test]
async fn the_key_everybody_knows_asks_where_it_is_allowed_and_serves_nowhere() {
    let body = || json!({"prompt": "p"});
    let app = App::start().await;
    let (status, _) = call_as(&app, "0000000000", Method::POST, ASYNC, body()).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let open = App::with(DoorSettings {
        anonymous: true,
        ..DoorSettings::default()
    })
    .await;
    let (status, _) = call_as(&open, "0000000000", Method::POST, ASYNC, body()).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (status, _) = call_as(&open, "0000000000", Method::POST, POP, worker("w")).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    let chat = json!({"model": "tiny", "messages": []});
    let (status, _) = call_as(
        &open,
        "0000000000",
        Method::POST,
        "/v1/chat/completions",
        chat,
    )
    .await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused_with_the_place_and_no_code() {
    let app = App::start().await;
    let check = async |path: &str, body: Value, place: &str| {
        let (status, answer) = post(&app, path, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert!(answer["errors"][place].is_string(), "{answer}");
        assert!(answer.get("rc").is_none(), "{answer}");
    };
    check(ASYNC, json!({}), "prompt").await;
    check(
        ASYNC,
        json!({"prompt": "p", "params": {"top_p": "0.9"}}),
        "params.top_p",
    )
    .await;
    check(ASYNC, json!({"prompt": "p", "models": null}), "models").await;
    check(POP, json!({"models": ["tiny"]}), "name").await;
    check(SUBMIT, json!({"id": "x"}), "generation").await;
    let broken = app
        .send(request(
            Method::POST,
            ASYNC,
            &[("apikey", &app.key)],
            Body::from("{"),
        ))
        .await;
    assert_eq!(broken.status, StatusCode::BAD_REQUEST);
    let broken = broken.json().await;
    assert!(broken["message"].is_string() && broken.get("errors").is_none());
    let (status, answer) = post(&app, ASYNC, json!({"prompt": ""})).await;
    assert_eq!(
        (status.as_u16(), &answer["rc"]),
        (400, &json!("MissingPrompt"))
    );
}

#[tokio::test]
async fn a_text_that_is_hidden_says_why() {
    let app = App::start().await;
    let lawless = json!([{"type": "censorship", "value": "csam"}]);
    for (state, remarks, expected) in [
        ("ok", json!([]), "ok"),
        ("censored", json!([]), "censored"),
        ("csam", json!([]), "csam"),
        ("ok", lawless, "csam"),
    ] {
        let id = ask(&app, json!({})).await;
        let popped = pop(&app, "w1").await;
        let body = json!({
            "id": popped["id"], "generation": "text", "state": state, "gen_metadata": remarks,
        });
        let (status, paid) = post(&app, SUBMIT, body).await;
        assert_eq!(status, StatusCode::OK, "{paid}");
        let status = until(&app, &id, |status| status["done"] == json!(true)).await;
        let text = &status["generations"][0];
        assert_eq!(text["state"], expected, "{status}");
        let remarked = match expected {
            "csam" => json!([{"type": "censorship", "value": "csam"}]),
            _ => json!([]),
        };
        assert_eq!(text["gen_metadata"], remarked);
    }
}

#[tokio::test]
async fn what_a_worker_says_about_its_text_is_told_with_it_also_by_another_process() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, "w1").await;
    let remarks = json!([{"type": "censorship", "value": "csam", "ref": "the end"}]);
    let body = json!({
        "id": popped["id"], "generation": "text", "seed": -7, "gen_metadata": remarks,
    });
    let (status, paid) = post(&app, SUBMIT, body).await;
    assert_eq!(status, StatusCode::OK, "{paid}");
    let told = |status: &Value| {
        let text = &status["generations"][0];
        assert_eq!(text["seed"], -7);
        assert_eq!(text["gen_metadata"], remarks);
    };
    told(&until(&app, &id, |status| status["done"] == json!(true)).await);
    let app = app.anew().await;
    told(&look(&app, &id).await);
}

#[tokio::test]
async fn a_webhook_is_an_https_address() {
    let app = App::start().await;
    let asked = |address: &str| json!({"prompt": "p", "webhook": address});
    let (status, _) = post(&app, ASYNC, asked("https://example.org/hook")).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (status, _) = post(&app, ASYNC, asked("https://example.org:8443/hook")).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let (status, answer) = post(&app, ASYNC, asked("http://example.org/hook")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(answer["rc"], "BadRequest");
    for inside in [
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://localhost/a",
        "https://a.localhost./a",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://me:secret@example.org/",
        "https://example.org:25/",
        "https://example.org:6379/",
        "https://a b/",
        "https://",
    ] {
        let (status, answer) = post(&app, ASYNC, asked(inside)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{inside}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.starts_with("webhook: "), "{inside}: {message}");
    }
}

#[tokio::test]
async fn an_account_may_have_so_many_texts_waiting() {
    let settings = DoorSettings {
        polled_texts: 4,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    ask(&app, json!({"n": 3})).await;
    let body = json!({"prompt": "p", "params": {"n": 2}});
    let (status, answer) = post(&app, ASYNC, body).await;
    assert_eq!(
        (status.as_u16(), &answer["rc"]),
        (429, &json!("TooManyPrompts"))
    );
    let popped = pop(&app, "w1").await;
    submit(&app, &popped["id"], "done").await;
    ask(&app, json!({"n": 2})).await;
}

#[tokio::test]
async fn what_a_worker_has_taken_of_an_account_leaves_room_for_more() {
    let settings = DoorSettings {
        polled_texts: 2,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    ask(&app, json!({"n": 2})).await;
    assert!(pop(&app, "w1").await["id"].is_string());
    ask(&app, json!({})).await;
    let (status, answer) = post(&app, ASYNC, json!({"prompt": "p"})).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{answer}");
}

#[tokio::test]
async fn of_many_that_come_at_once_as_many_are_taken_as_there_is_room_for() {
    let settings = DoorSettings {
        polled_texts: 4,
        ..DoorSettings::default()
    };
    let app = App::with(settings).await;
    let tries = (0..20).map(|_| post(&app, ASYNC, json!({"prompt": "p"})));
    let answers = futures_util::future::join_all(tries).await;
    let (taken, refused): (Vec<_>, Vec<_>) = answers
        .into_iter()
        .partition(|(status, _)| *status == StatusCode::ACCEPTED);
    assert_eq!(taken.len(), 4);
    let full = |(_, answer): &(StatusCode, Value)| answer["rc"] == "TooManyPrompts";
    assert!(refused.iter().all(full), "{refused:?}");
}

#[tokio::test]
async fn an_unknown_request_is_not_found() {
    let app = App::start().await;
    for id in [
        uuid::Uuid::new_v4().to_string(),
        "guess".to_owned(),
        "' OR 1=1".replace(' ', "%20"),
    ] {
        for method in [Method::GET, Method::DELETE] {
            let (status, answer) = call(&app, method, &format!("{STATUS}/{id}"), Value::Null).await;
            assert_eq!(
                (status.as_u16(), &answer["rc"]),
                (404, &json!("RequestNotFound"))
            );
        }
    }
}

#[tokio::test]
async fn x_fields_reach_into_what_is_nested() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let masked = async |method: Method, path: &str, body: Value, fields: &str| -> Value {
        let headers = [("apikey", app.key.as_str()), ("x-fields", fields)];
        let body = match body {
            Value::Null => Body::empty(),
            body => body.to_string().into(),
        };
        let answer: Answer = app.send(request(method, path, &headers, body)).await;
        assert!(answer.status.is_success());
        answer.json().await
    };
    let asked = masked(Method::POST, ASYNC, json!({"prompt": "p"}), "kudos").await;
    assert_eq!(asked, json!({"kudos": 0.0}));
    let path = format!("{STATUS}/{id}");
    let status = masked(Method::GET, &path, Value::Null, "{done,generations{text}}").await;
    assert_eq!(status, json!({"done": false, "generations": []}));
    let popped = masked(Method::POST, POP, worker("w1"), "id,payload{prompt}").await;
    assert_eq!(popped["payload"], json!({"prompt": "Once upon"}));
    assert_eq!(popped.as_object().unwrap().len(), 2);
    let brought = json!({"id": popped["id"], "generation": "text"});
    assert_eq!(
        masked(Method::POST, SUBMIT, brought, "nothing").await,
        json!({})
    );
    let cancelled = masked(Method::DELETE, &path, Value::Null, "waiting").await;
    assert_eq!(cancelled, json!({"waiting": 0}));
    let beat = masked(
        Method::GET,
        "/api/v2/status/heartbeat",
        Value::Null,
        "message",
    )
    .await;
    assert_eq!(beat, json!({"message": "OK"}));
    let broken = [("x-fields", "{done")];
    let answer = app
        .send(request(Method::GET, &path, &broken, Body::empty()))
        .await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}
