//! Ollama's API as JSON Schema, for the OpenAPI document.

use serde_json::{Map, Value, json};

use crate::openai::field;

use super::embed;
use super::fields::Door;
use super::options::OPTIONS;

/// Schemas by the name they have under `#/components/schemas`.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("OllamaChatRequest", request(Door::Chat)),
        ("OllamaGenerateRequest", request(Door::Generate)),
        (
            "OllamaEmbedRequest",
            field::schema(embed::FIELDS, &["model", "input"]),
        ),
        (
            "OllamaOldEmbeddingRequest",
            object(
                json!({"model": text(), "prompt": text(), "options": {"type": "object"}, "keep_alive": {}}),
                &["model", "prompt"],
            ),
        ),
        (
            "OllamaOldEmbedding",
            object(
                json!({"embedding": {"type": "array", "items": {"type": "number"}}}),
                &["embedding"],
            ),
        ),
        (
            "OllamaShowRequest",
            object(
                json!({"model": text(), "name": text(), "verbose": {"type": "boolean"}}),
                &[],
            ),
        ),
        (
            "OllamaPullRequest",
            object(
                json!({"model": text(), "name": text(), "stream": {"type": "boolean"}}),
                &[],
            ),
        ),
        (
            "OllamaDeleteRequest",
            object(json!({"model": text(), "name": text()}), &[]),
        ),
        (
            "OllamaCopyRequest",
            object(
                json!({"source": text(), "destination": text()}),
                &["source", "destination"],
            ),
        ),
        (
            "OllamaPull",
            object(
                json!({
                    "status": text(), "digest": text(), "total": {"type": "integer"},
                    "completed": {"type": "integer"}, "error": text(),
                }),
                &[],
            ),
        ),
        (
            "OllamaChat",
            answer(
                "message",
                &json!({"type": "object", "required": ["role", "content"]}),
            ),
        ),
        ("OllamaGeneration", answer("response", &text())),
        ("OllamaEmbeddings", embeddings()),
        (
            "OllamaModels",
            object(
                json!({"models": {"type": "array", "items": object(
                    json!({
                        "name": text(), "model": text(), "modified_at": text(), "size": {"type": "integer"},
                        "digest": text(), "details": {"type": "object"}, "context_length": {"type": "integer"},
                        "expires_at": text(),
                    }),
                    &["name", "model"],
                )}}),
                &["models"],
            ),
        ),
        (
            "OllamaModel",
            object(
                json!({
                    "modified_at": text(), "details": {"type": "object"}, "model_info": {"type": "object"},
                    "capabilities": {"type": "array", "items": text()},
                }),
                &["details", "model_info", "capabilities"],
            ),
        ),
        (
            "OllamaVersion",
            object(json!({"version": text()}), &["version"]),
        ),
        ("OllamaError", error()),
    ]
}

/// A request that works with any model, for documentation.
pub fn example() -> Value {
    json!({"model": "auto", "messages": [{"role": "user", "content": "Name three rivers."}], "stream": false})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn request(door: Door) -> Value {
    let mut schema = field::schema(door.fields(), &["model"]);
    let options: Map<String, Value> = OPTIONS
        .iter()
        .filter_map(|field| {
            let name = field.name.strip_prefix("options.")?;
            Some((name.to_owned(), field.schema()))
        })
        .collect();
    schema["properties"]["options"]["properties"] = Value::Object(options);
    schema
}

fn answer(name: &str, content: &Value) -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    let mut schema = object(
        json!({
            "model": text(),
            "created_at": text(),
            "done": {"type": "boolean"},
            "done_reason": text(),
            "thinking": text(),
            "logprobs": {"type": "array", "items": {"type": "object"}},
            "total_duration": count,
            "load_duration": count,
            "prompt_eval_count": count,
            "prompt_eval_duration": count,
            "eval_count": count,
            "eval_duration": count,
        }),
        &["model", "created_at", "done", name],
    );
    schema["properties"][name] = content.clone();
    schema
}

fn embeddings() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    let vector = json!({"type": "array", "items": {"type": "number"}});
    object(
        json!({
            "model": text(),
            "embeddings": {"type": "array", "items": vector},
            "total_duration": count,
            "load_duration": count,
            "prompt_eval_count": count,
        }),
        &["model", "embeddings"],
    )
}

fn error() -> Value {
    object(
        json!({"error": text(), "code": text(), "param": {"type": ["string", "null"]}}),
        &["error"],
    )
}
