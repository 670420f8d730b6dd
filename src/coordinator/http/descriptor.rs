//! `GET /` and `/.well-known/serviceinfo`: the service and its endpoints. A browser gets a page to try them.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, VARY};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::state::DoorSettings;

use super::ROUTES;
use super::pages::HOME;
use super::reply::Reply;
use super::route::Answers;

/// Version of the API, which clients compare; the version of the program is in `/.well-known/serviceinfo`.
pub const API_VERSION: &str = "1.0.0";

/// Clients of the public network know endpoints by these names.
const ENDPOINTS: &[(&str, &str)] = &[
    ("openai", "POST /v1/chat/completions"),
    ("anthropic", "POST /v1/messages"),
    ("responses", "POST /v1/responses"),
    ("completions", "POST /v1/completions"),
    ("embeddings", "POST /v1/embeddings"),
    ("rerank", "POST /v1/rerank"),
    ("tokenize", "POST /v1/tokenize"),
    ("detokenize", "POST /v1/detokenize"),
    ("images", "POST /v1/images/generations"),
    ("audio", "POST /v1/audio/generations"),
    ("models", "GET /v1/models"),
    ("pricing", "GET /v1/pricing"),
    ("worker_ws", "WS /v1/workers/ws"),
    ("health", "GET /health"),
];

pub async fn show(State(settings): State<Arc<DoorSettings>>, headers: HeaderMap) -> Response {
    let mut response = match wants_page(&headers) {
        true => HOME.into_response(),
        false => descriptor(&settings).into_response(),
    };
    response.headers_mut().insert(VARY, ACCEPT.into());
    response
}

/// Only browsers ask for HTML by name.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let mut types = accepted.unwrap_or_default().split(',');
    types.any(|one| one.split(';').next().map(str::trim) == Some("text/html"))
}

fn descriptor(settings: &DoorSettings) -> Reply {
    let working = ENDPOINTS.iter().filter(|(_, place)| works(place));
    let endpoints: Map<String, Value> = working
        .map(|(name, place)| ((*name).to_owned(), (*place).into()))
        .collect();
    let mut descriptor = json!({
        "name": settings.name,
        "version": API_VERSION,
        "endpoints": endpoints,
        "p2p": {"enabled": false, "peer_id": null, "status": "disabled"},
    });
    if let Some(console) = &settings.console_url {
        descriptor["console_url"] = console.as_str().into();
    }
    Reply(descriptor)
}

/// Whether the route is implemented.
fn works(place: &str) -> bool {
    ROUTES.iter().any(|route| {
        let method = match route.answers {
            Answers::Unbuilt => return false,
            Answers::Socket => "WS",
            _ => route.method,
        };
        place.split_once(' ') == Some((method, route.path))
    })
}

/// `/.well-known/serviceinfo`: the APIs of this service, for discovery.
pub async fn well_known(State(settings): State<Arc<DoorSettings>>) -> Reply {
    Reply(json!({
        "version": "0.2",
        "name": settings.name,
        "software": {"name": "Muster", "version": env!("CARGO_PKG_VERSION")},
        "api": {
            "aihorde": {
                "name": "AI Horde API",
                "version": "2",
                "base_url": "/api",
                "rel_url": "/api/v2",
                "documentation": "/docs",
            },
            "openai": {
                "name": "OpenAI API",
                "version": "1",
                "base_url": "/v1",
                "rel_url": "/v1",
                "documentation": "/docs",
            },
        },
    }))
}
