//! `GET /v1/status/models`: the models that are online, with their measured speed in the last 24 hours.

use axum::extract::State;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::models::{limits, listed_kinds};
use crate::http::reply::Reply;
use crate::http::statistics::unavailable;
use crate::stats::{Picture, Stats};
use crate::switchboard::{ModelOnline, Switchboard};
use muster_protocol::job::{Capabilities, Kind};

/// The model with the most workers first, then by name.
pub async fn show(
    State(board): State<Switchboard>,
    State(stats): State<Stats>,
) -> Result<Reply, ApiError> {
    let overview = board.current().await;
    let picture = stats.picture().await.map_err(unavailable)?;
    let mut models: Vec<&ModelOnline> = overview.models.iter().collect();
    models.sort_by_key(|model| (std::cmp::Reverse(model.workers), model.name.clone()));
    let entries = models
        .into_iter()
        .flat_map(|model| entries(model, &picture))
        .collect();
    Ok(Reply(entries))
}

/// An entry for each kind of job that workers of this model take.
fn entries(model: &ModelOnline, picture: &Picture) -> Vec<Value> {
    let kinds = listed_kinds(model).into_iter();
    kinds.map(|kind| entry(model, kind, picture)).collect()
}

fn entry(model: &ModelOnline, kind: Kind, picture: &Picture) -> Value {
    let made = picture.day.made(kind, &model.name);
    let is_text = kind == Kind::Text;
    let mut entry = json!({
        "name": &*model.name,
        "count": model.workers,
        "type": kind.word(),
        "max_context_length": is_text.then_some(model.context),
        "samples": made.delivered,
        "tokens_per_s": made.speed().filter(|_| is_text),
        "avg_ttft_s": made.first_output_seconds(),
        "avg_latency_s": made.total_seconds(),
    });
    let limits = limits(model);
    if !limits.is_empty() {
        entry["limits"] = limits.into();
    }
    let tasks = tasks(kind, model.capabilities);
    if !tasks.is_empty() {
        entry["capabilities"] = tasks.into();
    }
    entry
}

/// The tasks of a media model, as in `txt2img`.
pub fn tasks(kind: Kind, capabilities: Capabilities) -> Vec<&'static str> {
    let takes_sources = capabilities.contains(Capabilities::SOURCE_IMAGES);
    let (from_text, from_image) = match kind {
        Kind::Image => ("txt2img", "img2img"),
        Kind::Video => ("txt2video", "img2video"),
        _ => return Vec::new(),
    };
    let mut tasks = vec![from_text];
    tasks.extend(takes_sources.then_some(from_image));
    tasks
}
