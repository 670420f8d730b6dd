//! Jobs that read and do not write, from the route to a worker of ours and back.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::daemon::{Served, Worker};
use muster::link::Dial;
use muster::runtime::{DeviceChoice, EngineLimits, ModelInfo, ModelSource, Runtime};
use serde_json::{Value, json};
use tokio::io::duplex;

use crate::support::app::{Answer, App, request};
use crate::support::boss::{MODEL, engine, post};

/// A coordinator and a worker of ours with the smallest model.
pub async fn service() -> (App, Worker) {
    let (runtime, info) = engine().await;
    served(runtime, vec![info]).await
}

/// The same with the seeded encoders, beside it.
pub async fn service_with_encoders() -> (App, Worker) {
    let (runtime, info) = engine().await;
    let mut models = vec![info];
    let decoders = ["qwen3-embedding", "embedding-gemma", "qwen3-reranker"];
    let encoders = ["bert", "roberta", "bert-score", "roberta-score"];
    for name in encoders.into_iter().chain(decoders) {
        let source = ModelSource::new(golden(name));
        models.push(runtime.load(name, source, |_, _| ()).await.unwrap());
    }
    served(runtime, models).await
}

/// The same with the seeded model that reads images, beside it.
pub async fn service_with_images() -> (App, Worker) {
    let (runtime, info) = engine().await;
    let source = ModelSource::new(golden("qwen3-vl"));
    let seeing = runtime.load("seeing", source, |_, _| ()).await.unwrap();
    served(runtime, vec![info, seeing]).await
}

pub async fn served(runtime: Runtime, models: Vec<Arc<ModelInfo>>) -> (App, Worker) {
    let app = App::start().await;
    let mut post = post("rig", dial(&app));
    post.key.clone_from(&app.key);
    let served = Served {
        models,
        slots: 8,
        ..Served::default()
    };
    let worker = Worker::start(runtime, served, vec![post], &app.tasks);
    assert!(worker.connected().await);
    (app, worker)
}

fn golden(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/golden");
    Path::new(folder).join(name)
}

/// The bytes and the shape of a tensor of the reference, in the format of safetensors.
fn tensor(name: &str, tensor: &str) -> (Vec<u8>, Vec<usize>) {
    let bytes = fs::read(golden(name).join("golden.tensors")).unwrap();
    let (length, rest) = bytes.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header: Value = serde_json::from_slice(header).unwrap();
    let list =
        |key: &str| -> Vec<usize> { serde_json::from_value(header[tensor][key].clone()).unwrap() };
    let range = list("data_offsets");
    (data[range[0]..range[1]].to_vec(), list("shape"))
}

/// The numbers of a tensor, row by row.
fn numbers(name: &str, wanted: &str) -> Vec<Vec<f32>> {
    let (data, shape) = tensor(name, wanted);
    let numbers = data.as_chunks().0.iter();
    let numbers: Vec<f32> = numbers.map(|four| f32::from_le_bytes(*four)).collect();
    numbers
        .chunks_exact(shape[1])
        .map(<[f32]>::to_vec)
        .collect()
}

fn vectors(reply: &Value) -> Vec<Vec<f32>> {
    let data = reply["data"].as_array().unwrap().iter();
    data.map(|one| serde_json::from_value(one["embedding"].clone()).unwrap())
        .collect()
}

#[track_caller]
fn alike(found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len());
    let gaps = found
        .iter()
        .zip(wanted)
        .map(|(one, other)| (one - other).abs());
    let gap = gaps.fold(0.0, f32::max);
    assert!(gap < 1e-4, "{gap}: {found:?} is not {wanted:?}");
}

/// The texts of the reference.
const TEXTS: [&str; 2] = ["The cat sat on the mat", "two dogs"];

fn dial(app: &App) -> Dial {
    let (workers, tasks) = (app.workers.clone(), app.tasks.clone());
    Dial::Pipe(Arc::new(move || {
        let (near, far) = duplex(1 << 16);
        let workers = workers.clone();
        tasks.start(async move { workers.serve(far, Vec::new()).await });
        near
    }))
}

pub async fn post_json(app: &App, path: &str, body: &Value) -> Answer {
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let body = Body::from(body.to_string());
    app.send(request(Method::POST, path, &headers, body)).await
}

pub async fn reply(app: &App, path: &str, body: &Value) -> Value {
    let answer = post_json(app, path, body).await;
    let status = answer.status;
    let reply = answer.json().await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    reply
}

