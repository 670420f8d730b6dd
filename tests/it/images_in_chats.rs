//! Images in chats of every dialect, from the route to a model that reads them.

use axum::body::Body;
use axum::http::{Method, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::{ImageFormat, Rgb, RgbImage};
use serde_json::{Value, json};

use crate::encode::service_with_images;
use crate::support::app::{App, request};
use crate::support::boss::MODEL;

const SEEING: &str = "seeing";
const QUESTION: &str = "What is here?";
const DESCRIBE: &str = "/v1/images/describe";

fn drawn(width: u32, height: u32, colour: [u8; 3], format: ImageFormat) -> Vec<u8> {
    let image = RgbImage::from_fn(width, height, |x, y| match (x / 8 + y / 8) % 2 {
        0 => Rgb(colour),
        _ => Rgb([255, 255, 255]),
    });
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn data_url(bytes: &[u8]) -> String {
    format!("data:image/png;base64,{}", STANDARD.encode(bytes))
}

async fn post(app: &App, path: &str, body: &Value) -> (StatusCode, Value) {
    let bearer = format!("Bearer {}", app.key);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let asked = request(Method::POST, path, &headers, Body::from(body.to_string()));
    let answer = app.send(asked).await;
    (answer.status, answer.json().await)
}

fn chat(model: &str, urls: &[&str]) -> Value {
    let images = urls
        .iter()
        .map(|url| json!({"type": "image_url", "image_url": {"url": url}}));
    let text = json!({"type": "text", "text": QUESTION});
    let content: Vec<Value> = std::iter::once(text).chain(images).collect();
    json!({
        "model": model, "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": content}],
    })
}

#[tokio::test]
async fn an_image_is_read_whatever_the_dialect_and_its_tokens_are_counted() {
    let (app, _worker) = service_with_images().await;
    let bytes = drawn(64, 48, [255, 0, 0], ImageFormat::Png);
    let (url, base64) = (data_url(&bytes), STANDARD.encode(&bytes));
    let (status, plain) = post(&app, "/v1/chat/completions", &chat(SEEING, &[])).await;
    assert_eq!(status, StatusCode::OK, "{plain}");
    let (status, seen) = post(&app, "/v1/chat/completions", &chat(SEEING, &[&url])).await;
    assert_eq!(status, StatusCode::OK, "{seen}");
    let count = |reply: &Value| reply["usage"]["prompt_tokens"].as_u64().unwrap();
    let more = count(&seen) - count(&plain);
    // Squares of the image between two marks.
    assert!(more > 2, "{more}");
    let text = seen["choices"][0]["message"]["content"].clone();

    let source = json!({"type": "base64", "media_type": "image/png", "data": base64});
    let content = json!([{"type": "text", "text": QUESTION}, {"type": "image", "source": source}]);
    let message = json!({
        "model": SEEING, "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": content}],
    });
    let (status, reply) = post(&app, "/v1/messages", &message).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(reply["content"][0]["text"], text);
    assert_eq!(
        reply["usage"]["input_tokens"],
        count(&seen) - cached(&reply)
    );

    let content = json!([{"type": "input_text", "text": QUESTION}, {"type": "input_image", "image_url": url}]);
    let response = json!({
        "model": SEEING, "max_output_tokens": 8, "temperature": 0,
        "input": [{"role": "user", "content": content}],
    });
    let (status, reply) = post(&app, "/v1/responses", &response).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(reply["output"][0]["content"][0]["text"], text);
    assert_eq!(reply["usage"]["input_tokens"], count(&seen));

    let ollama = json!({
        "model": SEEING, "stream": false, "options": {"num_predict": 8, "temperature": 0},
        "messages": [{"role": "user", "content": QUESTION, "images": [base64]}],
    });
    let (status, reply) = post(&app, "/api/chat", &ollama).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert!(
        reply["prompt_eval_count"].as_u64().unwrap() > count(&plain),
        "{reply}"
    );
}

fn cached(reply: &Value) -> u64 {
    reply["usage"]["cache_read_input_tokens"]
        .as_u64()
        .unwrap_or(0)
}

#[tokio::test]
async fn images_of_every_type_are_read_and_other_images_have_other_texts_in_the_cache() {
    let (app, _worker) = service_with_images().await;
    let ask = async |bytes: &[u8]| {
        let (status, reply) = post(
            &app,
            "/v1/chat/completions",
            &chat(SEEING, &[&data_url(bytes)]),
        )
        .await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        reply["choices"][0]["message"]["content"].clone()
    };
    let red = drawn(64, 64, [255, 0, 0], ImageFormat::Png);
    let blue = drawn(64, 64, [0, 0, 255], ImageFormat::Png);
    let first = ask(&red).await;
    let other = ask(&blue).await;
    assert_ne!(first, other);
    // From the cache.
    assert_eq!(ask(&red).await, first);
    assert_eq!(ask(&blue).await, other);
    for format in [ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Gif] {
        ask(&drawn(40, 24, [0, 128, 0], format)).await;
    }
}

