//! The page of routes, for programs and for people.

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::state::DoorSettings;
use muster_protocol::openai::chat;

use super::ROUTES;
use super::page::Page;
use super::reply::Reply;
use super::route::{Answers, Route};

pub async fn show(State(settings): State<Arc<DoorSettings>>) -> Reply {
    let mut document = DOCUMENT.clone();
    document["info"]["title"] = settings.name.as_str().into();
    Reply(document)
}

/// A page that reads `/openapi.json` and needs nothing from elsewhere.
pub async fn browse() -> &'static Page {
    static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("docs.html")));
    &PAGE
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = route.path.replace("{*", "{");
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        methods[route.method.to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apikey": {"type": "apiKey", "in": "header", "name": "apikey"},
            },
            "schemas": {"ChatCompletionRequest": chat::schema(), "Error": error()},
        },
    })
});

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.about,
        "responses": responses(route),
    });
    if let Some(scopes) = route.who.key() {
        let names: Vec<_> = scopes.names().collect();
        operation["security"] = json!([{"bearer": []}, {"apikey": []}]);
        operation["description"] = format!("Needs a key for {}.", names.join(", ")).into();
    }
    if route.answers == Answers::Stream {
        operation["requestBody"] = json!({
            "required": true,
            "content": {"application/json": {"schema": {
                "$ref": "#/components/schemas/ChatCompletionRequest"
            }}},
        });
    }
    let parameters: Vec<_> = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| {
            let name = name.trim_start_matches('*');
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
        })
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    operation
}

fn responses(route: &Route) -> Value {
    let failure = |about: &str| {
        json!({
            "description": about,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        })
    };
    let kinds: &[&str] = match route.answers {
        Answers::Json => &["application/json"],
        Answers::Stream => &["application/json", "text/event-stream"],
        Answers::Text => &["text/plain"],
        Answers::Html => &["text/html"],
        Answers::Object => &["image/webp", "image/png", "image/jpeg"],
        Answers::Socket | Answers::Unbuilt => &[],
    };
    let content: Map<String, Value> = kinds
        .iter()
        .map(|kind| ((*kind).to_owned(), json!({})))
        .collect();
    let mut responses = match route.answers {
        Answers::Socket => json!({"101": {"description": "A WebSocket."}}),
        Answers::Unbuilt => json!({"501": failure("Not built yet.")}),
        _ => json!({"200": {"description": "What was asked for.", "content": content}}),
    };
    if route.who.key().is_some() {
        responses["401"] = failure("No key, or one that is not valid.");
        responses["403"] = failure("The key is not good for this.");
    }
    responses["default"] = failure("What went wrong.");
    responses
}

fn error() -> Value {
    let nullable = json!({"type": ["string", "null"]});
    json!({
        "type": "object",
        "required": ["error", "detail"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "code", "param"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "code": nullable,
                    "param": nullable,
                },
            },
            "detail": {"type": "string"},
        },
    })
}
