//! Health checks. `/health` is always 200 and lists problems for operators and monitors; `/health/ready` and
//! `/health/live` answer by their status code, for load balancers and supervisors.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::Response;
use serde_json::{Value, json};

use crate::condition::{Condition, Phase};
use crate::error::usual_wait;
use crate::media::Media;
use crate::storage::Store;
use crate::switchboard::Switchboard;
use muster_protocol::job::FailureKind;

use super::nodes::ClusterNodes;
use super::reply::{self, Reply};

pub async fn show(
    State(store): State<Store>,
    State(media): State<Media>,
    State(board): State<Switchboard>,
    nodes: Option<Extension<ClusterNodes>>,
) -> Reply {
    let overview = board.overview();
    let mut problems = problems(&store, &media);
    if let Some(Extension(nodes)) = &nodes {
        let cut_off = nodes.problems();
        problems.extend(cut_off.map(|cause| json!({"part": "cluster", "cause": cause})));
    }
    let models: Vec<&str> = overview.models.iter().map(|model| &*model.name).collect();
    let mut health = json!({
        "status": if problems.is_empty() { "ok" } else { "degraded" },
        "build_commit": option_env!("MUSTER_COMMIT"),
        "database": store.is_reachable(),
        // Other coordinators keep their state there; this one has none.
        "redis": false,
        "workers_connected": overview.workers.len(),
        "models_available": models,
    });
    if !problems.is_empty() {
        health["problems"] = problems.into();
    }
    if let Some(Extension(nodes)) = nodes {
        health["cluster"] = nodes.to_json();
    }
    Reply(health)
}

/// Readiness: whether requests should be routed here.
pub async fn ready(
    State(store): State<Store>,
    State(media): State<Media>,
    State(condition): State<Condition>,
) -> Response {
    let problems = problems(&store, &media);
    let status = match condition.phase() {
        Phase::Starting => "starting",
        Phase::Standby => "standby",
        Phase::Draining => "draining",
        Phase::Serving if !problems.is_empty() => "degraded",
        Phase::Serving => return reply::with_status(StatusCode::OK, &json!({"status": "ready"})),
    };
    let mut body = json!({ "status": status });
    if !problems.is_empty() {
        body["problems"] = problems.into();
    }
    unavailable(&body)
}

/// Liveness: always true, since a restart fixes none of the problems that [`ready`] reports.
pub async fn live() -> Reply {
    Reply(json!({"status": "live"}))
}

/// The same while the coordinator starts and its database is not open yet.
pub async fn show_starting(State(condition): State<Condition>) -> Reply {
    let cause = match condition.phase() {
        Phase::Standby => {
            "another coordinator serves the database, this one takes over when that ends"
        }
        _ => "the coordinator is starting",
    };
    Reply(json!({
        "status": "degraded",
        "build_commit": option_env!("MUSTER_COMMIT"),
        "database": false,
        "redis": false,
        "workers_connected": 0,
        "models_available": [],
        "problems": [{"part": "start", "cause": cause}],
    }))
}

pub async fn starting(State(condition): State<Condition>) -> Response {
    let status = match condition.phase() {
        Phase::Standby => "standby",
        _ => "starting",
    };
    unavailable(&json!({ "status": status }))
}

pub fn unavailable(body: &Value) -> Response {
    let mut response = reply::with_status(StatusCode::SERVICE_UNAVAILABLE, body);
    let wait = usual_wait(FailureKind::ShuttingDown).as_secs();
    response.headers_mut().insert(RETRY_AFTER, wait.into());
    response
}

/// Current problems of the database and the media store, each with its remedy.
fn problems(store: &Store, media: &Media) -> Vec<Value> {
    let store = store.problem().map(|problem| problem.to_string());
    let media = media.problem().map(str::to_owned);
    [("store", store), ("media", media)]
        .into_iter()
        .filter_map(|(part, cause)| Some(json!({"part": part, "cause": cause?})))
        .collect()
}
