//! `GET /v1/status/network`: models and workers online, models with few workers, and incidents. There is no
//! history.

use std::sync::Arc;

use axum::extract::State;
use serde_json::{Value, json};

use super::models::tasks;
use crate::billing::Charging;
use crate::clock::{rfc3339, wall_clock};
use crate::http::models::listed_kinds;
use crate::http::reply::Reply;
use crate::media::Media;
use crate::modes::Modes;
use crate::state::DoorSettings;
use crate::storage::Store;
use crate::switchboard::{ModelOnline, Switchboard};
use crate::values::modes::ModeSet;
use muster_protocol::job::Kind;

/// A model with fewer workers goes offline easily.
const REDUNDANCY_TARGET: u32 = 3;

pub async fn show(
    State(board): State<Switchboard>,
    (State(store), State(media)): (State<Store>, State<Media>),
    State(modes): State<Modes>,
    State(settings): State<Arc<DoorSettings>>,
) -> Reply {
    let overview = board.current().await;
    let incidents = incidents(&store, &media);
    let models = overview.models.iter();
    let below = models.filter(|model| model.workers < REDUNDANCY_TARGET);
    let below: Vec<&str> = below.map(|model| &*model.name).collect();
    Reply(json!({
        "schema": "muster.network.status.v1",
        "generated_at": rfc3339(wall_clock()),
        "status": if incidents.is_empty() { "operational" } else { "degraded" },
        "build_commit": option_env!("MUSTER_COMMIT"),
        "core": {"api": true, "database": store.is_reachable(), "redis": false},
        "capacity": {
            "workers_online": overview.workers.len(),
            "models_online": overview.models.len(),
            "redundancy_target": REDUNDANCY_TARGET,
            "models_below_target": below,
            "models": overview.models.iter().flat_map(entries).collect::<Vec<_>>(),
        },
        // This service has neither.
        "validators": null,
        "payouts": null,
        "charging": {
            "mode": settings.charging.mode(),
            "global": settings.charging == Charging::On,
        },
        "incidents": incidents,
        "incident_history_available": false,
        "advisories": advisories(&modes),
        "architecture": {
            "coordinators": 1,
            "worker_transports": ["websocket", "http_polling"],
            "reward_unit": "kudos",
        },
    }))
}

fn entries(model: &ModelOnline) -> Vec<Value> {
    let entry = |kind: Kind| {
        json!({
            "name": &*model.name,
            "type": kind.word(),
            "workers": model.workers,
            "capabilities": tasks(kind, model.capabilities),
        })
    };
    listed_kinds(model).into_iter().map(entry).collect()
}

/// Present problems, in the words of `/health`.
fn incidents(store: &Store, media: &Media) -> Vec<Value> {
    let store = store.problem().map(|problem| problem.to_string());
    let media = media.problem().map(str::to_owned);
    let problems = [
        ("store_unavailable", "store", "critical", store),
        ("media_unavailable", "media", "major", media),
    ];
    let incident = |(code, component, severity, summary): (_, _, _, Option<String>)| {
        let summary = summary?;
        Some(json!({
            "code": code,
            "component": component,
            "severity": severity,
            "summary": summary,
        }))
    };
    problems.into_iter().filter_map(incident).collect()
}

/// Modes of the service that its users notice.
fn advisories(modes: &Modes) -> Vec<&'static str> {
    let all = [
        (
            ModeSet::MAINTENANCE,
            "maintenance: the AI Horde API takes no new requests",
        ),
        (
            ModeSet::INVITE_ONLY,
            "new workers are accepted by invitation only",
        ),
        (
            ModeSet::RAID,
            "requests from VPN or proxy addresses are refused for untrusted users",
        ),
    ];
    let on = all.into_iter().filter(|(mode, _)| modes.are_on(*mode));
    on.map(|(_, about)| about).collect()
}
