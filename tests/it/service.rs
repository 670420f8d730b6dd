//! The service's status, jobs cancelled by id, and errors of refused requests.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::accounts::KeyOrder;
use muster::coordinator::dispatch::Limits;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{Capabilities, FailureKind};
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::support::app::{Answer, App, request};
use super::support::puppet::{Puppet, failed, started, text};
use super::support::rig::ours;

const NO_LIMITS: Limits = Limits {
    queue: 1000,
    in_flight: None,
    direct_texts: None,
    media: None,
};

fn body(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn read(app: &App, path: &str) -> Value {
    let answer = app.get(path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}");
    answer.json().await
}

async fn call_with(app: &App, key: &str, method: Method, path: &str) -> Answer {
    let headers = [("apikey", key)];
    app.send(request(method, path, &headers, Body::empty()))
        .await
}

async fn cancel(app: &App, key: &str, job: &str) -> Answer {
    let path = format!("/v1/jobs/{job}/cancel");
    call_with(app, key, Method::POST, &path).await
}

/// One job that was delivered.
async fn answered(app: &App, rig: &Puppet) -> String {
    let request = body(json!({}));
    let (answer, ()) = tokio::join!(app.chat(&request), rig.answer(&["Hel", "lo"]));
    assert_eq!(answer.status, StatusCode::OK);
    answer.header("x-job-id").unwrap().to_owned()
}

async fn until_online(app: &App, workers: u64) {
    eventually("the workers to be online", async || {
        let status = read(app, "/v1/status").await;
        (status["workers"]["online"] == workers)
            .then_some(())
            .ok_or(status)
    })
    .await;
}

fn wait_of(answer: &Answer) -> u64 {
    let wait = answer.header("retry-after").unwrap();
    wait.parse().unwrap()
}

#[tokio::test]
async fn delivered_jobs_are_counted_and_listed_without_their_clients() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let empty = read(&app, "/v1/stats/totals").await;
    assert_eq!(empty, json!({"day": {}, "month": {}, "total": {}}));
    assert_eq!(read(&app, "/v1/jobs/recent").await, json!({"jobs": []}));
    // The lists are kept for a moment.
    sleep(Duration::from_millis(2100)).await;
    let job = answered(&app, &rig).await;
    let totals = read(&app, "/v1/stats/totals").await;
    for period in ["day", "month", "total"] {
        let text = &totals[period]["text"];
        assert_eq!(text["jobs"], 1, "{totals}");
        // As the worker of a trusted account says.
        assert_eq!(text["units"], 3, "{totals}");
        assert!(text["den"].as_f64().unwrap() > 0.0, "{totals}");
    }
    for period in ["minute", "hour", "day", "month", "total"] {
        let path = format!("/v1/stats/models?period={period}");
        let models = read(&app, &path).await;
        assert_eq!(models["period"], period);
        assert_eq!(models["models"][0]["name"], "tiny");
        assert_eq!(models["models"][0]["samples"], 1);
        assert!(models["models"][0]["avg_latency_s"].is_number());
    }
    let usual = read(&app, "/v1/stats/models?period=year").await;
    assert_eq!(usual["period"], "month");
    let recent = read(&app, "/v1/jobs/recent?limit=1").await;
    let shown = recent["jobs"][0].as_object().unwrap();
    assert_eq!(shown["job_id"], job);
    assert_eq!(shown["model"], "tiny");
    assert_eq!(shown["output_units"], 3);
    for secret in ["account", "prompt", "result", "request"] {
        assert!(!shown.contains_key(secret), "{secret}");
    }
    for wrong in ["0", "101", "some"] {
        let answer = app.get(&format!("/v1/jobs/recent?limit={wrong}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{wrong}");
        assert_eq!(answer.json().await["error"]["param"], "limit");
    }
    let models = read(&app, "/v1/status/models").await;
    assert_eq!(models[0]["name"], "tiny");
    assert_eq!(models[0]["count"], 1);
    assert_eq!(models[0]["type"], "text");
    assert_eq!(models[0]["max_context_length"], 4096);
    assert_eq!(models[0]["samples"], 1);
}

#[tokio::test]
async fn the_network_names_models_with_too_few_workers() {
    let app = App::start().await;
    let mut rigs = Vec::new();
    for model in ["tiny", "tiny", "tiny", "big"] {
        rigs.push(Puppet::serving(&app.board, model, Capabilities::default()).await);
    }
    until_online(&app, 4).await;
    let network = read(&app, "/v1/status/network").await;
    assert_eq!(network["schema"], "muster.network.status.v1");
    assert_eq!(network["status"], "operational");
    assert_eq!(network["capacity"]["workers_online"], 4);
    assert_eq!(network["capacity"]["models_below_target"], json!(["big"]));
    assert_eq!(network["incidents"], json!([]));
    let status = read(&app, "/v1/status").await;
    assert_eq!(
        status["gpus"],
        json!({"online": 0, "with_failed_kernels": 0})
    );
    for link in ["models", "network", "health"] {
        read(&app, status["links"][link].as_str().unwrap()).await;
    }
    let routing = read(&app, "/v1/status/routing").await;
    assert_eq!(routing["scores"].as_object().unwrap().len(), 2);
    let workers = routing["worker_scores"].as_object().unwrap();
    assert_eq!(workers.len(), 4);
    assert!(workers.keys().all(|name| name.contains('|')));
}

#[tokio::test]
async fn a_model_tells_which_parameters_it_takes() {
    let app = App::start().await;
    let _rig = Puppet::serving(&app.board, "Org/tiny", Capabilities::default()).await;
    until_online(&app, 1).await;
    let params = read(&app, "/v1/models/Org/tiny/params").await;
    assert_eq!(params["model"], "Org/tiny");
    assert_eq!(params["job_type"], "text");
    assert_eq!(params["passthrough"], false);
    assert_eq!(params["params"]["temperature"]["maximum"], 2.0);
    assert_eq!(params["params"]["max_tokens"]["maximum"], 4096);
    let unknown = app.get("/v1/models/other/params").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert_eq!(
        read(&app, "/v1/progress/abc").await["progress"],
        Value::Null
    );
}

#[tokio::test]
async fn public_styles_are_listed_by_their_type() {
    let app = App::start().await;
    let style = json!({
        "name": "wide", "info": "Wide pictures.", "prompt": "{p}, wide{np}", "models": ["sdxl"],
        "params": {"width": 1024, "height": 576, "steps": 20},
    });
    let headers = [("apikey", app.key.as_str())];
    let create = |style: Value| {
        let body = Body::from(style.to_string());
        request(Method::POST, "/api/v2/styles/image", &headers, body)
    };
    let made = app.send(create(style.clone())).await;
    let status = made.status;
    assert_eq!(status, StatusCode::OK, "{}", made.text().await);
    let mut hidden = style;
    hidden["name"] = "hidden".into();
    hidden["public"] = false.into();
    let made = app.send(create(hidden)).await;
    let status = made.status;
    assert_eq!(status, StatusCode::OK, "{}", made.text().await);
    let listed = read(&app, "/v1/styles?job_type=image").await;
    let styles = listed["styles"].as_array().unwrap();
    assert_eq!(styles.len(), 1, "{listed}");
    assert!(
        styles[0]["name"]
            .as_str()
            .unwrap()
            .ends_with("::style::wide")
    );
    assert_eq!(styles[0]["description"], "Wide pictures.");
    assert_eq!(styles[0]["model"], "sdxl");
    assert_eq!(styles[0]["aspect"], "16:9");
    let locked = styles[0]["locked"].as_array().unwrap();
    assert!(locked.contains(&"steps".into()), "{locked:?}");
    assert_eq!(
        read(&app, "/v1/styles").await["styles"][0]["job_type"],
        "image"
    );
    for empty in ["text", "video"] {
        let listed = read(&app, &format!("/v1/styles?job_type={empty}")).await;
        assert_eq!(listed["styles"], json!([]), "{empty}");
    }
    let wrong = app.get("/v1/styles?job_type=song").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_worker_key_shows_its_worker_and_no_other() {
    let app = App::start().await;
    let mut rig = app.dial().await;
    let mut registration = ours("mine", 1);
    registration["apikey"] = app.key.clone().into();
    rig.send(registration).await;
    assert_eq!(rig.next().await["type"], "ready");
    let path = "/v1/workers/self?name=mine";
    let answer = call_with(&app, &app.key, Method::GET, path).await;
    assert_eq!(answer.status, StatusCode::OK);
    let own = answer.json().await;
    assert_eq!(own["schema"], "muster.worker.self.v1");
    assert_eq!(own["worker"]["name"], "mine");
    assert_eq!(own["worker"]["online"], true);
    assert_eq!(own["worker"]["models"], json!(["tiny"]));
    assert_eq!(own["worker"]["job_types"], json!(["text"]));
    let order = KeyOrder {
        scopes: Scopes::WORKER_CONNECT,
        worker_name: Some("mine".to_owned()),
        ..KeyOrder::default()
    };
    let account = app.accounts.list_keys().await.unwrap()[0].account;
    let bound = app.accounts.create_key(account, order).await.unwrap();
    let key = bound.text.expose();
    let answer = call_with(&app, key, Method::GET, "/v1/workers/self").await;
    assert_eq!(answer.json().await["worker"]["name"], "mine");
    let other = app.account_with(Roles::USER, Scopes::WORKER_CONNECT).await;
    let answer = call_with(&app, &other, Method::GET, path).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_running_job_is_cancelled_by_its_id_and_by_its_owner_alone() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let request = body(json!({"stream": true}));
    let (answer, offer) = tokio::join!(app.chat(&request), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started(), text("Hel")]).await;
        offer
    });
    let job = answer.header("x-job-id").unwrap().to_owned();
    let stranger = app
        .account_with(Roles::USER, Scopes::INFERENCE_SUBMIT)
        .await;
    for unknown in [&job, "nothing", "00000000-0000-4000-8000-000000000000"] {
        let refused = cancel(&app, &stranger, unknown).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{unknown}");
    }
    for _ in 0..2 {
        let cancelled = cancel(&app, &app.key, &job).await;
        assert_eq!(cancelled.status, StatusCode::OK);
        let expected = json!({"id": job, "state": "cancelled"});
        assert_eq!(cancelled.json().await, expected);
    }
    rig.cancelled(&offer).await;
    let said = answer.text().await;
    assert!(said.contains("the job was cancelled"), "{said}");
    let again = cancel(&app, &app.key, &job).await;
    assert_eq!(again.json().await["state"], "cancelled");
    let delivered = answered(&app, &rig).await;
    let late = cancel(&app, &app.key, &delivered).await;
    assert_eq!(late.json().await["state"], "delivered");
}

