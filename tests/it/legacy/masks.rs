//! `X-Fields` on every route of the poll API: whatever is answered is masked, so each of them is asked for one field
//! and answers with that alone.

use std::collections::BTreeSet;
use std::slice::from_ref;

use axum::body::Body;
use axum::http::Method;
use muster::coordinator::documents::{Documents, News};
use muster::coordinator::http::serve::PeerAddress;
use muster::coordinator::http::{DEVELOPMENT, ROUTES};
use muster::coordinator::people::Development;
use muster::coordinator::state::DoorSettings;
use muster::protocol::job::Kudos;
use muster_testing::eventually;
use serde_json::{Value, json};

use super::{POP, call, forms, images, worker};
use crate::support::app::{Answer, App, request};

/// A service and the routes of it that were not asked yet.
struct Walk {
    app: App,
    left: BTreeSet<String>,
}

impl Walk {
    async fn begin() -> Self {
        let news = News {
            date: "2026-01-01".to_owned(),
            text: "new".to_owned(),
            title: None,
            importance: None,
            tags: Vec::new(),
            links: Vec::new(),
        };
        let app = App::with(DoorSettings {
            development: Some(Development::default()),
            documents: Documents::default().with_news(vec![news]),
            ..DoorSettings::default()
        })
        .await;
        let routes = ROUTES.iter().chain(DEVELOPMENT);
        let routes = routes.filter(|route| route.is_legacy());
        let left = routes.map(|route| format!("{} {}", route.method, route.path));
        Self {
            left: left.collect(),
            app,
        }
    }

    /// Calls a route, with these ids in its path, and requests one field of the reply.
    async fn send(&mut self, route: &str, ids: &[&str], body: Value, field: &str) -> Answer {
        assert!(self.left.remove(route), "{route} is no route, or not new");
        let (method, path) = route.split_once(' ').unwrap();
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let headers = [("apikey", self.app.key.as_str()), ("x-fields", field)];
        let body = match body {
            Value::Null => Body::empty(),
            body => body.to_string().into(),
        };
        let asked = request(method, &filled(path, ids), &headers, body);
        self.app.send(asked).await
    }

    /// The one field of the answer, or of the first of those it lists.
    async fn ask(&mut self, route: &str, ids: &[&str], body: Value, field: &str) -> Value {
        let answer = self.send(route, ids, body, field).await;
        let status = answer.status;
        let answer = answer.json().await;
        assert!(status.is_success(), "{route}: {status} {answer}");
        let items = match &answer {
            Value::Array(items) => items.as_slice(),
            one => from_ref(one),
        };
        assert!(!items.is_empty(), "{route} lists nothing");
        for item in items {
            let names: Vec<_> = item.as_object().unwrap().keys().collect();
            assert_eq!(names, [field], "{route}: {answer}");
        }
        items[0][field].clone()
    }

    /// Creates a resource and returns its id.
    async fn make(&mut self, route: &str, ids: &[&str], body: Value) -> String {
        let id = self.ask(route, ids, body, "id").await;
        id.as_str().unwrap().to_owned()
    }

    /// Asks a route that needs no more than its path.
    async fn look(&mut self, route: &str, ids: &[&str], field: &str) -> Value {
        self.ask(route, ids, Value::Null, field).await
    }

    /// The same where there is nothing in the path to be filled in.
    async fn look_at(&mut self, paths: &[(&str, &str)]) {
        for (path, field) in paths {
            self.look(&format!("GET /api/v2/{path}"), &[], field).await;
        }
    }
}