#[tokio::test]
async fn what_is_no_image_is_refused_by_its_place() {
    let (app, _worker) = service_with_images().await;
    let png = drawn(64, 64, [255, 0, 0], ImageFormat::Png);
    let good = data_url(&png);
    let refuse = async |urls: &[&str], param: &str, words: &str| {
        let (status, reply) = post(&app, "/v1/chat/completions", &chat(SEEING, urls)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
        assert_eq!(reply["error"]["param"], param, "{reply}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    };
    let place = "messages[0].content[1].image_url";
    refuse(&["data:image/png;base64,!!!!"], place, "base64").await;
    refuse(&[&data_url(b"<svg/>")], place, "image").await;
    refuse(&["http://127.0.0.1:1/a.png"], place, "URL").await;
    let second = "messages[0].content[2].image_url";
    refuse(&[&good, &data_url(b"nothing")], second, "image").await;
    let many = vec![good.as_str(); 101];
    refuse(
        &many,
        "messages[0].content[101].image_url",
        "at most 100 images",
    )
    .await;
    // The header is valid and the pixels are truncated: the worker reports it.
    let (status, reply) = post(
        &app,
        "/v1/chat/completions",
        &chat(SEEING, &[&data_url(&png[..png.len() / 2])]),
    )
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
    // A model of texts.
    let (status, reply) = post(&app, "/v1/chat/completions", &chat(MODEL, &[&good])).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
    assert_eq!(reply["error"]["param"], "messages[0].content[1]", "{reply}");
}

#[tokio::test]
async fn an_image_is_described_as_in_a_chat() {
    let (app, _worker) = service_with_images().await;
    let png = drawn(64, 48, [255, 0, 0], ImageFormat::Png);
    let url = data_url(&png);
    let (_, seen) = post(&app, "/v1/chat/completions", &described_chat(&url)).await;
    let text = &seen["choices"][0]["message"]["content"];
    let least = json!({"image": url, "max_tokens": 8, "temperature": 0});
    let named = json!({
        "model": SEEING, "image": STANDARD.encode(&png), "prompt": "Describe this image.", "max_tokens": 8, "temperature": 0,
    });
    for body in [least, named] {
        let (status, reply) = post(&app, DESCRIBE, &body).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        assert_eq!((&reply["text"], &reply["model"]), (text, &json!(SEEING)));
        assert_eq!(reply["object"], "image.description");
        let tokens = |reply: &Value| reply["usage"]["total_tokens"].clone();
        assert_eq!(tokens(&reply), tokens(&seen), "{reply}");
    }
    let (status, reply) = post_form(&app, &png).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    assert_eq!(&reply["text"], text);

    let refuse = async |body: Value, param: &str| {
        let (status, reply) = post(&app, DESCRIBE, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{reply}");
        assert_eq!(reply["error"]["param"], param, "{reply}");
    };
    refuse(json!({"prompt": QUESTION}), "image").await;
    refuse(json!({"image": "!!!!"}), "image").await;
    refuse(json!({"image": data_url(b"<svg/>")}), "image").await;
    refuse(json!({"image": "http://127.0.0.1:1/a.png"}), "image").await;
    refuse(json!({"image": url, "model": MODEL}), "image").await;
    refuse(json!({"image": url, "stream": true}), "stream").await;
    refuse(
        json!({"image": url, "model": SEEING, "max_tokens": 0}),
        "max_tokens",
    )
    .await;
}

fn described_chat(url: &str) -> Value {
    let content = json!([
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "Describe this image."},
    ]);
    json!({
        "model": SEEING, "max_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": content}],
    })
}

async fn post_form(app: &App, png: &[u8]) -> (StatusCode, Value) {
    let mut form = Vec::new();
    for (name, text) in [("max_tokens", "8"), ("temperature", "0")] {
        let part =
            format!("--x\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n");
        form.extend_from_slice(part.as_bytes());
    }
    form.extend_from_slice(
        b"--x\r\ncontent-disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\r\n",
    );
    form.extend_from_slice(png);
    form.extend_from_slice(b"\r\n--x--\r\n");
    let bearer = format!("Bearer {}", app.key);
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "multipart/form-data; boundary=x"),
    ];
    let answer = app
        .send(request(Method::POST, DESCRIBE, &headers, Body::from(form)))
        .await;
    (answer.status, answer.json().await)
}

#[tokio::test]
async fn a_model_that_reads_images_is_listed_with_them() {
    let (app, _worker) = service_with_images().await;
    let models = app.get("/v1/models").await.json().await;
    let inputs = |name: &str| {
        let mut models = models["data"].as_array().unwrap().iter();
        models.find(|model| model["id"] == name).unwrap()["input_modalities"].clone()
    };
    assert!(inputs(SEEING).as_array().unwrap().contains(&json!("image")));
    assert_eq!(inputs(MODEL), json!(["text"]));
}
