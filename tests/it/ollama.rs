//! Ollama's API besides texts: keys, ignored fields, inputs that are too long, and missing features.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use muster::coordinator::values::{Roles, Scopes};
use muster::protocol::job::{Body as JobBody, FailureKind, TextInput};
use serde_json::{Value, json};

use super::encode::{refusal, reply, service, service_with_encoders};
use crate::support::app::{Answer, App, request};
use crate::support::boss::MODEL;
use crate::support::puppet::{Puppet, failed};

async fn post(app: &App, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let body = Body::from(body.to_string());
    app.send(request(Method::POST, path, headers, body)).await
}

fn hello() -> Value {
    json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "stream": false})
}

#[tokio::test]
async fn the_word_ollama_is_a_key_for_programs_on_the_machine_of_its_user_alone() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let word = ("authorization", "Bearer ollama");
    let paths = ["/v1/chat/completions", "/api/chat"];
    for path in paths {
        let refused = post(&app, path, &[word], &hello()).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    app.accounts.serve_own_user(&app.key);
    for path in paths {
        let body = hello();
        let host = ("host", "localhost:7010");
        let asked = [word, host];
        let asking = post(&app, path, &asked, &body);
        let (answer, ()) = tokio::join!(asking, rig.answer(&["hi"]));
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        for guest in [
            ("host", "other.example"),
            ("origin", "https://other.example"),
        ] {
            let refused = post(&app, path, &[word, guest], &hello()).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path} {guest:?}");
        }
        let forwarded = ("x-forwarded-for", "10.0.0.7");
        let refused = post(&app, path, &[word, forwarded], &hello()).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    // No account is managed with it, and /v1 takes no request without a key.
    let keys = post(&app, "/v1/account/keys", &[word], &json!({})).await;
    assert_eq!(keys.status, StatusCode::UNAUTHORIZED);
    let keyless = post(&app, "/v1/chat/completions", &[], &hello()).await;
    assert_eq!(keyless.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_chat_that_is_too_long_is_sent_again_without_its_oldest_messages() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str())];
    let said = |text: &str| json!({"role": "user", "content": text});
    let mut body = hello();
    body["messages"] = json!([said("a"), said("b"), said("c")]);
    let too_long = async || {
        let offer = rig.offer().await;
        let end = failed(FailureKind::ContextLengthExceeded, "too long");
        rig.say(&offer, [end]).await;
        let JobBody::Text(text) = &offer.job.body else {
            panic!("no text: {:?}", offer.job.body);
        };
        match &text.input {
            TextInput::Chat(chat) => chat.messages.len(),
            other => panic!("no chat: {other:?}"),
        }
    };
    let (answer, counts) = tokio::join!(post(&app, "/api/chat", &headers, &body), async {
        let counts = [too_long().await, too_long().await];
        rig.answer(&["hi"]).await;
        counts
    });
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(counts, [3, 2]);
    body["truncate"] = false.into();
    let (answer, _) = tokio::join!(post(&app, "/api/chat", &headers, &body), too_long());
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.json().await["error"].is_string());
}

#[tokio::test]
async fn what_only_ollama_can_do_is_said_to_be_missing_in_its_words() {
    let app = App::start().await;
    let admin = app.account_with(Roles::ADMIN, Scopes::ALL).await;
    let bearer = format!("Bearer {admin}");
    let key = [("authorization", bearer.as_str())];
    for (method, path) in [(Method::POST, "/api/pull"), (Method::DELETE, "/api/delete")] {
        let body = Body::from(json!({"model": "a"}).to_string());
        let answer = app.send(request(method, path, &key, body)).await;
        assert_eq!(answer.status, StatusCode::NOT_IMPLEMENTED, "{path}");
        assert!(answer.json().await["error"].is_string(), "{path}");
    }
    let unknown = post(&app, "/api/push", &key, &json!({})).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    assert!(unknown.json().await["error"].is_string());
}

