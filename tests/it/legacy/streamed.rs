//! The status of a text request, listened to.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::protocol::job::FinishReason;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::support::app::{App, PATIENCE, request};
use super::super::support::puppet::{Puppet, done, started, text};
use super::{STATUS, ask, look, pop, submit, until};

const LISTENS: (&str, &str) = ("accept", "text/event-stream");

async fn listen(app: &App, id: &str) -> super::super::support::app::Answer {
    let path = format!("{STATUS}/{id}");
    let answer = app
        .send(request(Method::GET, &path, &[LISTENS], Body::empty()))
        .await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    answer
}

/// Names and data.
fn events(text: &str) -> Vec<(String, Value)> {
    let read = |event: &str| {
        let (name, data) = event.split_once('\n').unwrap();
        let name = name.strip_prefix("event: ").unwrap().to_owned();
        let data = data.strip_prefix("data: ").unwrap();
        (name, serde_json::from_str(data).unwrap())
    };
    text.split_terminator("\n\n").map(read).collect()
}

#[tokio::test]
async fn a_client_that_listens_hears_tokens_as_they_come_and_the_status_at_the_end() {
    let app = App::start().await;
    let puppet = Puppet::connect(&app.board).await;
    let id = ask(&app, json!({"max_length": 50})).await;
    let answer = listen(&app, &id).await;
    let offer = puppet.offer().await;
    puppet.say(&offer, [started(), text("Once ")]).await;
    puppet.say(&offer, [text("more.")]).await;
    puppet.say(&offer, [done(FinishReason::Stop)]).await;
    let heard = events(&answer.text().await);
    assert_eq!(heard[0].0, "status");
    assert_eq!(heard[0].1["done"], false);
    let tokens = heard.iter().filter(|(name, _)| name == "token");
    let told: String = tokens
        .map(|(_, data)| data["text"].as_str().unwrap())
        .collect();
    assert_eq!(told, "Once more.");
    let (name, last) = heard.last().unwrap();
    assert_eq!(
        (&**name, &last["done"], &last["generations"][0]["text"]),
        ("status", &json!(true), &json!("Once more."))
    );
    assert_eq!(last["generations"], look(&app, &id).await["generations"]);
}

#[tokio::test]
async fn a_text_of_a_worker_that_polls_comes_when_it_is_brought() {
    let app = App::start().await;
    let id = ask(&app, json!({"n": 2})).await;
    let answer = listen(&app, &id).await;
    for text in ["one", "two"] {
        let popped = pop(&app, "w1").await;
        submit(&app, &popped["id"], text).await;
    }
    until(&app, &id, |status| status["done"] == json!(true)).await;
    let heard = events(&answer.text().await);
    let last = &heard.last().unwrap().1;
    assert_eq!(last["finished"], 2);
    let mut texts: Vec<_> = heard
        .iter()
        .filter(|(name, _)| name == "token")
        .map(|(_, data)| (data["index"].clone(), data["text"].clone()))
        .collect();
    texts.sort_by_key(|(index, _)| index.as_u64());
    assert_eq!(texts, [(json!(0), json!("one")), (json!(1), json!("two"))]);
}

#[tokio::test]
async fn whoever_listens_to_what_has_ended_hears_it_at_once() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let popped = pop(&app, "w1").await;
    submit(&app, &popped["id"], "all").await;
    until(&app, &id, |status| status["done"] == json!(true)).await;
    let heard = events(&listen(&app, &id).await.text().await);
    assert_eq!(heard.last().unwrap().1["generations"][0]["text"], "all");
    let path = format!("{STATUS}/nothing");
    let unknown = app
        .send(request(Method::GET, &path, &[LISTENS], Body::empty()))
        .await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn streams_that_nobody_reads_take_their_room() {
    let app = App::with_little_room().await;
    let id = ask(&app, json!({"n": 3})).await;
    for _ in 0..3 {
        let popped = pop(&app, "w1").await;
        submit(&app, &popped["id"], &"x".repeat(14_000)).await;
    }
    until(&app, &id, |status| status["done"] == json!(true)).await;
    let unread = listen(&app, &id).await;
    let path = format!("{STATUS}/{id}");
    for headers in [&[][..], &[LISTENS][..]] {
        let refused = request(Method::GET, &path, headers, Body::empty());
        let refused = app.send(refused).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    }
    drop(unread);
    let heard = events(&listen(&app, &id).await.text().await);
    let texts = heard.last().unwrap().1["generations"].clone();
    assert_eq!(texts.as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_mask_does_not_hold_a_stream_back() {
    let app = App::start().await;
    let id = ask(&app, json!({})).await;
    let headers = [LISTENS, ("x-fields", "done")];
    let path = format!("{STATUS}/{id}");
    let listening = app.send(request(Method::GET, &path, &headers, Body::empty()));
    // The text is still empty.
    let answer = timeout(PATIENCE, listening).await.unwrap();
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
}
