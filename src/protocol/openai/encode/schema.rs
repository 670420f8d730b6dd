//! The routes as JSON Schema.

use serde_json::{Value, json};

use super::tokens::{DETOKENIZE, TOKENIZE};
use super::{embeddings, rerank};
use crate::openai::field;

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("TokenizeRequest", field::schema(TOKENIZE, &["model"])),
        ("Tokens", tokens()),
        (
            "DetokenizeRequest",
            field::schema(DETOKENIZE, &["model", "tokens"]),
        ),
        ("TokenText", token_text()),
        (
            "EmbeddingsRequest",
            field::schema(embeddings::FIELDS, &["model", "input"]),
        ),
        ("Embeddings", vectors()),
        (
            "RerankRequest",
            field::schema(rerank::FIELDS, &["model", "query", "documents"]),
        ),
        ("Reranking", ranking()),
    ]
}

fn tokens() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    json!({
        "type": "object",
        "required": ["count", "max_model_len", "tokens"],
        "properties": {
            "count": count,
            "max_model_len": {"type": "integer", "minimum": 0, "description": "Tokens of context of the model."},
            "tokens": {"type": "array", "items": count},
            "token_strs": {"type": "array", "items": {"type": "string"}},
        },
    })
}

fn token_text() -> Value {
    json!({
        "type": "object",
        "required": ["prompt"],
        "properties": {"prompt": {"type": "string"}},
    })
}

fn vectors() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    let embedding = json!({
        "type": "object",
        "required": ["object", "index", "embedding"],
        "properties": {
            "object": {"type": "string", "enum": ["embedding"]},
            "index": count,
            "embedding": {
                "anyOf": [
                    {"type": "array", "items": {"type": "number"}},
                    {"type": "string", "contentEncoding": "base64"},
                ],
            },
        },
    });
    json!({
        "type": "object",
        "required": ["object", "data", "model", "usage"],
        "properties": {
            "object": {"type": "string", "enum": ["list"]},
            "data": {"type": "array", "items": embedding},
            "model": {"type": "string"},
            "usage": {
                "type": "object",
                "required": ["prompt_tokens", "total_tokens"],
                "properties": {"prompt_tokens": count, "total_tokens": count},
            },
        },
    })
}

fn ranking() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    let document = json!({
        "type": "object",
        "required": ["text"],
        "properties": {"text": {"type": "string"}},
    });
    let result = json!({
        "type": "object",
        "required": ["index", "relevance_score"],
        "properties": {
            "index": {"type": "integer", "minimum": 0, "description": "Place among the documents of the request."},
            "relevance_score": {"type": "number", "minimum": 0, "maximum": 1},
            "document": document,
        },
    });
    json!({
        "type": "object",
        "required": ["id", "model", "usage", "results"],
        "properties": {
            "id": {"type": "string"},
            "model": {"type": "string"},
            "usage": {
                "type": "object",
                "required": ["total_tokens"],
                "properties": {"total_tokens": count},
            },
            "results": {"type": "array", "items": result},
        },
    })
}
