//! OpenAI's Responses API: stored, gone on from, in the background, and after a restart.

use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::clock::wall_clock;
use muster::coordinator::responses::ResponseSettings;
use muster::coordinator::state::DoorSettings;
use muster::coordinator::storage::ResponseRow;
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{
    AccountId, Body as JobBody, Capabilities, FailureKind, FinishReason, RequestId, TextInput,
};
use muster_testing::eventually;
use serde_json::{Value, json};

use crate::support::app::{Answer, App, request};
use crate::support::puppet::{Puppet, done, failed, started, text};

const ROUTE: &str = "/v1/responses";

fn with(fields: Value) -> Value {
    let mut body = json!({"model": "tiny", "input": "hi"});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn call_as(app: &App, key: &str, method: Method, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str())];
    let body = match method {
        Method::POST => Body::from(body.to_string()),
        _ => Body::empty(),
    };
    app.send(request(method, path, &headers, body)).await
}

async fn post(app: &App, body: &Value) -> Answer {
    call_as(app, &app.key, Method::POST, ROUTE, body).await
}

async fn get(app: &App, path: &str) -> Answer {
    let path = format!("{ROUTE}/{path}");
    call_as(app, &app.key, Method::GET, &path, &Value::Null).await
}

async fn read(app: &App, path: &str) -> Value {
    let answer = get(app, path).await;
    assert_eq!(answer.status, StatusCode::OK, "{path}");
    answer.json().await
}

/// A response that the worker answered with this text.
async fn answered(app: &App, rig: &Puppet, body: &Value, word: &str) -> Value {
    let words = [word];
    let (answer, ()) = tokio::join!(post(app, body), rig.answer(&words));
    assert_eq!(answer.status, StatusCode::OK);
    answer.json().await
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

/// Roles and contents of a job's messages.
fn messages(body: &JobBody) -> Vec<String> {
    let JobBody::Text(text) = body else {
        panic!("a text job was wanted");
    };
    let TextInput::Chat(chat) = &text.input else {
        panic!("a chat was wanted");
    };
    let shown = |message: &Value| {
        format!(
            "{}: {}",
            message["role"].as_str().unwrap(),
            message["content"].as_str().unwrap()
        )
    };
    chat.messages.iter().map(shown).collect()
}

/// Waits until a background response has this status.
async fn until(app: &App, id: &str, status: &str) -> Value {
    eventually(status, async || {
        let response = read(app, id).await;
        match response["status"] == status {
            true => Ok(response),
            false => Err(response),
        }
    })
    .await
}

fn names(stream: &str) -> Vec<&str> {
    stream
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect()
}

#[tokio::test]
async fn a_stored_response_is_read_listed_and_deleted_by_its_account_alone() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let response = answered(&app, &rig, &with(json!({"metadata": {"a": "b"}})), "Hello").await;
    let id = id(&response).to_owned();
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
    assert_eq!(
        response["usage"]["input_tokens_details"]["cached_tokens"],
        2
    );
    assert_eq!(read(&app, &id).await, response);
    let items = read(&app, &format!("{id}/input_items")).await;
    assert_eq!(items["data"][0]["content"][0]["text"], "hi");
    assert_eq!(items["has_more"], false);

    let other = app.account_with(Roles::USER, Scopes::ALL).await;
    let path = format!("{ROUTE}/{id}");
    for (method, path) in [
        (Method::GET, path.clone()),
        (Method::GET, format!("{path}/input_items")),
        (Method::POST, format!("{path}/cancel")),
        (Method::DELETE, path.clone()),
    ] {
        let answer = call_as(&app, &other, method, &path, &Value::Null).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
    }
    let going_on = with(json!({"previous_response_id": id}));
    let answer = call_as(&app, &other, Method::POST, ROUTE, &going_on).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.json().await["error"]["param"],
        "previous_response_id"
    );

    let answer = call_as(&app, &app.key, Method::DELETE, &path, &Value::Null).await;
    assert_eq!(answer.json().await["deleted"], true);
    assert_eq!(get(&app, &id).await.status, StatusCode::NOT_FOUND);
    let answer = call_as(&app, &app.key, Method::DELETE, &path, &Value::Null).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_response_without_store_is_not_kept() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let response = answered(&app, &rig, &with(json!({"store": false})), "x").await;
    assert_eq!(get(&app, id(&response)).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_conversation_goes_on_from_a_stored_response_also_after_a_restart() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let first = answered(
        &app,
        &rig,
        &with(json!({"instructions": "Be brief."})),
        "one",
    )
    .await;
    let body = with(json!({"previous_response_id": id(&first), "input": "more"}));
    let second = answered(&app, &rig, &body, "two").await;
    drop(rig);
    let app = app.anew().await;
    let rig = Puppet::connect(&app.board).await;
    let reference = second["output"][0]["id"].clone();
    let input =
        json!([{"type": "item_reference", "id": reference}, {"role": "user", "content": "c"}]);
    for (body, expected) in [
        (
            with(json!({"previous_response_id": id(&second), "input": "last"})),
            vec![
                "user: hi",
                "assistant: one",
                "user: more",
                "assistant: two",
                "user: last",
            ],
        ),
        (
            with(json!({"input": input})),
            vec!["assistant: two", "user: c"],
        ),
    ] {
        let (answer, offer) = tokio::join!(post(&app, &body), async {
            let offer = rig.offer().await;
            rig.say(&offer, [started(), text("x"), done(FinishReason::Stop)])
                .await;
            offer
        });
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(messages(&offer.job.body), expected);
    }
}

