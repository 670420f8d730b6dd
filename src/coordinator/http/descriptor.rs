//! What this service is and where its endpoints are.

use std::sync::Arc;

use axum::extract::State;
use serde_json::json;

use crate::state::DoorSettings;

use super::reply::Reply;

/// Of the API, which clients compare; that of the program is in `/.well-known/serviceinfo`.
pub const API_VERSION: &str = "1.0.0";

pub async fn show(State(settings): State<Arc<DoorSettings>>) -> Reply {
    let mut descriptor = json!({
        "name": settings.name,
        "version": API_VERSION,
        "endpoints": {
            "openai": "POST /v1/chat/completions",
            "anthropic": "POST /v1/messages",
            "images": "POST /v1/images/generations",
            "audio": "POST /v1/audio/generations",
            "models": "GET /v1/models",
            "pricing": "GET /v1/pricing",
            "worker_ws": "WS /v1/workers/ws",
            "health": "GET /health",
        },
        "p2p": {"enabled": false, "peer_id": null, "status": "disabled"},
    });
    if let Some(console) = &settings.console_url {
        descriptor["console_url"] = console.as_str().into();
    }
    Reply(descriptor)
}

/// `/.well-known/serviceinfo`: which APIs are here, for programs that know only an address.
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
