//! Times of spoken words, by the small model that speaks.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use muster::media::sound;
use serde_json::{Value, json};

use crate::up::{Up, reply_with_key, text_with_key, up};

const ROUTE: &str = "/v1/audio/speech";

fn body(more: Value) -> Value {
    let mut body = json!({
        "model": "demo-speech", "input": "Hello big world. Good morning, 2 happy sheep!", "return_timestamps": true,
        "response_format": "wav", "seed": 1,
    });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

const WORDS: [&str; 8] = [
    "Hello", "big", "world", "Good", "morning", "two", "happy", "sheep",
];

/// Words in their order, each after the one before, within the sound.
fn check(timestamps: &[Value], seconds: f64) {
    let words: Vec<&str> = timestamps
        .iter()
        .map(|word| word["word"].as_str().unwrap())
        .collect();
    assert_eq!(words, WORDS);
    let mut before = 0.0;
    for word in timestamps {
        let time = |name: &str| word[name].as_f64().unwrap();
        let (start, end) = (time("start_time"), time("end_time"));
        assert!(before <= start && start + 0.05 < end, "{timestamps:?}");
        before = end;
    }
    assert!(before <= seconds, "{before} of {seconds} s");
    assert!(before > 0.7 * seconds, "{before} of {seconds} s");
}

fn whole(up: &Up) -> (Vec<Value>, f64) {
    let reply = reply_with_key(up, "POST", ROUTE, &body(json!({})));
    assert_eq!(reply["audio_format"], "audio/wav", "{reply}");
    let file = STANDARD.decode(reply["audio"].as_str().unwrap()).unwrap();
    let seconds = sound::listen(&file, 24_000, 60.0).unwrap().seconds();
    (reply["timestamps"].as_array().unwrap().clone(), seconds)
}

#[test]
fn words_of_a_speech_have_times_in_json_and_in_events() {
    let folder = tempfile::tempdir().unwrap();
    let up = up(folder.path());
    let (words, seconds) = whole(&up);
    check(&words, seconds);

    let events = text_with_key(&up, "POST", ROUTE, &body(json!({"stream_format": "sse"})));
    let events = events
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    let streamed = events
        .iter()
        .filter_map(|event| event["timestamps"].as_array());
    let streamed: Vec<Value> = streamed.flatten().cloned().collect();
    assert_eq!(streamed, words);
    // The words of a sentence come with the beginning of its sound.
    assert!(events[0]["timestamps"].is_array(), "{}", events[0]);

    let slow = reply_with_key(&up, "POST", ROUTE, &body(json!({"speed": 0.5})));
    let end = slow["timestamps"][7]["end_time"].as_f64().unwrap();
    assert!(end > 1.6 * words[7]["end_time"].as_f64().unwrap(), "{end}");
}
