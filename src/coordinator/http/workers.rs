//! The workers that are connected, as far as everybody may know them.

use axum::extract::State;
use serde_json::{Value, json};

use crate::coordinator::switchboard::{Switchboard, WorkerOnline};
use crate::protocol::job::{Kind, Kinds};

use super::reply::Reply;

pub const KINDS: [(Kind, &str); 5] = [
    (Kind::Text, "text"),
    (Kind::Image, "image"),
    (Kind::Video, "video"),
    (Kind::Audio, "audio"),
    (Kind::Mesh, "3d"),
];

pub async fn list(State(board): State<Switchboard>) -> Reply {
    let overview = board.overview();
    let workers: Vec<_> = overview
        .workers
        .iter()
        .map(|worker| entry(worker))
        .collect();
    Reply(json!({"count": workers.len(), "workers": workers}))
}

fn entry(worker: &WorkerOnline) -> Value {
    let models: Vec<&str> = worker.models.iter().map(|name| &**name).collect();
    json!({
        "id": worker.public_id,
        "name": &*worker.name,
        "models": models,
        "job_types": names(worker.kinds),
        "online": true,
    })
}

fn names(kinds: Kinds) -> Vec<&'static str> {
    let held = KINDS.into_iter().filter(|(kind, _)| kinds.contains(*kind));
    held.map(|(_, name)| name).collect()
}
