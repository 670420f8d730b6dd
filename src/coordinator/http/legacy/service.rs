//! The service about itself, for those who speak this API.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::coordinator::http::reply;
use crate::coordinator::storage::Store;
use crate::protocol::legacy::service::{Health, HeartbeatResponse};

/// `GET /api/v2/status/heartbeat`: 200 in any case.
pub async fn heartbeat(State(store): State<Store>) -> Response {
    let is_reachable = store.is_reachable();
    let beat = HeartbeatResponse {
        message: match is_reachable {
            true => Health::Ok,
            false => Health::Down,
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        queue: None,
        threads: None,
        active_count: None,
        db_connection: Some(is_reachable),
    };
    reply::json(StatusCode::OK, &beat)
}
