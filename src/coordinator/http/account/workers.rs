//! `GET /v1/account/workers`: the workers of the caller's account, connected or not. `den` is their earnings, in kudos.

use axum::extract::State;
use serde_json::{Value, json};

use super::{AccountCaller, unavailable};
use crate::clock::rfc3339;
use crate::error::ApiError;
use crate::http::reply::Reply;
use crate::rigs::{Rig, Rigs};
use muster_protocol::legacy::words::Word;

pub async fn list(
    State(rigs): State<Rigs>,
    AccountCaller(caller): AccountCaller,
) -> Result<Reply, ApiError> {
    let rigs = rigs.of(caller.account).await.map_err(unavailable)?;
    let workers: Vec<Value> = rigs.iter().map(entry).collect();
    let jobs: i64 = rigs.iter().map(|rig| rig.row.done.fulfilled).sum();
    Ok(Reply(json!({
        "count": workers.len(),
        "online": rigs.iter().filter(|rig| rig.online).count(),
        "den_earned": rigs.iter().map(earned).sum::<f64>(),
        "jobs_completed": jobs,
        "workers": workers,
    })))
}

fn entry(rig: &Rig) -> Value {
    let seen = Some(rig.row.seen_at).filter(|seen| seen.0 > 0);
    json!({
        "id": rig.row.public_id,
        "name": rig.row.name,
        "type": rig.trade.word(),
        "models": rig.row.said.models,
        "den_earned": earned(rig),
        "jobs_completed": rig.row.done.fulfilled,
        "last_seen": seen.map(rfc3339),
        "maintenance": rig.row.decided.maintenance.is_some(),
        "online": rig.online,
    })
}

fn earned(rig: &Rig) -> f64 {
    rig.row.done.earned.0 as f64 / 1000.0
}