#[tokio::test]
async fn a_stream_is_stored_when_it_ends_and_fails_with_its_response() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = with(json!({"stream": true}));
    let (answer, ()) = tokio::join!(post(&app, &body), rig.answer(&["a"]));
    let stream = answer.text().await;
    let (_, last) = stream.rsplit_once("data: ").unwrap();
    let last: Value = serde_json::from_str(last.trim()).unwrap();
    assert_eq!(read(&app, id(&last["response"])).await, last["response"]);

    let (answer, offer) = tokio::join!(post(&app, &body), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started(), text("a")]).await;
        offer
    });
    // With the stream on its way: a failure before its first event has a status of its own.
    let end = failed(FailureKind::InvalidRequest, "no such thing");
    rig.say(&offer, [end]).await;
    let stream = answer.text().await;
    let names = names(&stream);
    assert_eq!(names[names.len() - 2..], ["response.failed", "error"]);
}

#[tokio::test]
async fn a_background_response_is_polled_and_its_events_are_streamed_from_any_of_them_on() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let answer = post(&app, &with(json!({"background": true}))).await;
    let response = answer.json().await;
    assert_eq!(response["status"], "queued");
    let id = id(&response).to_owned();
    let offer = rig.offer().await;
    rig.say(&offer, [started(), text("a")]).await;
    until(&app, &id, "in_progress").await;
    let running = get(&app, &format!("{id}?stream=true&starting_after=1")).await;
    rig.say(&offer, [text("b"), done(FinishReason::Stop)]).await;
    let stream = running.text().await;
    assert_eq!(names(&stream)[0], "response.in_progress");
    assert_eq!(*names(&stream).last().unwrap(), "response.completed");
    let response = until(&app, &id, "completed").await;
    assert_eq!(response["output"][0]["content"][0]["text"], "ab");
    let ended = get(&app, &format!("{id}?stream=true")).await.text().await;
    assert!(ended.ends_with(&stream));
    assert_eq!(names(&ended)[..2], ["response.created", "response.queued"]);
    assert_eq!(read(&app, &id).await["background"], true);
}

#[tokio::test]
async fn a_background_stream_that_fails_before_its_first_token_ends_with_the_failed_response() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = with(json!({"background": true, "stream": true}));
    let (answer, ()) = tokio::join!(post(&app, &body), async {
        let offer = rig.offer().await;
        let end = failed(FailureKind::InvalidRequest, "no such thing");
        rig.say(&offer, [end]).await;
    });
    let stream = answer.text().await;
    assert_eq!(*names(&stream).last().unwrap(), "response.failed");
    let (_, last) = stream.rsplit_once("data: ").unwrap();
    let last: Value = serde_json::from_str(last.trim()).unwrap();
    assert_eq!(last["sequence_number"], names(&stream).len() - 1);
    assert_eq!(read(&app, id(&last["response"])).await["status"], "failed");
}

#[tokio::test]
async fn a_background_response_whose_beginning_was_deleted_fails_after_a_restart() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let first = answered(&app, &rig, &with(json!({})), "one").await;
    let body = with(json!({"background": true, "previous_response_id": id(&first)}));
    let second = post(&app, &body).await.json().await;
    rig.offer().await;
    let path = format!("{ROUTE}/{}", id(&first));
    call_as(&app, &app.key, Method::DELETE, &path, &Value::Null).await;
    drop(rig);
    let app = app.anew().await;
    let response = until(&app, id(&second), "failed").await;
    assert_eq!(response["error"]["code"], "invalid_request");
}

