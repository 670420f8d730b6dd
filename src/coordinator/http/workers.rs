//! The public view of connected workers.

use axum::extract::{RawQuery, State};
use serde_json::{Value, json};

use crate::accounts::Accounts;
use crate::clock::rfc3339;
use crate::error::ApiError;
use crate::moderation::Moderation;
use crate::rigs::Rigs;
use crate::switchboard::{Switchboard, WorkerOnline};
use crate::workers::{Applicant, Rejection, Workers, check as check_registration};
use muster_protocol::job::{FailureKind, Kind, Kinds};
use muster_protocol::legacy::words::Word;
use muster_protocol::link::{GpuState, Key};
use muster_protocol::openai::Problem;

use super::address::Address;
use super::admitted::{Admitted, Sent};
use super::reply::Reply;
use super::statistics::parameter;

pub async fn list(State(board): State<Switchboard>) -> Reply {
    let overview = board.current().await;
    let workers: Vec<_> = overview
        .workers
        .iter()
        .map(|worker| entry(worker))
        .collect();
    Reply(json!({"count": workers.len(), "workers": workers}))
}

/// The reply that a worker with this key and name would get if it registered now. For `worker doctor` and `worker
/// join`.
pub async fn check(
    State(accounts): State<Accounts>,
    State(rigs): State<Rigs>,
    State(moderation): State<Moderation>,
    State(workers): State<Workers>,
    Address(address): Address,
    Sent(key): Sent,
    RawQuery(query): RawQuery,
) -> Reply {
    let query = query.unwrap_or_default();
    let name = url::form_urlencoded::parse(query.as_bytes())
        .find_map(|(key, value)| (key == "name").then(|| value.trim().to_owned()));
    let who = Applicant {
        key: Key(key.unwrap_or_default()),
        name: name.unwrap_or_default().into(),
        agent: "".into(),
        address: Some(address),
    };
    let scopes = workers.connect_scopes();
    Reply(
        match check_registration(&accounts, &rigs, &moderation, scopes, &who).await {
            Ok(is_known) => json!({ "accepted": true, "known": is_known }),
            Err(denial) => {
                let rejection = Rejection::from(denial);
                let code = rejection.code.name();
                json!({ "accepted": false, "code": code, "reason": rejection.message })
            }
        },
    )
}

/// The worker of the caller's key: by the name that the key is bound to, or by `?name=`.
pub async fn show_self(
    State(rigs): State<Rigs>,
    State(board): State<Switchboard>,
    Admitted(caller): Admitted,
    RawQuery(query): RawQuery,
) -> Result<Reply, ApiError> {
    let asked = parameter(query.as_deref(), "name");
    let bound = caller.worker_name.as_deref().map(str::to_owned);
    let Some(name) = bound.or(asked) else {
        let message = "this key is for any worker of its account: name one with ?name=";
        return Err(Problem::invalid("name", message).into());
    };
    let rig = rigs.named(&name).await.map_err(|_| no_store())?;
    let rig = rig.filter(|rig| rig.row.owner.account == caller.account);
    let rig = rig.ok_or_else(|| {
        let message = "the account of this key has no worker of this name; it is known after its first connection";
        ApiError::new(FailureKind::InvalidRequest, message).with_status(404)
    })?;
    let overview = board.current().await;
    let connected = overview.workers.iter();
    let connected = connected.filter(|it| it.public_id == rig.row.public_id);
    let kinds: Vec<&str> = match connected.map(|worker| worker.kinds).next() {
        Some(kinds) => kind_words(kinds),
        None => vec![rig.trade.word()],
    };
    let seen = Some(rig.row.seen_at).filter(|seen| seen.0 > 0);
    Ok(Reply(json!({
        "schema": "muster.worker.self.v1",
        "worker": {
            "name": rig.row.name,
            "online": rig.online,
            "maintenance": rig.row.decided.maintenance.is_some(),
            "last_seen": seen.map(rfc3339),
            "models": rig.row.said.models,
            "job_types": kinds,
            "jobs_completed": rig.row.done.fulfilled,
            "den_recorded": rig.row.done.earned.0 as f64 / 1000.0,
        },
        // Kudos are not paid out.
        "payout": null,
    })))
}

fn no_store() -> ApiError {
    let message = "reading the worker failed: the database does not answer; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}

fn entry(worker: &WorkerOnline) -> Value {
    let models: Vec<&str> = worker.models.iter().map(|name| &**name).collect();
    let mut entry = json!({
        "id": worker.public_id,
        "name": &*worker.name,
        "models": models,
        "job_types": kind_words(worker.kinds),
        "online": true,
    });
    if !worker.gpus.is_empty() {
        let gpus = worker.gpus.iter().map(gpu);
        entry["gpus"] = gpus.collect();
    }
    entry
}

/// A worker's report of a GPU: memory in GiB, and utilisation.
fn gpu(gpu: &GpuState) -> Value {
    let mut entry = json!({
        "name": gpu.name,
        "vram_total": gpu.vram_total,
        "vram_free": gpu.vram_free,
        "util": gpu.util,
    });
    if !gpu.failed_kernels.is_empty() {
        entry["failed_kernels"] = json!(gpu.failed_kernels);
    }
    entry
}

pub fn kind_words(kinds: Kinds) -> Vec<&'static str> {
    kinds.listed().map(Kind::word).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::entry;
    use crate::switchboard::WorkerOnline;
    use muster_protocol::job::{Capabilities, Formats, Kind, WorkerId};
    use muster_protocol::link::GpuState;

    fn listed(gpus: Vec<GpuState>) -> Value {
        entry(&WorkerOnline {
            id: WorkerId(1),
            name: "rig".into(),
            public_id: Uuid::nil(),
            agent: "muster".into(),
            models: vec!["tiny".into()],
            kinds: Kind::Text.into(),
            formats: Formats::NEUTRAL,
            capabilities: Capabilities::default(),
            modalities: Arc::default(),
            context: 2048,
            own_only: false,
            trusted: false,
            slots: 1,
            running: 0,
            answer_time: Duration::ZERO,
            gpus: gpus.into(),
        })
    }

    #[test]
    fn a_worker_is_listed_with_its_cards_where_it_tells_of_any() {
        assert!(listed(Vec::new()).get("gpus").is_none());
        let gpu = GpuState {
            name: "NVIDIA H200".to_owned(),
            vram_total: Some(140.4),
            vram_free: Some(41.0),
            util: None,
            failed_kernels: Vec::new(),
        };
        let wanted = json!([
            {"name": "NVIDIA H200", "vram_total": 140.4, "vram_free": 41.0, "util": null}
        ]);
        assert_eq!(listed(vec![gpu.clone()])["gpus"], wanted);
        let faulty = GpuState {
            failed_kernels: vec!["attention".to_owned()],
            ..gpu
        };
        let failed = &listed(vec![faulty])["gpus"][0]["failed_kernels"];
        assert_eq!(failed, &json!(["attention"]));
    }
}
