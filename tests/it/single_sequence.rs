//! Models whose networks are those of candle-transformers, which run one request at a time.

use std::fs;
use std::path::Path;

use muster_testing::eventually_blocking;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::operator::{Running, serve};

/// A small OLMo with the tokenizer of another small model, in a folder named `single`.
fn folder() -> TempDir {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden");
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("single");
    fs::create_dir(&model).unwrap();
    for (from, file) in [
        ("single-sequence/olmo", "config.json"),
        ("single-sequence/olmo", "model.safetensors"),
        ("qwen3-vl", "tokenizer.json"),
    ] {
        fs::copy(root.join(from).join(file), model.join(file)).unwrap();
    }
    folder
}

#[test]
fn a_model_of_one_request_at_a_time_is_served_and_marked() {
    let (serve, folder) = (serve(""), folder());
    let (address, key) = (&serve.address, &serve.key);
    let model = folder.path().join("single");
    let configuration = format!(
        "[models]\nserve = [{model:?}]\n[[coordinator]]\nurl = \"ws://{address}\"\nkey = \"{key}\"\n"
    );
    let mut worker = Running::start(&["--offline"], &configuration);
    worker.wait_for("SIGHUP reloads the configuration");
    let mut listed = Value::Null;
    eventually_blocking("the model to be offered", || {
        let answer = serve.get("/v1/models/single");
        match answer.starts_with("HTTP/1.1 200 ") {
            true => {
                let body = answer.split_once("\r\n\r\n").unwrap().1;
                listed = serde_json::from_str(body).unwrap();
                Ok(())
            }
            false => Err(answer),
        }
    });
    assert_eq!(listed["network"], "candle-transformers", "{listed}");
    assert_eq!(listed["max_context_length"], 1024, "{listed}");
    let body = json!({"model": "single", "prompt": "a", "max_tokens": 4, "temperature": 0});
    let answer = serve.post("/v1/completions", &body.to_string());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}