#[tokio::test]
async fn a_background_response_is_cancelled_on_its_worker() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let response = post(&app, &with(json!({"background": true})))
        .await
        .json()
        .await;
    let offer = rig.offer().await;
    rig.say(&offer, [started(), text("a")]).await;
    let path = format!("{ROUTE}/{}/cancel", id(&response));
    let cancel = call_as(&app, &app.key, Method::POST, &path, &Value::Null);
    let (answer, ()) = tokio::join!(cancel, rig.cancelled(&offer));
    assert_eq!(answer.json().await["status"], "cancelled");
    assert_eq!(read(&app, id(&response)).await["status"], "cancelled");
    let again = call_as(&app, &app.key, Method::POST, &path, &Value::Null).await;
    assert_eq!(again.json().await["status"], "cancelled");

    let response = answered(&app, &rig, &with(json!({})), "x").await;
    let path = format!("{ROUTE}/{}/cancel", id(&response));
    let answer = call_as(&app, &app.key, Method::POST, &path, &Value::Null).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_background_response_begins_again_after_a_restart() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let response = post(&app, &with(json!({"background": true})))
        .await
        .json()
        .await;
    let offer = rig.offer().await;
    rig.say(&offer, [started(), text("lost")]).await;
    drop(rig);
    let app = app.anew().await;
    // The response waits for the workers to reconnect.
    until(&app, id(&response), "queued").await;
    let rig = Puppet::connect(&app.board).await;
    rig.answer(&["Hello"]).await;
    let response = until(&app, id(&response), "completed").await;
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
}

#[tokio::test]
async fn a_background_request_that_nobody_can_serve_is_refused_at_once() {
    let app = App::start().await;
    let _rig = Puppet::connect(&app.board).await;
    let answer = post(&app, &with(json!({"background": true, "model": "other"}))).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    let answer = post(&app, &with(json!({"background": true, "store": false}))).await;
    assert_eq!(answer.json().await["error"]["param"], "background");
}

#[tokio::test]
async fn truncation_drops_the_oldest_items_until_the_input_fits() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let long = "word ".repeat(5000);
    let mut input = vec![json!({"role": "user", "content": long})];
    input.extend((0..4).map(|index| json!({"role": "user", "content": format!("{index}")})));
    let body = with(json!({"input": input}));
    let answer = post(&app, &body).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        answer.json().await["error"]["code"],
        "context_length_exceeded"
    );
    let body = with(json!({"input": input, "truncation": "auto"}));
    let (answer, offer) = tokio::join!(post(&app, &body), async {
        let offer = rig.offer().await;
        rig.say(&offer, [started(), text("x"), done(FinishReason::Stop)])
            .await;
        offer
    });
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(
        messages(&offer.job.body),
        ["user: 0", "user: 1", "user: 2", "user: 3"]
    );
}

/// A background response that the worker was given and has not answered.
async fn unanswered(app: &App, rig: &Puppet) -> String {
    let response = post(app, &with(json!({"background": true}))).await;
    let response = response.json().await;
    rig.offer().await;
    id(&response).to_owned()
}

/// Waits until the end of a background response is on disk.
async fn ended_row(app: &App, id: &str, account: AccountId) -> ResponseRow {
    eventually("the end on disk", async || {
        let row = app.store.response(id, account).await.unwrap().unwrap();
        row.body.is_none().then_some(row)
    })
    .await
}

/// As an earlier process could have left it.
async fn left_open(app: &App, account: AccountId, body: &str) -> String {
    let id = format!("resp_{}", RequestId::random().0.simple());
    let response = json!({
        "id": id, "object": "response", "status": "queued", "background": true, "created_at": 1, "model": "tiny",
        "error": null, "incomplete_details": null, "output": [], "usage": null,
    });
    let row = ResponseRow {
        id: id.clone(),
        account,
        previous: None,
        response: response.to_string(),
        input: "[]".to_owned(),
        body: Some(body.to_owned()),
        model: Some("tiny".to_owned()),
        created_at: wall_clock(),
        expires_at: wall_clock().after(Duration::from_secs(3600)),
    };
    app.store.save_response(row).await.unwrap();
    id
}

#[tokio::test]
async fn a_response_that_has_ended_the_coordinator_twice_does_not_begin_a_third_time() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let id = unanswered(&app, &rig).await;
    drop(rig);
    let app = app.anew().await;
    let rig = Puppet::connect(&app.board).await;
    rig.offer().await;
    drop(rig);
    let app = app.anew().await;
    let _rig = Puppet::connect(&app.board).await;
    let response = until(&app, &id, "failed").await;
    assert_eq!(response["error"]["code"], "bad_job");
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.contains("stopped 2 times"), "{message}");
    let app = app.anew().await;
    assert_eq!(read(&app, &id).await, response);
}

