//! Control maps that are asked for by themselves.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::forms::{ASYNC, PNG, POP, submit, until};
use super::{call, images, post};
use crate::support::app::{App, BASE, request};
use crate::support::contract::assert_fits;

async fn ask(app: &App, kind: &str) -> String {
    let form = json!({"name": "annotation", "payload": {"control_type": kind}});
    let (status, answer) = post(app, ASYNC, json!({"source_image": PNG, "forms": [form]})).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

async fn pop(app: &App, forms: &[&str], kinds: &[&str]) -> Value {
    let worker = json!({"name": "annotator", "bridge_agent": "test:1:x", "forms": forms});
    let kinds = match kinds.is_empty() {
        true => json!({}),
        false => json!({"annotation_types": kinds}),
    };
    let (status, popped) = post(app, POP, images::with(worker, kinds)).await;
    assert_eq!(status, StatusCode::OK, "{popped}");
    assert_fits("InterrogationPopPayload", &popped);
    popped
}

/// Of a link that we serve ourselves.
fn path(link: &Value) -> String {
    let link = link.as_str().unwrap();
    link.strip_prefix(BASE).unwrap().to_owned()
}

#[tokio::test]
async fn a_control_map_is_drawn_by_who_draws_its_kind_and_read_by_its_link() {
    let app = App::start().await;
    let id = ask(&app, "canny").await;
    for (forms, kinds) in [
        (["annotation"], &[][..]),
        (["annotation"], &["depth", "mlsd"]),
        (["caption"], &["canny"]),
    ] {
        let popped = pop(&app, &forms, kinds).await;
        assert!(popped["forms"].is_null(), "{popped}");
    }
    let popped = pop(&app, &["annotation"], &["depth", "canny"]).await;
    let form = &popped["forms"][0];
    let told = (&form["form"], &form["payload"]);
    assert_eq!(
        told,
        (&json!("annotation"), &json!({"control_type": "canny"}))
    );
    let webp = app.get(&path(&form["source_image"])).await.bytes().await;
    let headers = [("content-type", "image/webp")];
    let link = path(&form["r2_upload"]);
    let sent = request(Method::PUT, &link, &headers, Body::from(webp.clone()));
    assert!(app.send(sent).await.status.is_success());
    let (_, answer) = submit(&app, &form["id"], json!({"annotation": "R2"})).await;
    assert_eq!(answer["reward"], 3.0);
    let status = until(&app, &id, |status| status["state"] == "done").await;
    assert_fits("InterrogationStatus", &status);
    let form = &status["forms"][0];
    assert_eq!(form["form"], "annotation");
    let made = app.get(&path(&form["result"]["annotation"])).await;
    assert_eq!(made.bytes().await, webp);
}

#[tokio::test]
async fn a_control_map_of_no_kind_that_is_known_is_refused_where_it_stands() {
    let app = App::start().await;
    for (payload, start, end) in [
        (json!({}), "missing: must be one of canny, ", ""),
        (
            json!({"control_type": "hough"}),
            "must be one of canny, ",
            ", found \"hough\"",
        ),
    ] {
        let forms = json!([{"name": "caption"}, {"name": "annotation", "payload": payload}]);
        let (status, told) = post(&app, ASYNC, json!({"source_image": PNG, "forms": forms})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{told}");
        assert_fits("RequestValidationError", &told);
        assert_eq!(told["rc"], "InvalidControlType");
        let why = &told["errors"]["forms.1.payload.control_type"];
        let why = why.as_str().unwrap();
        assert!(why.starts_with(start) && why.ends_with(end), "{told}");
    }
}

#[tokio::test]
async fn workers_show_the_kinds_of_maps_that_they_draw() {
    let app = App::start().await;
    let path = "/api/v2/workers/name/annotator";
    for (forms, kinds) in [
        (["annotation"], &["canny", "depth"][..]),
        (["caption"], &["seg"]),
        (["caption"], &[]),
    ] {
        pop(&app, &forms, kinds).await;
        let (_, worker) = call(&app, Method::GET, path, Value::Null).await;
        assert_fits("WorkerDetails", &worker);
        let shown = (&worker["forms"], &worker["annotation_types"]);
        assert_eq!(shown, (&json!(forms), &json!(kinds)));
    }
}
