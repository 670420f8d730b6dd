//! What this service is and where its endpoints are.

use std::sync::Arc;

use axum::extract::State;
use serde_json::json;

use crate::coordinator::state::DoorSettings;

use super::reply::Reply;

pub async fn show(State(settings): State<Arc<DoorSettings>>) -> Reply {
    let mut descriptor = json!({
        "name": settings.name,
        "version": env!("CARGO_PKG_VERSION"),
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
