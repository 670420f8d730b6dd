//! Texts whose leading coordinator is lost before it answers: the node of the client asks the next one.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use muster::coordinator::http::cluster::Node;
use muster::coordinator::http::serve::{Connections, serve};
use muster::coordinator::leadership::{Epoch, Leadership};
use muster::coordinator::storage::Leader;
use muster_testing::eventually;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tower::ServiceExt;

use super::support::app::{App, request};
use super::support::puppet::Puppet;

/// The leader with this epoch, which answers by the router.
async fn leader(app: &App, epoch: i64, router: Router) -> Leader {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let node = Node::new(&address, &[3; 32], "settings", &app.tasks);
    let connections = Connections::default();
    serve(listener, node.router(), None, connections, &app.tasks);
    node.lead(&Leadership::undisputed(Epoch(epoch)), router);
    Leader {
        epoch: Epoch(epoch),
        address: Some(address),
        lease_age: Duration::ZERO,
    }
}

/// Runs requests to their end if it `runs` them, and answers none.
fn silent(app: &App, runs: bool) -> (Router, Arc<AtomicBool>) {
    let (router, has_it) = (app.router.clone(), Arc::new(AtomicBool::new(false)));
    let notes = has_it.clone();
    let silent = Router::new().fallback(move |request: Request| {
        let (router, notes) = (router.clone(), notes.clone());
        async move {
            if runs {
                router.oneshot(request).await.unwrap();
            }
            notes.store(true, Ordering::Relaxed);
            pending::<Response>().await
        }
    });
    (silent, has_it)
}

fn chat(app: &App, key: Option<&str>) -> Request {
    let body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "hi"}],
    });
    let body = body.to_string();
    let (bearer, length) = (format!("Bearer {}", app.key), body.len().to_string());
    let mut headers = vec![
        ("authorization", bearer.as_str()),
        ("content-length", &length),
    ];
    headers.extend(key.map(|key| ("idempotency-key", key)));
    let path = "/v1/chat/completions";
    request(Method::POST, path, &headers, Body::from(body))
}

/// The reply of the second leader to a request that the first was lost with.
async fn reply_after_loss(
    app: &App,
    rig: &Puppet,
    runs: bool,
    key: Option<&str>,
) -> (Response, String) {
    let (router, has_it) = silent(app, runs);
    let first = leader(app, 1, router).await;
    let second = leader(app, 2, app.router.clone()).await;
    let node = Node::new("http://node:7010", &[3; 32], "settings", &app.tasks);
    node.follow(Some(&first));
    let asking = node.router().oneshot(chat(app, key));
    let losing = async {
        if runs {
            rig.answer(&["Hello"]).await;
        }
        eventually("the first leader to have the request", || async {
            has_it
                .load(Ordering::Relaxed)
                .then_some(())
                .ok_or("not yet")
        })
        .await;
        node.follow(Some(&second));
        if !runs {
            rig.answer(&["Hello"]).await;
        }
    };
    let (reply, ()) = tokio::join!(asking, losing);
    let (parts, body) = reply.unwrap().into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    (Response::from_parts(parts, Body::empty()), text)
}

#[tokio::test]
async fn a_text_that_was_not_settled_is_run_by_the_next_leader() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let (reply, text) = reply_after_loss(&app, &rig, false, None).await;
    assert_said_once(&app, &reply, &text);
}

#[tokio::test]
async fn a_text_with_a_key_is_answered_by_the_next_leader_and_charged_once() {
    for settled in [false, true] {
        let app = App::start().await;
        let rig = Puppet::connect(&app.board).await;
        let (reply, text) = reply_after_loss(&app, &rig, settled, Some("one")).await;
        assert_said_once(&app, &reply, &text);
        let again = app.router.clone().oneshot(chat(&app, Some("one")));
        assert_eq!(
            again.await.unwrap().headers()["idempotent-replayed"],
            "true"
        );
        assert_eq!(app.board.figures().delivered, 1);
    }
}

#[track_caller]
fn assert_said_once(app: &App, reply: &Response, text: &str) {
    assert_eq!(reply.status(), StatusCode::OK, "{text}");
    let reply: Value = serde_json::from_str(text).unwrap();
    assert_eq!(reply["choices"][0]["message"]["content"], "Hello");
    assert_eq!(app.board.figures().delivered, 1);
}

#[tokio::test]
async fn a_text_that_was_settled_is_not_run_and_charged_again() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let (reply, text) = reply_after_loss(&app, &rig, true, None).await;
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert!(reply.headers().contains_key("retry-after"));
    assert!(text.contains("its output is lost"), "{text}");
    let figures = app.board.figures();
    assert_eq!((figures.accepted, figures.delivered), (1, 1));
}