pub async fn refusal(app: &App, path: &str, body: &Value) -> (u16, Value) {
    let answer = post_json(app, path, body).await;
    let status = answer.status.as_u16();
    (status, answer.json().await["error"].take())
}

#[tokio::test]
async fn a_chat_has_as_many_tokens_as_its_prompt_when_it_is_answered() {
    let (app, _worker) = service().await;
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Name two colours."}]},
    ]);
    let body = json!({"model": MODEL, "messages": messages});
    let tokens = reply(&app, "/tokenize", &body).await;
    let count = tokens["tokens"].as_array().unwrap().len();
    assert_eq!(tokens["count"], count);
    assert_eq!(tokens["max_model_len"], 2048);
    let chat = json!({"model": MODEL, "messages": messages, "max_tokens": 1});
    let answered = app.chat(&chat).await.json().await;
    assert_eq!(answered["usage"]["prompt_tokens"], count, "{answered}");

    let without = json!({"model": MODEL, "messages": messages, "add_generation_prompt": false});
    let without = reply(&app, "/v1/tokenize", &without).await;
    assert!(without["count"].as_u64().unwrap() < count as u64);
}

#[tokio::test]
async fn tokens_become_the_text_they_came_from() {
    let (app, _worker) = service().await;
    let text = "we say: 3 × €5, naïve 🙂";
    let body = json!({"model": MODEL, "prompt": text, "add_special_tokens": false, "return_token_strs": true});
    let tokens = reply(&app, "/tokenize", &body).await;
    let names = tokens["token_strs"].as_array().unwrap();
    assert_eq!(tokens["count"], names.len());
    let body = json!({"model": MODEL, "tokens": tokens["tokens"]});
    assert_eq!(reply(&app, "/detokenize", &body).await["prompt"], text);

    let with_bos = json!({"model": MODEL, "prompt": text, "return_token_strs": true});
    let with_bos = reply(&app, "/tokenize", &with_bos).await;
    let bos = with_bos["token_strs"][0].as_str().unwrap();
    assert_eq!(
        with_bos["count"].as_u64(),
        tokens["count"].as_u64().map(|count| count + 1)
    );
    let body = json!({"model": MODEL, "tokens": with_bos["tokens"]});
    let whole = reply(&app, "/v1/detokenize", &body).await;
    assert_eq!(whole["prompt"], format!("{bos}{text}"));
}

