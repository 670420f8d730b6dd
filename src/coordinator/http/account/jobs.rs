//! `GET /v1/account/jobs`: the latest jobs of the caller's account that have ended, without prompts and results.

use axum::extract::{RawQuery, State};
use serde_json::{Value, json};

use super::{AccountCaller, unavailable};
use crate::clock::rfc3339;
use crate::error::ApiError;
use crate::http::reply::Reply;
use crate::http::statistics::parameter;
use crate::storage::{AccountJob, Store};
use muster_protocol::job::{JobId, MicroUsd};
use muster_protocol::openai::Problem;

const USUAL_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 200;

pub async fn list(
    State(store): State<Store>,
    AccountCaller(caller): AccountCaller,
    RawQuery(query): RawQuery,
) -> Result<Reply, ApiError> {
    let limit = match parameter(query.as_deref(), "limit") {
        None => USUAL_LIMIT,
        Some(text) => limit(&text)?,
    };
    let before = parameter(query.as_deref(), "before");
    let before = before.as_deref().map(job_id).transpose()?;
    let jobs = store.jobs_of(caller.account, before, limit + 1).await;
    let jobs = jobs.map_err(unavailable)?;
    let has_more = jobs.len() > limit as usize;
    let jobs: Vec<Value> = jobs.iter().take(limit as usize).map(entry).collect();
    let next = jobs.last().map(|last| last["id"].clone());
    Ok(Reply(json!({
        "jobs": jobs,
        "next_before": next.filter(|_| has_more),
    })))
}

fn entry(job: &AccountJob) -> Value {
    json!({
        "id": job.job,
        "model": job.model,
        "kind": job.kind,
        "state": job.state,
        "reason": job.reason,
        "prompt_tokens": job.prompt_tokens,
        "completion_tokens": job.completion_tokens,
        "kudos": job.charge.0 as f64 / 1000.0,
        "cost_micro": job.cost.map(|cost| cost.0),
        "cost_usd": job.cost.map(MicroUsd::usd),
        "created": rfc3339(job.accepted_at),
        "duration_s": job.total_millis as f64 / 1000.0,
    })
}

fn limit(text: &str) -> Result<u32, ApiError> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=MAX_LIMIT).contains(number))
        .ok_or_else(|| {
            let message = format!("limit must be a number from 1 to {MAX_LIMIT}");
            Problem::invalid("limit", message).into()
        })
}

fn job_id(text: &str) -> Result<JobId, ApiError> {
    text.parse().map(JobId).map_err(|_| {
        let message = "before must be the id of a job, as next_before of the page before says it";
        Problem::invalid("before", message).into()
    })
}
