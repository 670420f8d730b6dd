//! Limits of requests for media: the list of models, the parameters of a model, the routes and `worker generate` say one
//! number.

use serde_json::{Value, json};

use crate::support::worker::worker;
use crate::up::{Up, reply_with_key, up};

/// The error of `worker generate` for an option that is out of range.
fn refusal(model: &str, option: &str, value: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = match model {
        "demo-image" => "a.png",
        "demo-video" => "a.mp4",
        _ => "a.wav",
    };
    let arguments = ["generate", model, "a", option, value, "-o", file];
    let run = worker(&arguments).inside(folder.path()).run();
    assert_ne!(run.code, 0, "{model} {option} {value}");
    run.stderr
}

fn get(up: &Up, path: &str) -> Value {
    reply_with_key(up, "GET", path, &Value::Null)
}

/// The reply of the route for speech.
fn spoken(up: &Up, text: &str, speed: f64) -> Value {
    let body =
        json!({"model": "demo-speech", "input": text, "speed": speed, "return_timestamps": true});
    reply_with_key(up, "POST", "/v1/audio/speech", &body)
}

#[test]
fn lists_routes_and_the_command_line_say_one_limit() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    for (model, route, field, option) in [
        ("demo-image", "/v1/images/generations", "steps", "--steps"),
        ("demo-video", "/v1/videos/generations", "steps", "--steps"),
        (
            "demo-music",
            "/v1/audio/generations",
            "inference_steps",
            "--steps",
        ),
        (
            "demo-music",
            "/v1/audio/generations",
            "seconds",
            "--seconds",
        ),
    ] {
        let params = get(&up, &format!("/v1/models/{model}/params"));
        let most = params["params"][field]["maximum"].as_f64();
        let most = most.unwrap_or_else(|| panic!("{params}")) as u32;
        let beyond = json!({"model": model, "prompt": "a", field: most + 1});
        let refused = reply_with_key(&up, "POST", route, &beyond);
        assert_eq!(refused["error"]["param"], field, "{refused}");
        let said = refusal(model, option, &(most + 1).to_string());
        assert!(said.contains(&format!(" to {most}")), "{field}: {said}");
        let limits = &get(&up, &format!("/v1/models/{model}"))["limits"];
        if !limits[field].is_null() {
            assert_eq!(limits[field], most, "{model} {limits}");
        }
    }
    let limits = &get(&up, "/v1/models/demo-video")["limits"];
    let frames = limits["frames"].as_u64().unwrap();
    let said = refusal("demo-video", "--seconds", "60");
    assert!(said.contains(&format!(" to {frames}")), "{frames}: {said}");
    let long = json!({"model": "demo-video", "prompt": "a", "seconds": 10, "fps": 30});
    let refused = reply_with_key(&up, "POST", "/v1/videos/generations", &long);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(&format!("at most {frames} frames")),
        "{message}"
    );
    let pixels = limits["pixels"].as_u64().unwrap();
    let said = refusal("demo-video", "--size", "2048x2064");
    assert!(said.contains(&format!("at most {pixels}")), "{said}");
    let large = json!({"model": "demo-video", "prompt": "a", "size": "2048x2064"});
    let refused = reply_with_key(&up, "POST", "/v1/videos/generations", &large);
    assert_eq!(refused["error"]["param"], "size", "{refused}");

    // Characters of a text to speak: more than a model of OpenAI's takes.
    let limits = &get(&up, "/v1/models/demo-speech")["limits"];
    let characters = limits["characters"].as_u64().unwrap() as usize;
    assert!(characters > 4096, "{limits}");
    let params = get(&up, "/v1/models/demo-speech/params");
    assert_eq!(params["params"]["input"]["maxLength"], characters);
    let text = "a ".repeat(characters / 2 + 1);
    let refused = spoken(&up, &text, 1.0);
    assert_eq!(refused["error"]["param"], "input", "{refused}");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains(&format!("at most {characters} characters")),
        "{message}"
    );
    let said = worker(&["generate", "demo-speech", &text, "-o", "a.wav"])
        .inside(folder.path())
        .run();
    assert_ne!(said.code, 0);
    let said = said.stderr;
    assert!(said.contains(&format!(" to {characters}")), "{said}");
    let slow = spoken(&up, &text[..characters], 0.5);
    let message = slow["error"]["message"].as_str().unwrap();
    assert!(message.contains("at speed 0.5"), "{message}");

    // The model's own size.
    let own = json!({
        "model": "demo-video", "prompt": "a red circle moves up on white", "size": "64x64", "seconds": 1, "steps": 1,
    });
    let made = reply_with_key(&up, "POST", "/v1/videos/generations", &own);
    assert!(made["data"][0]["url"].is_string(), "{made}");
}
