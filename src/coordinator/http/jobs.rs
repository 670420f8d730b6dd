//! `POST /v1/jobs/{id}/cancel`: for clients that cannot close the connection of their request.

use axum::extract::{Path, State};
use serde_json::json;

use super::admitted::Admitted;
use super::reply::Reply;
use crate::dispatch::Outcome;
use crate::error::ApiError;
use crate::storage::Store;
use crate::switchboard::Switchboard;
use muster_protocol::job::{AccountId, FailureKind, JobId};

/// Idempotent: a job that has ended stays unchanged.
pub async fn cancel(
    State(board): State<Switchboard>,
    State(store): State<Store>,
    Admitted(caller): Admitted,
    Path(id): Path<String>,
) -> Result<Reply, ApiError> {
    let job = id.parse().map(JobId).map_err(|_| unknown())?;
    let state = state_after_cancel(&board, &store, job, caller.account).await?;
    Ok(Reply(json!({"id": job.to_string(), "state": state})))
}

async fn state_after_cancel(
    board: &Switchboard,
    store: &Store,
    job: JobId,
    account: AccountId,
) -> Result<String, ApiError> {
    // A switchboard that has stopped has no jobs: their ends are in the store.
    let live = board.cancel(job, account).await.unwrap_or_default();
    if let Some(outcome) = live {
        return Ok(word(&outcome).to_owned());
    }
    let settled = store.settled_state(job, account).await;
    settled.map_err(|_| no_store())?.ok_or_else(unknown)
}

/// The name in the database.
fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Delivered { .. } => "delivered",
        Outcome::Failed(_) => "failed",
        Outcome::Cancelled => "cancelled",
        Outcome::Expired => "expired",
    }
}

/// The same for a job of another account: its existence is a secret.
fn unknown() -> ApiError {
    let message = "the account of this key has no such job; send an id from the header X-Job-Id";
    ApiError::new(FailureKind::InvalidRequest, message).with_status(404)
}

fn no_store() -> ApiError {
    let message = "looking up the job failed: the database does not answer; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}