#[tokio::test]
async fn tokens_that_the_model_does_not_have_are_refused() {
    let (app, _worker) = service().await;
    let body = json!({"model": MODEL, "tokens": [1, 600_000]});
    let (status, error) = refusal(&app, "/detokenize", &body).await;
    assert_eq!(status, 400, "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("600000"), "{message}");
}

#[tokio::test]
async fn a_model_that_is_not_there_is_named() {
    let (app, _worker) = service().await;
    let unknown = json!({"model": "other", "prompt": "hi"});
    let (status, error) = refusal(&app, "/tokenize", &unknown).await;
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")));
    assert!(error["message"].as_str().unwrap().contains(MODEL));
    let auto = json!({"model": "auto", "prompt": "hi"});
    let (status, error) = refusal(&app, "/tokenize", &auto).await;
    assert_eq!((status, &error["param"]), (400, &json!("model")));
}

#[tokio::test]
async fn workers_of_the_public_network_get_no_such_jobs() {
    let app = App::start().await;
    let mut rig = app.dial().await;
    let registration = json!({"apikey": app.key, "name": "public", "models": ["tiny"]});
    rig.send(registration).await;
    assert_eq!(rig.next().await["type"], "ready");
    let body = json!({"model": "tiny", "prompt": "hi"});
    let (status, error) = refusal(&app, "/tokenize", &body).await;
    assert_eq!((status, &error["param"]), (400, &json!("model")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("tokenization"), "{message}");
}

#[tokio::test]
async fn embeddings_are_those_of_the_reference() {
    let (app, _worker) = service_with_encoders().await;
    for (name, count, width) in [
        ("bert", 13, 32),
        ("roberta", 13, 32),
        ("qwen3-embedding", 11, 32),
        ("embedding-gemma", 11, 24),
    ] {
        let wanted = numbers(name, "vectors");
        let body = json!({"model": name, "input": TEXTS});
        let found = reply(&app, "/v1/embeddings", &body).await;
        assert_eq!(
            (&found["object"], &found["model"]),
            (&json!("list"), &json!(name))
        );
        assert_eq!(
            found["usage"],
            json!({"prompt_tokens": count, "total_tokens": count})
        );
        for (found, wanted) in vectors(&found).iter().zip(&wanted) {
            alike(found, wanted);
        }
        let one = json!({"model": name, "input": TEXTS[1], "encoding_format": "base64"});
        let one = reply(&app, "/v1/embeddings", &one).await;
        let text = one["data"][0]["embedding"].as_str().unwrap();
        assert_eq!(text.len(), (width * 4_usize).div_ceil(3) * 4);
    }
}

#[tokio::test]
async fn token_ids_are_embedded_as_they_are() {
    let (app, _worker) = service_with_encoders().await;
    let ids = json!({"model": "bert", "prompt": TEXTS[0]});
    let ids = reply(&app, "/tokenize", &ids).await["tokens"].take();
    for input in [ids.clone(), json!([ids])] {
        let body = json!({"model": "bert", "input": input});
        let found = reply(&app, "/v1/embeddings", &body).await;
        alike(&vectors(&found)[0], &numbers("bert", "vectors")[0]);
    }
    let wrong = json!({"model": "bert", "input": [4, 93_000]});
    let (status, error) = refusal(&app, "/v1/embeddings", &wrong).await;
    assert_eq!(status, 400, "{error}");
}

#[tokio::test]
async fn many_inputs_come_back_in_their_order() {
    let (app, _worker) = service_with_encoders().await;
    let inputs: Vec<&str> = (0..150).map(|index| TEXTS[index % 2]).collect();
    let body = json!({"model": "bert", "input": inputs});
    let found = reply(&app, "/v1/embeddings", &body).await;
    let (found, wanted) = (vectors(&found), numbers("bert", "vectors"));
    assert_eq!(found.len(), 150);
    for (index, vector) in found.iter().enumerate() {
        alike(vector, &wanted[index % 2]);
    }
    let long = "cat ".repeat(60);
    let mut inputs = vec!["cat"; 100];
    inputs[99] = &long;
    let body = json!({"model": "bert", "input": inputs});
    let (status, error) = refusal(&app, "/v1/embeddings", &body).await;
    assert_eq!(
        (status, &error["code"]),
        (400, &json!("context_length_exceeded"))
    );
    let wanted = "input[99] has 62 tokens, but bert reads at most 48: shorten it by 14";
    assert_eq!(
        (&error["message"], &error["param"]),
        (&json!(wanted), &json!("input"))
    );
}

#[tokio::test]
async fn documents_are_ranked_by_the_scores_of_the_reference() {
    let (app, _worker) = service_with_encoders().await;
    let pairs = [
        ("who sat on the mat?", "The cat sat."),
        ("name", "red and blue"),
    ];
    for name in ["bert-score", "roberta-score"] {
        let logits = numbers(name, "logits");
        for (index, (query, document)) in pairs.into_iter().enumerate() {
            let documents = json!(["blue", {"text": document}, "dog"]);
            let body = json!({"model": name, "query": query, "documents": documents, "return_documents": true});
            let found = reply(&app, "/v1/rerank", &body).await;
            let results = found["results"].as_array().unwrap();
            let scores: Vec<f64> = results
                .iter()
                .map(|result| result["relevance_score"].as_f64().unwrap())
                .collect();
            assert!(scores.is_sorted_by(|one, next| one >= next), "{found}");
            let result = results.iter().find(|result| result["index"] == 1).unwrap();
            assert_eq!(result["document"]["text"], document);
            let wanted = 1.0 / (1.0 + (-logits[index][0]).exp());
            alike(
                &[result["relevance_score"].as_f64().unwrap() as f32],
                &[wanted],
            );
            assert!(found["usage"]["total_tokens"].as_u64().unwrap() > 0);

            let body = json!({"model": name, "query": query, "documents": documents, "top_n": 1});
            let best = reply(&app, "/rerank", &body).await;
            assert_eq!(best["results"].as_array().unwrap().len(), 1);
            assert_eq!(best["results"][0]["index"], results[0]["index"]);
        }
    }
}

#[tokio::test]
async fn documents_are_ranked_by_what_a_decoder_would_say_next() {
    let (app, _worker) = service_with_encoders().await;
    let documents = ["The cat sat.", "red and blue", "two dogs sat on the mat"];
    let body = json!({
        "model": "qwen3-reranker", "query": "who sat on the mat?", "documents": documents,
    });
    let found = reply(&app, "/v1/rerank", &body).await;
    let scores = numbers("qwen3-reranker", "scores");
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 3);
    for result in results {
        let score = scores[result["index"].as_u64().unwrap() as usize][0];
        let found = result["relevance_score"].as_f64().unwrap() as f32;
        alike(&[found], &[1.0 / (1.0 + (-score).exp())]);
    }
}

#[tokio::test]
async fn a_model_that_cannot_do_it_is_refused_with_those_that_can() {
    let (app, _worker) = service_with_encoders().await;
    let check = async |path: &str, body: Value, part: &str| {
        let (status, error) = refusal(&app, path, &body).await;
        assert_eq!((status, &error["param"]), (400, &json!("model")), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(part), "{message}");
    };
    let embed = |model: &str| json!({"model": model, "input": "cat"});
    let able = "supports embeddings; models that do: bert, ";
    check("/v1/embeddings", embed(MODEL), able).await;
    check("/v1/embeddings", embed("bert-score"), able).await;
    let rerank = json!({"model": "bert", "query": "cat", "documents": ["dog"]});
    let able = "supports reranking; models that do: bert-score, ";
    check("/v1/rerank", rerank, able).await;

    let chat = json!({"model": "bert", "messages": [{"role": "user", "content": "cat"}]});
    let answer = app.chat(&chat).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let error = answer.json().await["error"].take();
    let message = error["message"].as_str().unwrap();
    let route = "send embedding requests for it to POST /v1/embeddings";
    assert!(message.contains(route), "{message}");
    let auto =
        json!({"model": "auto", "messages": [{"role": "user", "content": "cat"}], "max_tokens": 1});
    let answered = app.chat(&auto).await.json().await;
    assert_eq!(answered["model"], MODEL, "{answered}");

    let body = json!({"model": "bert", "input": "cat", "dimensions": 8});
    let (status, error) = refusal(&app, "/v1/embeddings", &body).await;
    assert_eq!((status, &error["code"]), (400, &json!("unsupported_value")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("have 32 dimensions"), "{message}");
}

#[tokio::test]
async fn a_decoder_whose_files_say_so_embeds_by_its_last_state() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(golden("qwen3").join(name), folder.join(name)).unwrap();
    }
    fs::copy(
        golden("bert").join("tokenizer.json"),
        folder.join("tokenizer.json"),
    )
    .unwrap();
    fs::copy(
        golden("bert").join("modules.json"),
        folder.join("modules.json"),
    )
    .unwrap();
    fs::create_dir(folder.join("1_Pooling")).unwrap();
    fs::write(
        folder.join("1_Pooling/config.json"),
        r#"{"pooling_mode_lasttoken": true}"#,
    )
    .unwrap();
    let runtime = Runtime::start(DeviceChoice::Cpu, EngineLimits::default()).unwrap();
    let source = ModelSource::new(folder);
    let info = runtime
        .load("qwen3-embedding", source, |_, _| ())
        .await
        .unwrap();
    let (app, _worker) = served(runtime, vec![info]).await;

    let (prompt, _) = tensor("qwen3", "prompt");
    let ids = prompt.as_chunks().0.iter();
    let ids: Vec<i64> = ids.map(|eight| i64::from_le_bytes(*eight)).collect();
    let mut wanted = numbers("qwen3", "hidden.2").pop().unwrap();
    let length = wanted
        .iter()
        .map(|number| number * number)
        .sum::<f32>()
        .sqrt();
    wanted.iter_mut().for_each(|number| *number /= length);

    let body = json!({"model": "qwen3-embedding", "input": ids});
    let found = reply(&app, "/v1/embeddings", &body).await;
    alike(&vectors(&found)[0], &wanted);

    let body = json!({"model": "qwen3-embedding", "input": ids, "dimensions": 16});
    let short = reply(&app, "/v1/embeddings", &body).await;
    let length = wanted[..16]
        .iter()
        .map(|number| number * number)
        .sum::<f32>()
        .sqrt();
    let cut: Vec<f32> = wanted[..16].iter().map(|number| number / length).collect();
    alike(&vectors(&short)[0], &cut);
}
