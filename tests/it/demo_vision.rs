//! The small model that reads images: it answers as the reference does, and about what `demo-image` draws.

use std::fs;
use std::path::Path;

use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster::runtime::ModelSource;
use muster_testing::eventually_blocking;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::encode::{post_json, served};
use crate::support::boss::engine;
use crate::up::{Up, reply_with_key, up};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo-vision");
const MODEL: &str = "demo-vision";

/// What transformers answers.
#[derive(Deserialize)]
struct VisionReference {
    image: String,
    question: String,
    prompt: Vec<u32>,
    answer: Vec<u32>,
    text: String,
}

fn chat(url: &str, question: &str) -> Value {
    let content = json!([
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": question},
    ]);
    json!({"model": MODEL, "temperature": 0, "messages": [{"role": "user", "content": content}]})
}

fn data_url(png: &[u8]) -> String {
    format!("data:image/png;base64,{}", STANDARD.encode(png))
}

#[tokio::test]
async fn the_demo_vision_is_that_of_the_reference() {
    let text = fs::read_to_string(Path::new(FOLDER).join("reference.json")).unwrap();
    let references: Vec<VisionReference> = serde_json::from_str(&text).unwrap();
    assert!(references.len() >= 12, "{}", references.len());
    let (runtime, info) = engine().await;
    let source = ModelSource::new(FOLDER);
    let sees = runtime.load(MODEL, source, |_, _| ()).await.unwrap();
    let (app, _worker) = served(runtime, vec![info, sees]).await;
    for reference in references {
        let png = fs::read(Path::new(FOLDER).join(&reference.image)).unwrap();
        let body = chat(&data_url(&png), &reference.question);
        let answer = post_json(&app, "/v1/chat/completions", &body).await;
        let status = answer.status;
        let reply = answer.json().await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        let asked = format!("{}: {}", reference.image, reference.question);
        let content = &reply["choices"][0]["message"]["content"];
        assert_eq!(content, &reference.text, "{asked}");
        let usage = &reply["usage"];
        assert_eq!(usage["prompt_tokens"], reference.prompt.len(), "{asked}");
        // The end of the answer counts as a token.
        let written = usage["completion_tokens"].as_u64().unwrap() as usize;
        let wanted = reference.answer.len();
        assert!((wanted - 1..=wanted).contains(&written), "{asked}: {usage}");
    }
}

fn ask(up: &Up, url: &str, question: &str) -> String {
    let reply = reply_with_key(up, "POST", "/v1/chat/completions", &chat(url, question));
    let text = reply["choices"][0]["message"]["content"].as_str();
    text.unwrap_or_else(|| panic!("{question}: {reply}"))
        .to_owned()
}

fn draw(up: &Up, prompt: &str) -> String {
    let body = json!({
        "model": "demo-image", "prompt": prompt, "seed": 7, "response_format": "b64_json", "output_format": "png",
    });
    let drawn = reply_with_key(up, "POST", "/v1/images/generations", &body);
    let png = drawn["data"][0]["b64_json"].as_str();
    let png = png.unwrap_or_else(|| panic!("{prompt}: {drawn}"));
    format!("data:image/png;base64,{png}")
}

#[test]
fn what_demo_image_draws_under_up_is_named_by_shape_color_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    let drawn = draw(&up, "a red circle on a blue background");
    let what = ask(&up, &drawn, "What is in this picture?");
    assert!(what.contains("red circle"), "{what}");
    assert!(what.contains("blue background"), "{what}");
    let color = ask(&up, &drawn, "What color is the circle?");
    assert_eq!(color, "The circle is red.");
    let shape = ask(&up, &drawn, "What shape is it?");
    assert_eq!(shape, "It is a circle.");
    let drawn = draw(
        &up,
        "a small yellow square at the top left on a black background",
    );
    let place = ask(&up, &drawn, "Where is it?");
    assert_eq!(place, "The square is at the top left.");

    // Without an image, and about something else.
    let body =
        json!({"model": MODEL, "messages": [{"role": "user", "content": "Tell me a joke."}]});
    let reply = reply_with_key(&up, "POST", "/v1/chat/completions", &body);
    let text = &reply["choices"][0]["message"]["content"];
    assert!(
        text.as_str().unwrap().starts_with("I look at pictures."),
        "{reply}"
    );
    let unknown = ask(&up, &drawn, "Is there a person?");
    assert!(unknown.starts_with("I can only tell"), "{unknown}");

    // By the route of descriptions, and by the AI Horde API.
    let body = json!({"image": drawn, "prompt": "What shape is it?"});
    let reply = reply_with_key(&up, "POST", "/v1/images/describe", &body);
    assert_eq!(reply["text"], "It is a square.", "{reply}");
    assert_eq!(reply["model"], MODEL, "{reply}");
    let (_, base64) = drawn.split_once(',').unwrap();
    let body = json!({"source_image": base64, "forms": [{"name": "caption"}]});
    let accepted = reply_with_key(&up, "POST", "/api/v2/interrogate/async", &body);
    let id = accepted["id"].as_str();
    let id = id.unwrap_or_else(|| panic!("{accepted}"));
    let path = format!("/api/v2/interrogate/status/{id}");
    let status = eventually_blocking("a caption", || {
        let status = reply_with_key(&up, "GET", &path, &Value::Null);
        match status["state"] == "done" {
            true => Ok(status),
            false => Err(status),
        }
    });
    let caption = status["forms"][0]["result"]["caption"].as_str().unwrap();
    assert!(caption.contains("yellow square"), "{status}");
}