#[tokio::test]
async fn a_waiting_job_is_cancelled_at_once() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    // The worker takes 64 jobs, so these all run; the next one waits.
    let running = body(json!({"n": 16}));
    let running = (0..4).map(|_| app.chat(&running));
    let running = futures_util::future::join_all(running);
    let cancelled = async {
        eventually("64 running jobs", async || {
            read(&app, "/v1/status").await["running"] == 64
        })
        .await;
        let next = body(json!({"stream": true}));
        // The head of a stream is sent though nothing of it has come.
        let answer = app.chat(&next).await;
        let job = answer.header("x-job-id").unwrap().to_owned();
        let cancelled = cancel(&app, &app.key, &job).await;
        assert_eq!(cancelled.json().await["state"], "cancelled");
        assert!(answer.text().await.contains("the job was cancelled"));
    };
    tokio::select! {
        _ = running => panic!("the worker says nothing"),
        () = cancelled => {}
    }
}

#[tokio::test]
async fn errors_of_accepted_jobs_have_a_job_id() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    for stream in [false, true] {
        let request = body(json!({"stream": stream}));
        let (answer, ()) = tokio::join!(app.chat(&request), async {
            let offer = rig.offer().await;
            let failure = failed(FailureKind::InvalidRequest, "this cannot be said");
            rig.say(&offer, [failure]).await;
        });
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.header("x-job-id").is_some(), "stream: {stream}");
    }
}

