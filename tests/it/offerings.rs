//! Workers declare the kind of each model, and no model is offered a job of another kind.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::support::app::{App, request};
use super::support::rig::{Rig, ours};

/// One worker with a text model and an image model.
async fn mixed(app: &App) -> Rig {
    let mut registration = ours("mixed", 4);
    registration["apikey"] = json!(app.key);
    registration["models"] = json!(["tiny", "paint"]);
    registration["job_types"] = json!(["text", "image"]);
    registration["api_formats"] = json!(["neutral", "openai-chat", "legacy"]);
    registration["capacity"]["models"] = json!({
        "tiny": {"max": 4, "kinds": ["text"], "ctx": 4096},
        "paint": {"max": 1, "kinds": ["image"]},
    });
    let mut rig = app.dial().await;
    rig.send(registration).await;
    assert_eq!(rig.next().await["type"], "ready");
    rig
}

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})
}

#[tokio::test]
async fn a_text_from_an_image_model_is_refused_with_the_route_that_serves_it() {
    let app = App::start().await;
    let mut rig = mixed(&app).await;
    let listed = app.get("/v1/models?type=all").await.json().await;
    for model in listed["data"].as_array().unwrap() {
        let has_context = model["max_context_length"].is_number();
        assert_eq!(has_context, model["id"] != "paint", "{model}");
    }
    // OpenAI's SDKs, whose programs ask for models of every kind, get them all; chat programs get those that write.
    for (headers, path, count) in [
        (&[("x-stainless-lang", "python")][..], "/v1/models", 3),
        (&[("x-stainless-lang", "js")][..], "/v1/models?type=text", 2),
        (&[][..], "/v1/models", 2),
    ] {
        let asked = request(Method::GET, path, headers, Body::empty());
        let list = app.send(asked).await.json().await;
        assert_eq!(list["data"].as_array().unwrap().len(), count, "{list}");
    }
    let outputs: Vec<_> = listed["data"].as_array().unwrap().iter().collect();
    let outputs: Vec<_> = outputs
        .iter()
        .map(|model| (&model["id"], &model["output_modalities"]))
        .filter(|(id, _)| *id != "auto")
        .collect();
    assert_eq!(
        outputs,
        [
            (&json!("paint"), &json!(["image"])),
            (&json!("tiny"), &json!(["text"])),
        ]
    );
    let body = json!({"model": "paint", "prompt": "a cat"});
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(body.to_string());
    let refused = app
        .send(request(Method::POST, "/v1/completions", &headers, body))
        .await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let error = refused.json().await;
    assert_eq!(error["error"]["param"], "model", "{error}");
    let message = error["error"]["message"].as_str().unwrap();
    for part in ["not a text model", "POST /", "tiny"] {
        assert!(message.contains(part), "{message}");
    }
    let body = chat("tiny");
    let (reply, ()) = tokio::join!(app.chat(&body), async {
        let job = rig.job().await;
        assert_eq!(job["model"], "tiny");
        rig.token(&job, "hello").await;
        rig.done(&job).await;
    });
    assert_eq!(reply.status, StatusCode::OK);
}

#[tokio::test]
async fn an_image_job_is_not_offered_to_a_text_model() {
    let app = App::start().await;
    let mut rig = mixed(&app).await;
    let body = json!({"prompt": "a cat", "models": ["tiny"]});
    let headers = [("apikey", &*app.key)];
    let body = Body::from(body.to_string());
    let asked = request(Method::POST, "/api/v2/generate/async", &headers, body);
    let asked = app.send(asked).await;
    assert_eq!(asked.status, StatusCode::ACCEPTED);
    let asked = asked.json().await;
    let path = format!("/api/v2/generate/check/{}", asked["id"].as_str().unwrap());
    let status = app.get(&path).await.json().await;
    assert_eq!(status["is_possible"], false, "{status}");
    // The next job is the first that the worker is offered.
    let body = chat("tiny");
    let (reply, ()) = tokio::join!(app.chat(&body), async {
        let job = rig.job().await;
        assert_eq!(job["model"], "tiny");
        assert!(
            job["payload"]["request"]["input"]["chat"].is_object(),
            "{job}"
        );
        rig.token(&job, "hello").await;
        rig.done(&job).await;
    });
    assert_eq!(reply.status, StatusCode::OK);
}

#[tokio::test]
async fn a_prompt_is_held_against_the_context_of_its_model() {
    let app = App::start().await;
    let _rig = mixed(&app).await;
    let words = "word ".repeat(6000);
    let body = json!({"model": "tiny", "messages": [{"role": "user", "content": words}]});
    let refused = app.chat(&body).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    let error = refused.json().await;
    assert_eq!(error["error"]["code"], "context_length_exceeded", "{error}");
}
