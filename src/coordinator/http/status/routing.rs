//! `GET /v1/status/routing`: the order in which `auto` chooses models, and the ranking of a model's workers.
//!
//! The order is lexicographic and not a weighted sum, so a score is a place in it: 1 is the first choice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::http::auto::Auto;
use crate::http::reply::Reply;
use crate::http::statistics::unavailable;
use crate::state::DoorSettings;
use crate::stats::Stats;
use crate::switchboard::{Overview, Switchboard};
use muster_protocol::job::Kind;

const WINDOW_HOURS: u32 = 24;
/// The criteria of `auto`, in order.
const ORDER: [&str; 4] = [
    "free_slot",
    "comfortable_answer_time",
    "model_size",
    "answer_time",
];

pub async fn show(
    State(board): State<Switchboard>,
    State(stats): State<Stats>,
    State(settings): State<Arc<DoorSettings>>,
) -> Result<Reply, ApiError> {
    let overview = board.current().await;
    let picture = stats.picture().await.map_err(unavailable)?;
    let ranked = Auto::Any.ranked(&overview.models, &settings.sizes);
    let size = |name: &str| settings.sizes.billions(name);
    let largest = ranked.iter().map(|model| size(&model.name));
    let largest = largest.fold(f64::MIN_POSITIVE, f64::max);
    let count = ranked.len() as f64;
    let mut scores = Map::new();
    for (place, model) in ranked.into_iter().enumerate() {
        let made = picture.day.made(Kind::Text, &model.name);
        let entry = json!({
            "score": (count - place as f64) / count,
            "quality": size(&model.name) / largest,
            "failed_rate": made.failed_rate(),
            "tps": made.speed(),
            "latency": made.total_seconds(),
        });
        scores.insert(model.name.to_string(), entry);
    }
    Ok(Reply(json!({
        "scores": scores,
        "worker_scores": worker_scores(&overview),
        // The order is not a weighted sum; `order` lists the compared properties.
        "weights": {"quality": null, "throughput": null, "latency": null, "failure": null},
        "order": ORDER,
        "pin": null,
        "score_ttl_s": 0,
        "window_hours": WINDOW_HOURS,
    })))
}

/// A score of each text worker among those of its model: 1 for the fastest by measured speed.
fn worker_scores(overview: &Overview) -> Map<String, Value> {
    let workers = overview.workers.iter();
    let workers = workers.filter(|it| it.kinds.contains(Kind::Text) && !it.own_only);
    let serving = workers.flat_map(|worker| worker.models.iter().map(move |name| (name, worker)));
    let serving: Vec<_> = serving.collect();
    let mut fastest: BTreeMap<&Arc<str>, Duration> = BTreeMap::new();
    for (model, worker) in &serving {
        let best = fastest.entry(*model).or_insert(worker.answer_time);
        *best = worker.answer_time.min(*best);
    }
    let mut scores = Map::new();
    for (model, worker) in serving {
        let best = fastest.get(model).copied().unwrap_or_default();
        let time = worker.answer_time.as_secs_f64().max(f64::MIN_POSITIVE);
        let score = (best.as_secs_f64() / time).min(1.0);
        scores.insert(format!("{model}|{}", worker.name), score.into());
    }
    scores
}