#[tokio::test]
async fn a_refused_request_is_told_when_there_is_room() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    app.board
        .change_limits(Limits {
            direct_texts: Some(1),
            ..NO_LIMITS
        })
        .await;
    let request = body(json!({"stream": true}));
    let (first, offer) = tokio::join!(app.chat(&request), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started(), text("Hel")]).await;
        offer
    });
    assert_eq!(first.status, StatusCode::OK);
    let refused = app.chat(&request).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    // A single job of ten seconds, as far as known.
    assert_eq!(wait_of(&refused), 5);
    let error = refused.json().await;
    assert_eq!(error["error"]["code"], "in_flight_limit");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("in about 5 s"), "{message}");
    let many = app.chat(&body(json!({"n": 2}))).await;
    assert_eq!(many.status, StatusCode::BAD_REQUEST);
    app.board
        .change_limits(Limits {
            queue: 0,
            ..NO_LIMITS
        })
        .await;
    let full = app.chat(&request).await;
    assert_eq!(full.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(wait_of(&full), 5);
    assert_eq!(full.json().await["error"]["code"], "queue_full");
    drop(first);
    rig.cancelled(&offer).await;
}

#[tokio::test]
async fn a_request_that_no_worker_can_serve_names_models_that_can() {
    let app = App::start().await;
    let _tiny = Puppet::serving(&app.board, "tiny", Capabilities::default()).await;
    let _able = Puppet::serving(&app.board, "able", Capabilities::LOGPROBS).await;
    until_online(&app, 2).await;
    let answer = app.chat(&body(json!({"logprobs": true}))).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let error = answer.json().await;
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("models that support it online: able"),
        "{message}"
    );
    let long = json!([{"role": "user", "content": "word ".repeat(20_000)}]);
    let answer = app.chat(&body(json!({"messages": long}))).await;
    let error = answer.json().await;
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("4096 tokens"), "{message}");
}

#[tokio::test]
async fn a_chat_of_too_many_messages_is_413() {
    let app = App::with(DoorSettings {
        chat_messages: 2,
        ..DoorSettings::default()
    })
    .await;
    let message = json!({"role": "user", "content": "hi"});
    let messages = vec![message; 3];
    let answer = app.chat(&body(json!({"messages": messages}))).await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    let error = answer.json().await;
    assert_eq!(error["error"]["param"], "messages");
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("at most 2"), "{message}");
}
