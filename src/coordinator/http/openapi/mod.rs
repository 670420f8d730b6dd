//! `/openapi.json` and `/docs`: the API for programs and for people.
//!
//! | file | content |
//! | --- | --- |
//! | `operation` | one route as an OpenAPI operation: tag, parameters, body, replies |
//! | `service` | bodies and replies of `/v1` and of the service routes |
//! | `generation` | the same for images, music and video |
//! | `statistics` | the same for status, statistics, jobs and styles |
//! | `account` | the same for accounts |
//! | `ollama` | the same for Ollama's API |
//! | `mcp` | the same for the Model Context Protocol |
//! | `horde` | the same for `/api/v2`, from the tables of that API |
//! | `failures` | statuses and stable codes of each route |
//! | `docs.html` | a page that reads the document and sends requests |

mod account;
mod failures;
pub mod generation;
mod horde;
mod mcp;
mod ollama;
mod operation;
mod service;
mod statistics;
mod workers;

use std::sync::{Arc, LazyLock};

use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::state::DoorSettings;

use super::pages::Page;
use super::reply::Reply;
use super::route::Route;
use super::{DEVELOPMENT, ROUTES};
use operation::TAGS;

pub async fn show(State(settings): State<Arc<DoorSettings>>) -> Reply {
    let mut document = match settings.development {
        Some(_) => WITH_DEVELOPMENT.clone(),
        None => DOCUMENT.clone(),
    };
    document["info"]["title"] = settings.name.as_str().into();
    Reply(document)
}

/// A page that loads only `/openapi.json`.
pub async fn browse() -> &'static Page {
    static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(include_str!("docs.html")));
    &PAGE
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| document(ROUTES.iter()));
static WITH_DEVELOPMENT: LazyLock<Value> =
    LazyLock::new(|| document(ROUTES.iter().chain(DEVELOPMENT)));

/// The document without routes of development mode.
pub fn document_of_service() -> &'static Value {
    &DOCUMENT
}

fn document(routes: impl Iterator<Item = &'static Route>) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let methods = paths.entry(path(route)).or_insert_with(|| json!({}));
        methods[route.method.to_lowercase()] = operation::describe(route);
    }
    let tags: Vec<Value> = TAGS
        .iter()
        .map(|(name, about)| json!({"name": name, "description": about}))
        .collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The OpenAI API, the AI Horde API and the service routes of one coordinator.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags,
        "paths": paths,
        "webhooks": horde::webhooks(),
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apikey": {"type": "apiKey", "in": "header", "name": "apikey"},
                "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
            "x-codes": failures::codes(),
        },
    });
    document["components"]["schemas"] = Value::Object(schemas(&document));
    document
}

/// The fields of a route's body, each with its schema.
pub fn body_fields(path: &str) -> Map<String, Value> {
    let body = &DOCUMENT["paths"][path]["post"]["requestBody"];
    let schemas = &DOCUMENT["components"]["schemas"];
    let fields = references(body)
        .pop()
        .map(|name| &schemas[name]["properties"]);
    fields
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

/// The maximum of a numeric field of a route.
pub fn largest(route: &str, field: &str) -> Option<u32> {
    let body = &DOCUMENT["paths"][route]["post"]["requestBody"];
    let name = references(body).pop()?;
    let field = &DOCUMENT["components"]["schemas"][name]["properties"][field];
    let most = [&field["maximum"], &field["maxLength"]];
    let most = most.iter().find_map(|most| most.as_f64())?;
    Some(most as u32)
}

/// The path in OpenAPI's syntax: a wildcard is an ordinary parameter there.
fn path(route: &Route) -> String {
    route.path.replace("{*", "{")
}

/// Every schema that the operations refer to, directly or through another schema.
fn schemas(document: &Value) -> Map<String, Value> {
    let known: Map<String, Value> = service::schemas()
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .chain(horde::schemas())
        .collect();
    let mut wanted = references(document);
    let mut used = Map::new();
    while let Some(name) = wanted.pop() {
        let Some(schema) = known.get(&name).filter(|_| !used.contains_key(&name)) else {
            continue;
        };
        wanted.extend(references(schema));
        used.insert(name, schema.clone());
    }
    used.sort_keys();
    used
}

fn references(value: &Value) -> Vec<String> {
    const SCHEMAS: &str = "#/components/schemas/";
    match value {
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Object(entries) => {
            let own = entries.get("$ref").and_then(Value::as_str);
            let own = own.and_then(|path| path.strip_prefix(SCHEMAS));
            let inner = entries.values().flat_map(references);
            own.map(str::to_owned).into_iter().chain(inner).collect()
        }
        _ => Vec::new(),
    }
}
