//! How much is online and how much waits.
//!
//! | file | route |
//! | --- | --- |
//! | `models` | `/v1/status/models`: the models that are online, and how fast they were today |
//! | `network` | `/v1/status/network`: capacity and incidents |
//! | `routing` | `/v1/status/routing`: the order in which `auto` chooses |

mod models;
mod network;
mod routing;

pub use models::show as show_models;
pub use network::show as show_network;
pub use routing::show as show_routing;

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Instant;

use axum::extract::State;
use serde_json::{Value, json};

use crate::media::Media;
use crate::storage::Store;
use crate::switchboard::{ModelOnline, Switchboard};
use muster_protocol::job::Kind;

use super::descriptor::API_VERSION;
use super::models::listed_kinds;
use super::reply::Reply;
use super::workers::kind_words;

/// Start time: set when the router is built, or at the first read.
pub static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

pub async fn show(
    State(store): State<Store>,
    State(media): State<Media>,
    State(board): State<Switchboard>,
) -> Reply {
    let overview = board.current().await;
    let gpus = || {
        overview
            .workers
            .iter()
            .flat_map(|worker| worker.gpus.iter())
    };
    Reply(json!({
        "status": if store.is_reachable() && media.problem().is_none() { "ok" } else { "degraded" },
        "version": API_VERSION,
        "uptime_s": STARTED.elapsed().as_secs(),
        "workers": {
            "online": overview.workers.len(),
            "by_type": by_type(overview.workers.iter().map(|worker| kind_words(worker.kinds))),
        },
        "models": {
            "online": overview.models.len(),
            "by_type": by_type(overview.models.iter().map(listed_words)),
        },
        "gpus": {
            "online": gpus().count(),
            "with_failed_kernels": gpus().filter(|gpu| !gpu.failed_kernels.is_empty()).count(),
        },
        "queue": by_trade(&overview.queued_by_kind),
        "running": overview.running_by_kind.values().sum::<usize>(),
        "running_by_type": by_trade(&overview.running_by_kind),
        "links": {
            "models": "/v1/status/models",
            "network": "/v1/status/network",
            "health": "/health",
        },
    }))
}

fn by_trade(jobs: &BTreeMap<Kind, usize>) -> Value {
    let text = jobs.get(&Kind::Text).copied().unwrap_or_default();
    let all: usize = jobs.values().sum();
    json!({"text": text, "media": all - text})
}

/// How many of them are listed under each word.
fn by_type(all: impl Iterator<Item = Vec<&'static str>>) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for word in all.flatten() {
        *counts.entry(word).or_default() += 1;
    }
    counts
}

fn listed_words(model: &ModelOnline) -> Vec<&'static str> {
    let kinds = listed_kinds(model).into_iter();
    kinds.map(Kind::word).collect()
}
