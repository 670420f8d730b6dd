//! Whether the service works. Always 200: a probe reads what is wrong.

use axum::extract::State;
use serde_json::json;

use crate::coordinator::storage::Store;
use crate::coordinator::switchboard::Switchboard;

use super::reply::Reply;

pub async fn show(State(store): State<Store>, State(board): State<Switchboard>) -> Reply {
    let overview = board.overview();
    let reachable = store.is_reachable();
    let models: Vec<&str> = overview.models.iter().map(|model| &*model.name).collect();
    Reply(json!({
        "status": if reachable { "ok" } else { "degraded" },
        "build_commit": option_env!("MUSTER_COMMIT"),
        "redis": reachable,
        "workers_connected": overview.workers.len(),
        "models_available": models,
    }))
}
