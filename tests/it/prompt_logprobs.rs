//! Log probabilities of prompts, from `/v1/completions` to a worker of ours and back.

use muster::protocol::job::Capabilities;
use serde_json::{Value, json};

use crate::encode::{post_json, refusal, reply, service};
use crate::support::app::App;
use crate::support::boss::MODEL;
use crate::support::puppet::Puppet;

const PATH: &str = "/v1/completions";
const TEXT: &str = "Été à Rome: 😀 naïve façade — 日本語のテキスト!";

fn golden() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/golden/prompt-logprobs.json"
    );
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn numbers(list: &Value) -> Vec<Option<f64>> {
    list.as_array().unwrap().iter().map(Value::as_f64).collect()
}

#[track_caller]
fn near(found: &[Option<f64>], wanted: &[Option<f64>]) {
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert_eq!(found.is_some(), wanted.is_some());
        let gap = found.unwrap_or(0.0) - wanted.unwrap_or(0.0);
        assert!(gap.abs() < 2e-4, "{found:?} {wanted:?}");
    }
}

#[tokio::test]
async fn an_echo_has_the_log_probabilities_of_its_prompt() {
    let (app, _worker) = service().await;
    let golden = golden();
    let wanted = &golden[1];
    assert_eq!(wanted["prompt"], TEXT);
    let body = json!({
        "model": MODEL, "prompt": TEXT, "echo": true, "logprobs": 3, "max_tokens": 0,
    });
    let scored = reply(&app, PATH, &body).await;
    let choice = &scored["choices"][0];
    assert_eq!(
        (&choice["text"], &choice["finish_reason"]),
        (&json!(TEXT), &json!("length"))
    );
    assert_eq!(scored["usage"]["completion_tokens"], 0);
    let logprobs = &choice["logprobs"];
    near(
        &numbers(&logprobs["token_logprobs"]),
        &numbers(&wanted["logprobs"]),
    );
    // The three best, and the token itself where it is none of them.
    for (at, top) in logprobs["top_logprobs"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let count = top.as_object().map_or(0, serde_json::Map::len);
        assert!(
            if at == 0 {
                top.is_null()
            } else {
                (3..=4).contains(&count)
            },
            "{top}"
        );
    }
    // Each token is where the text says, and a character's parts are where the character is.
    let characters: Vec<char> = TEXT.chars().collect();
    let offsets: Vec<usize> = serde_json::from_value(logprobs["text_offset"].clone()).unwrap();
    for (token, &offset) in logprobs["tokens"].as_array().unwrap().iter().zip(&offsets) {
        let token = token.as_str().unwrap();
        let rest: String = characters[offset..].iter().collect();
        assert!(
            token.contains("\\x") || rest.starts_with(token),
            "{token} {rest}"
        );
    }
    assert!(offsets.is_sorted() && offsets.last() == Some(&(characters.len() - 1)));

    let tokens = json!({
        "model": MODEL, "prompt": [wanted["ids"], golden[0]["ids"]], "echo": true, "logprobs": 1,
        "max_tokens": 1, "temperature": 0,
    });
    let both = reply(&app, PATH, &tokens).await;
    for (at, wanted) in [wanted, &golden[0]].into_iter().enumerate() {
        let choice = &both["choices"][at];
        let mut found = numbers(&choice["logprobs"]["token_logprobs"]);
        assert!(
            found.pop().unwrap().is_some(),
            "that of the token that was written"
        );
        near(&found, &numbers(&wanted["logprobs"]));
        let text = choice["text"].as_str().unwrap();
        assert!(
            text.starts_with(wanted["prompt"].as_str().unwrap()),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_stream_tells_what_the_reply_tells() {
    let (app, _worker) = service().await;
    let mut body = json!({
        "model": MODEL, "prompt": TEXT, "echo": true, "logprobs": 2, "max_tokens": 6,
        "temperature": 0, "ignore_eos": true,
    });
    let whole = reply(&app, PATH, &body).await;
    body["stream"] = true.into();
    let stream = post_json(&app, PATH, &body).await.text().await;
    let chunks = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"));
    let chunks: Vec<Value> = chunks
        .map(|chunk| serde_json::from_str(&format!("{{{chunk}")).unwrap())
        .collect();
    let choices = chunks
        .iter()
        .flat_map(|chunk| chunk["choices"].as_array().unwrap());
    let mut text = String::new();
    let mut joined =
        json!({"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []});
    for choice in choices {
        text.push_str(choice["text"].as_str().unwrap());
        for (name, list) in joined.as_object_mut().unwrap() {
            let more = choice["logprobs"][name]
                .as_array()
                .cloned()
                .unwrap_or_default();
            list.as_array_mut().unwrap().extend(more);
        }
    }
    assert_eq!(text, whole["choices"][0]["text"].as_str().unwrap());
    assert_eq!(joined, whole["choices"][0]["logprobs"]);
    let written = whole["usage"]["completion_tokens"].as_u64().unwrap();
    let prompt = whole["usage"]["prompt_tokens"].as_u64().unwrap();
    let listed = joined["tokens"].as_array().unwrap().len() as u64;
    // A token that is no text is not listed.
    assert_eq!(written, 6);
    assert!((prompt + 1..=prompt + 6).contains(&listed), "{listed}");
}

#[tokio::test]
async fn workers_that_cannot_tell_them_are_named() {
    let app = App::start().await;
    let _old = Puppet::serving(&app.board, "tiny", Capabilities::LOGPROBS).await;
    let body = json!({"model": "tiny", "prompt": "a", "echo": true, "logprobs": 1});
    let (status, error) = refusal(&app, PATH, &body).await;
    assert_eq!((status, &error["param"]), (400, &json!("echo")), "{error}");
    let plain = json!({"model": "tiny", "prompt": "a", "max_tokens": 0});
    let (status, error) = refusal(&app, PATH, &plain).await;
    assert_eq!((status, &error["param"]), (400, &json!("max_tokens")));
}