#[tokio::test]
async fn a_copy_is_a_second_name_of_a_model_until_it_is_deleted() {
    let app = App::start().await;
    let rig = Puppet::connect(&app.board).await;
    let admin = app.account_with(Roles::ADMIN, Scopes::ALL).await;
    let user = format!("Bearer {}", app.key_for(Scopes::INFERENCE_SUBMIT).await);
    let bearer = format!("Bearer {admin}");
    let key = [("authorization", bearer.as_str())];
    let body =
        |source: &str, destination: &str| json!({"source": source, "destination": destination});
    let copied = post(&app, "/api/copy", &key, &body("tiny:latest", "mine:latest")).await;
    assert_eq!(copied.status, StatusCode::OK);
    for (sent, status, word) in [
        (body("tiny", "tiny"), StatusCode::BAD_REQUEST, "tiny"),
        (body("nothing", "other"), StatusCode::NOT_FOUND, "nothing"),
        (
            body("tiny", "my name"),
            StatusCode::BAD_REQUEST,
            "destination",
        ),
        (
            json!({"source": "tiny"}),
            StatusCode::BAD_REQUEST,
            "destination",
        ),
    ] {
        let refused = post(&app, "/api/copy", &key, &sent).await;
        assert_eq!(refused.status, status, "{sent}");
        let said = refused.json().await;
        assert!(said["error"].as_str().unwrap().contains(word), "{said}");
    }
    let user = [("authorization", user.as_str())];
    let refused = post(&app, "/api/copy", &user, &body("tiny", "theirs")).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    drop(rig);

    let app = app.anew().await;
    let rig = Puppet::connect(&app.board).await;
    let mut hello = hello();
    hello["model"] = "mine".into();
    for path in ["/api/chat", "/v1/chat/completions"] {
        let asking = post(&app, path, &key, &hello);
        let (answer, ()) = tokio::join!(asking, rig.answer(&["hi"]));
        assert_eq!(answer.status, StatusCode::OK, "{path}");
    }
    let names = async || {
        let tags = app.get("/api/tags").await.json().await;
        let models = tags["models"].as_array().unwrap().iter();
        let names: Vec<_> = models
            .map(|model| model["name"].as_str().unwrap().to_owned())
            .collect();
        names
    };
    assert_eq!(names().await, ["tiny", "mine"]);
    let shown = app.get("/v1/models/mine").await.json().await;
    assert_eq!(shown["id"], "tiny");
    assert_eq!(shown["aliases"], json!(["mine"]));
    let delete = async |name: &str| {
        let body = Body::from(json!({"model": name}).to_string());
        app.send(request(Method::DELETE, "/api/delete", &key, body))
            .await
            .status
    };
    assert_eq!(delete("tiny").await, StatusCode::BAD_REQUEST);
    assert_eq!(delete("mine").await, StatusCode::OK);
    assert_eq!(names().await, ["tiny"]);
    assert_eq!(delete("tiny").await, StatusCode::NOT_IMPLEMENTED);
}

#[tokio::test]
async fn a_prompt_that_is_too_long_loses_its_beginning() {
    let (app, _worker) = service().await;
    let bearer = format!("Bearer {}", app.key);
    let key = [("authorization", bearer.as_str())];
    let shown = post(&app, "/api/show", &key, &json!({"model": MODEL})).await;
    let shown = shown.json().await;
    let context = &shown["model_info"]["llama.context_length"];
    let context = context.as_u64().unwrap();
    let words = usize::try_from(context).unwrap();
    let mut body = json!({
        "model": MODEL, "prompt": "sun ".repeat(words), "stream": false, "options": {"num_predict": 2},
    });
    let answer = reply(&app, "/api/generate", &body).await;
    let read = answer["prompt_eval_count"].as_u64().unwrap();
    assert!(
        (context / 2..context).contains(&read),
        "{read} of {context}"
    );
    body["truncate"] = false.into();
    let refused = post(&app, "/api/generate", &key, &body).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

/// `ollama list` shows the first twelve letters of each digest.
#[tokio::test]
async fn models_are_listed_with_the_facts_of_their_files() {
    let (app, _worker) = service_with_encoders().await;
    let tags = app.get("/api/tags").await.json().await;
    let models = tags["models"].as_array().unwrap();
    let digests: BTreeSet<&str> = models
        .iter()
        .map(|model| model["digest"].as_str().unwrap())
        .collect();
    assert_eq!(digests.len(), models.len());
    assert!(digests.iter().all(|digest| digest.len() == 64));
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden/bert");
    let bytes = fs::metadata(files.join("model.safetensors")).unwrap().len();
    let bert = models.iter().find(|model| model["name"] == "bert").unwrap();
    assert_eq!(bert["size"], bytes);
    let details = &bert["details"];
    assert_eq!(details["format"], "safetensors");
    assert_eq!(details["family"], "bert");
    assert_eq!(details["quantization_level"], "F32");
    assert!(details["parameter_size"].as_str().unwrap().ends_with('K'));
}

#[tokio::test]
async fn texts_that_are_too_long_are_cut_before_they_become_vectors() {
    let (app, _worker) = service_with_encoders().await;
    let models = app.get("/v1/models?type=all").await.json().await;
    let mut models = models["data"].as_array().unwrap().iter();
    let model = models.find(|model| model["id"] == "bert").unwrap();
    let words = model["max_context_length"].as_u64().unwrap() + 100;
    let long = "sun ".repeat(usize::try_from(words).unwrap());
    let mut body = json!({"model": model["id"], "input": [long, "sun"]});
    let cut = reply(&app, "/api/embed", &body).await;
    assert_eq!(cut["embeddings"].as_array().unwrap().len(), 2);
    let old = json!({"model": model["id"], "prompt": "sun"});
    let old = reply(&app, "/api/embeddings", &old).await;
    assert_eq!(old["embedding"], cut["embeddings"][1]);
    body["truncate"] = false.into();
    let (status, error) = refusal(&app, "/api/embed", &body).await;
    assert_eq!(status, 400, "{error}");
}