#[tokio::test]
async fn responses_wait_on_disk_for_a_worker_of_their_model_and_then_all_begin() {
    let app = App::start().await;
    let body = with(json!({"background": true, "input": "word ".repeat(500)}));
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(left_open(&app, app.account, &body.to_string()).await);
    }
    let app = app.anew().await;
    let _other = Puppet::serving(&app.board, "other", Capabilities::default()).await;
    let path = format!("{ROUTE}/{}/cancel", ids[4]);
    let answer = call_as(&app, &app.key, Method::POST, &path, &Value::Null).await;
    assert_eq!(answer.json().await["status"], "cancelled");
    for id in &ids[..4] {
        assert_eq!(read(&app, id).await["status"], "queued");
    }
    let rig = Puppet::connect(&app.board).await;
    for _ in 0..4 {
        rig.answer(&["Hello"]).await;
    }
    for id in &ids[..4] {
        let response = until(&app, id, "completed").await;
        assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
    }
    assert_eq!(read(&app, &ids[4]).await["status"], "cancelled");
}

#[tokio::test]
async fn a_response_whose_job_was_settled_is_not_run_and_charged_again() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let body = with(json!({"background": true}));
    let (answer, ()) = tokio::join!(post(&app, &body), rig.answer(&["Hello"]));
    let id = id(&answer.json().await).to_owned();
    until(&app, &id, "completed").await;
    drop(rig);
    // A kill between the settlement and the end of the response leaves it open.
    let row = ResponseRow {
        body: Some(body.to_string()),
        ..ended_row(&app, &id, app.account).await
    };
    app.store.save_response(row).await.unwrap();
    let app = app.anew().await;
    let rig = Puppet::connect(&app.board).await;
    let response = until(&app, &id, "failed").await;
    let message = response["error"]["message"].as_str().unwrap();
    assert!(message.contains("not charged again"), "{message}");
    // Only the next request reaches the worker.
    answered(&app, &rig, &with(json!({})), "x").await;
}

#[tokio::test]
async fn responses_that_cannot_begin_again_fail_at_the_start() {
    let app = App::start().await;
    let unreadable = left_open(&app, app.account, "{").await;
    let nobody = AccountId(987_654);
    let ownerless = left_open(&app, nobody, "{}").await;
    let app = app.anew().await;
    let _rig = Puppet::connect(&app.board).await;
    let response = until(&app, &unreadable, "failed").await;
    assert_eq!(response["error"]["code"], "internal_error");
    let row = ended_row(&app, &ownerless, nobody).await;
    assert!(row.response.contains("account_deleted"), "{}", row.response);
}

#[tokio::test]
async fn an_account_over_its_quota_is_told_how_to_go_on() {
    let app = App::with(DoorSettings {
        responses: ResponseSettings {
            most: 1,
            ..ResponseSettings::default()
        },
        ..DoorSettings::default()
    })
    .await;
    let rig = Puppet::connect(&app.board).await;
    let first = answered(&app, &rig, &with(json!({})), "a").await;
    let answer = post(&app, &with(json!({}))).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let error = answer.json().await["error"].clone();
    assert_eq!(error["code"], "storage_quota_exceeded");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("stored_responses") && message.contains("\"store\": false"));
    answered(&app, &rig, &with(json!({"store": false})), "b").await;
    let path = format!("{ROUTE}/{}", id(&first));
    call_as(&app, &app.key, Method::DELETE, &path, &Value::Null).await;
    answered(&app, &rig, &with(json!({})), "c").await;
}

/// The conversation is as long as the memory for requests that are read: one after the other finds room.
#[tokio::test]
async fn parallel_requests_on_a_long_conversation_find_memory_one_after_the_other() {
    let app = App::with(DoorSettings {
        largest_request: 64 << 10,
        ..DoorSettings::default()
    })
    .await;
    let rig = Puppet::with_context(&app.board, "tiny", Capabilities::TOOLS, 1 << 20).await;
    let mut previous = Value::Null;
    for _ in 0..3 {
        let long = "word ".repeat(10 << 10);
        let body = with(json!({"input": long, "previous_response_id": previous}));
        let response = answered(&app, &rig, &body, "Yes").await;
        previous = response["id"].clone();
    }
    let going_on = json!({"previous_response_id": previous, "store": false, "truncation": "auto"});
    let going_on = with(going_on);
    let all = futures_util::future::join_all((0..8).map(|_| post(&app, &going_on)));
    let work = async {
        for _ in 0..8 {
            rig.answer(&["Yes"]).await;
        }
    };
    let (answers, ()) = tokio::join!(all, work);
    for answer in answers {
        assert_eq!(answer.status, StatusCode::OK);
    }
}