/// The path with these in its places.
fn filled(path: &str, ids: &[&str]) -> String {
    let mut ids = ids.iter().copied();
    let parts = path.split('/').map(|part| match part.starts_with('{') {
        true => ids.next().unwrap(),
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn every_route_answers_with_the_field_it_was_asked_for_and_no_other() {
    let mut walk = Walk::begin().await;
    walk.app.enrich(Kudos(1_000_000)).await;
    write_texts(&mut walk).await;
    draw_images(&mut walk).await;
    look_into_images(&mut walk).await;
    change_workers(&mut walk).await;
    change_people(&mut walk).await;
    hand_out_keys(&mut walk).await;
    for making in ["image", "text"] {
        make_styles(&mut walk, making).await;
    }
    moderate(&mut walk).await;
    tell(&mut walk).await;
    assert!(walk.left.is_empty(), "not asked: {:?}", walk.left);
}

async fn write_texts(walk: &mut Walk) {
    let asked = json!({"prompt": "Once upon", "models": ["tiny"]});
    let id = walk
        .make("POST /api/v2/generate/text/async", &[], asked)
        .await;
    let status = "/api/v2/generate/text/status/{id}";
    walk.look(&format!("GET {status}"), &[&id], "done").await;
    let sent = "GET /api/v2/generate/text/request/{id}";
    walk.look(sent, &[&id], "prompt").await;
    let popped = walk.make(&format!("POST {POP}"), &[], worker("w1")).await;
    let brought = json!({"id": popped, "generation": "a time", "seed": 1});
    walk.ask("POST /api/v2/generate/text/submit", &[], brought, "reward")
        .await;
    walk.look(&format!("DELETE {status}"), &[&id], "done").await;
}

async fn draw_images(walk: &mut Walk) {
    let asked = json!({"prompt": "a cat", "models": ["tiny"], "shared": true});
    let id = walk.make("POST /api/v2/generate/async", &[], asked).await;
    walk.look("GET /api/v2/generate/check/{id}", &[&id], "done")
        .await;
    walk.look("GET /api/v2/generate/request/{id}", &[&id], "prompt")
        .await;
    let artist = images::worker(json!({}));
    let popped = walk.make("POST /api/v2/generate/pop", &[], artist).await;
    let step = json!({"id": popped, "current_step": 1, "total_steps": 2});
    // The one that says nothing.
    let nothing = walk.send("POST /api/v2/generate/progress", &[], step, "id");
    let nothing = nothing.await;
    assert!(nothing.status.is_success() && nothing.bytes().await.is_empty());
    let brought = json!({"id": popped, "generation": images::drawn(), "seed": 77});
    walk.ask("POST /api/v2/generate/submit", &[], brought, "reward")
        .await;
    images::until_done(&walk.app, &id).await;
    let status = "/api/v2/generate/status/{id}";
    walk.look(&format!("GET {status}"), &[&id], "done").await;
    let rating = json!({"ratings": [{"id": popped, "rating": 5}]});
    walk.ask("POST /api/v2/generate/rate/{id}", &[&id], rating, "reward")
        .await;
    walk.look(&format!("DELETE {status}"), &[&id], "done").await;
}

async fn look_into_images(walk: &mut Walk) {
    let asked = json!({"source_image": forms::PNG, "forms": [{"name": "caption"}]});
    let id = walk
        .make("POST /api/v2/interrogate/async", &[], asked)
        .await;
    let status = "/api/v2/interrogate/status/{id}";
    walk.look(&format!("GET {status}"), &[&id], "state").await;
    let looker = json!({"name": "looker", "forms": ["caption"], "bridge_agent": "test:1:x"});
    let popped = walk
        .ask("POST /api/v2/interrogate/pop", &[], looker, "forms")
        .await;
    let brought = json!({"id": popped[0]["id"], "result": "a cat"});
    walk.ask("POST /api/v2/interrogate/submit", &[], brought, "reward")
        .await;
    walk.look(&format!("DELETE {status}"), &[&id], "state")
        .await;
}

async fn change_workers(walk: &mut Walk) {
    let headers = [("apikey", walk.app.key.as_str())];
    let mut comes = request(
        Method::POST,
        POP,
        &headers,
        worker("idle").to_string().into(),
    );
    let address = PeerAddress("192.0.2.7".parse().unwrap());
    comes.extensions_mut().insert(address);
    assert!(walk.app.send(comes).await.status.is_success());
    let one = "/api/v2/workers/{id}";
    walk.look_at(&[("workers", "name")]).await;
    let id = walk
        .look("GET /api/v2/workers/name/{name}", &["idle"], "id")
        .await;
    let id = id.as_str().unwrap();
    walk.look(&format!("GET {one}"), &[id], "name").await;
    let change = json!({"info": "a rig"});
    walk.ask(&format!("PUT {one}"), &[id], change, "info").await;
    let block = "/api/v2/operations/block_worker_ipaddr/{id}";
    // The address is stored asynchronously.
    let path = filled(block, &[id]);
    eventually("the worker's address", async || {
        let (status, answer) = call(&walk.app, Method::PUT, &path, Value::Null).await;
        status.is_success().then_some(()).ok_or(answer)
    })
    .await;
    walk.look(&format!("PUT {block}"), &[id], "message").await;
    walk.look(&format!("DELETE {block}"), &[id], "message")
        .await;
    let told = "/api/v2/workers/messages";
    let message = json!({"message": "hello"});
    let hello = walk.make(&format!("POST {told}"), &[], message).await;
    walk.look_at(&[("workers/messages", "message")]).await;
    for method in ["GET", "DELETE"] {
        let route = format!("{method} {told}/{{id}}");
        walk.look(&route, &[&hello], "message").await;
    }
    walk.look(&format!("DELETE {one}"), &[id], "deleted_name")
        .await;
    let team = json!({"name": "the rigs", "info": "we draw"});
    let team = walk.make("POST /api/v2/teams", &[], team).await;
    walk.look_at(&[("teams", "name")]).await;
    let one = "/api/v2/teams/{id}";
    walk.look(&format!("GET {one}"), &[&team], "name").await;
    let change = json!({"name": "others", "info": "we write"});
    walk.ask(&format!("PATCH {one}"), &[&team], change, "info")
        .await;
    walk.look(&format!("DELETE {one}"), &[&team], "deleted_name")
        .await;
}

async fn change_people(walk: &mut Walk) {
    let alice = json!({"username": "alice", "oauth_id": "alice"});
    let id = walk
        .ask("POST /api/v2/dev/test-user", &[], alice, "user_id")
        .await;
    let id = id.to_string();
    walk.look_at(&[("find_user", "id"), ("users", "username")])
        .await;
    let one = "/api/v2/users/{id}";
    walk.look(&format!("GET {one}"), &[&id], "username").await;
    let change = json!({"contact": "me@example.org", "public_workers": true});
    walk.ask(&format!("PUT {one}"), &[&id], change, "contact")
        .await;
    let gift = json!({"username": format!("alice#{id}"), "amount": 1});
    walk.ask(
        "POST /api/v2/kudos/transfer",
        &[],
        gift.clone(),
        "transferred",
    )
    .await;
    walk.ask("POST /api/v2/kudos/award", &[], gift, "awarded")
        .await;
    walk.look(&format!("DELETE {one}"), &[&id], "message").await;
}

async fn hand_out_keys(walk: &mut Walk) {
    let (all, one) = ("/api/v2/sharedkeys", "/api/v2/sharedkeys/{id}");
    let key = json!({"name": "for a friend", "kudos": 5});
    let id = walk.make(&format!("PUT {all}"), &[], key).await;
    walk.look(&format!("GET {one}"), &[&id], "name").await;
    let change = json!({"name": "for another"});
    walk.ask(&format!("PATCH {one}"), &[&id], change, "name")
        .await;
    walk.look(&format!("DELETE {one}"), &[&id], "message").await;
}

/// Styles, and what belongs to those of images.
async fn make_styles(walk: &mut Walk, making: &str) {
    let all = format!("/api/v2/styles/{making}");
    let one = format!("{all}/{{id}}");
    let style = json!({"name": making, "models": ["tiny"]});
    let id = walk.make(&format!("POST {all}"), &[], style).await;
    walk.look(&format!("GET {all}"), &[], "name").await;
    walk.look(&format!("GET {one}"), &[&id], "name").await;
    let named = format!("GET {all}_by_name/{{name}}");
    walk.look(&named, &[making], "id").await;
    let change = json!({"info": "another"});
    walk.ask(&format!("PATCH {one}"), &[&id], change, "id")
        .await;
    if making == "image" {
        add_examples(walk, &id).await;
        collect(walk, making).await;
    }
    walk.look(&format!("DELETE {one}"), &[&id], "message").await;
}

async fn add_examples(walk: &mut Walk, style: &str) {
    let all = "/api/v2/styles/image/{id}/example";
    let one = format!("{all}/{{example}}");
    let example = json!({"url": "https://example.org/1.webp", "primary": false});
    let id = walk.make(&format!("POST {all}"), &[style], example).await;
    let change = json!({"primary": true});
    walk.ask(&format!("PATCH {one}"), &[style, &id], change, "id")
        .await;
    walk.look(&format!("DELETE {one}"), &[style, &id], "message")
        .await;
}

async fn collect(walk: &mut Walk, style: &str) {
    let (all, one) = ("/api/v2/collections", "/api/v2/collections/{id}");
    let art = json!({"name": "art", "info": "all of it", "styles": [style]});
    let id = walk.make(&format!("POST {all}"), &[], art).await;
    walk.look(&format!("GET {all}"), &[], "name").await;
    walk.look(&format!("GET {one}"), &[&id], "name").await;
    let named = "GET /api/v2/collection_by_name/{name}";
    walk.look(named, &["collection::art"], "id").await;
    let change = json!({"info": "a part"});
    walk.ask(&format!("PATCH {one}"), &[&id], change, "id")
        .await;
    walk.look(&format!("DELETE {one}"), &[&id], "message").await;
}

async fn moderate(walk: &mut Walk) {
    let (all, one) = ("/api/v2/filters", "/api/v2/filters/{id}");
    let filter = json!({"regex": "dark", "filter_type": 10, "description": "a note"});
    let id = walk.make(&format!("PUT {all}"), &[], filter).await;
    let prompt = json!({"prompt": "dark"});
    walk.ask(&format!("POST {all}"), &[], prompt, "suspicion")
        .await;
    walk.look_at(&[("filters", "regex"), ("filters/regex", "filter_type")])
        .await;
    walk.look(&format!("GET {one}"), &[&id], "regex").await;
    let change = json!({"description": "another"});
    walk.ask(&format!("PATCH {one}"), &[&id], change, "description")
        .await;
    walk.look(&format!("DELETE {one}"), &[&id], "message").await;
    let all = "/api/v2/operations/ipaddr";
    let network = json!({"ipaddr": "10.0.0.0/8", "hours": 1});
    walk.ask(&format!("POST {all}"), &[], network, "message")
        .await;
    walk.look(&format!("GET {all}"), &[], "ipaddr").await;
    let around = format!("GET {all}/{{address}}");
    walk.look(&around, &["10.1.2.3"], "ipaddr").await;
    let network = json!({"ipaddr": "10.0.0.0/8"});
    walk.ask(&format!("DELETE {all}"), &[], network, "message")
        .await;
    let modes = json!({"raid_mode": false, "invite_only_mode": false});
    walk.ask("PUT /api/v2/status/modes", &[], modes, "raid_mode")
        .await;
}

/// The service about itself.
async fn tell(walk: &mut Walk) {
    walk.look_at(&[
        ("status/heartbeat", "message"),
        ("status/modes", "raid_mode"),
        ("status/performance", "queued_requests"),
        ("status/models", "name"),
        ("status/news", "newspiece"),
        ("stats/img/totals", "day"),
        ("stats/img/models", "day"),
        ("stats/text/totals", "day"),
        ("stats/text/models", "day"),
        ("documents/terms", "html"),
        ("documents/privacy", "html"),
        ("documents/sponsors", "html"),
        ("auto_worker_type", "recommended_worker_type"),
    ])
    .await;
    walk.look("GET /api/v2/status/models/{name}", &["tiny"], "name")
        .await;
}
