//! Totals of delivered jobs by kind and by model, and the latest jobs. These routes need no key, so their replies name
//! no client, no prompt and no result. `den` is the workers' earnings, in kudos.

use axum::extract::{RawQuery, State};
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::reply::Reply;
use crate::clock::rfc3339;
use crate::error::ApiError;
use crate::stats::{MOST_RECENT, Made, Picture, RecentJob, Stats, Window};
use crate::storage::StorageError;
use muster_protocol::job::{FailureKind, Kind};
use muster_protocol::openai::Problem;

/// Default length of the list.
const USUAL_RECENT: u32 = 50;
const USUAL_PERIOD: &str = "month";

/// `GET /v1/stats/totals`
pub async fn totals(State(stats): State<Stats>) -> Result<Reply, ApiError> {
    let picture = stats.picture().await.map_err(unavailable)?;
    Ok(Reply(json!({
        "day": by_kind(&picture.day),
        "month": by_kind(&picture.month),
        "total": by_kind(&picture.ever),
    })))
}

/// `GET /v1/stats/models?period=`: an unknown period counts as the usual one.
pub async fn models(
    State(stats): State<Stats>,
    RawQuery(query): RawQuery,
) -> Result<Reply, ApiError> {
    let picture = stats.picture().await.map_err(unavailable)?;
    let wanted = parameter(query.as_deref(), "period");
    let (period, window) = window(&picture, wanted.as_deref().unwrap_or(USUAL_PERIOD));
    let mut models: Vec<(u64, Value)> = Vec::new();
    for by in window.all() {
        if by.model.is_empty() || by.made.delivered == 0 {
            continue;
        }
        let mut entry = sums(by.kind, by.made);
        entry["name"] = by.model.as_str().into();
        entry["type"] = by.kind.word().into();
        entry["samples"] = by.made.delivered.into();
        let speed = by.made.speed().filter(|_| by.kind == Kind::Text);
        entry["tokens_per_s"] = json!(speed);
        entry["avg_ttft_s"] = json!(by.made.first_output_seconds());
        entry["avg_latency_s"] = json!(by.made.total_seconds());
        models.push((by.made.delivered, entry));
    }
    models.sort_by_key(|(jobs, entry)| (std::cmp::Reverse(*jobs), entry["name"].to_string()));
    let models: Vec<Value> = models.into_iter().map(|(_, entry)| entry).collect();
    Ok(Reply(json!({"period": period, "models": models})))
}

/// `GET /v1/jobs/recent?limit=`
pub async fn recent(
    State(stats): State<Stats>,
    RawQuery(query): RawQuery,
) -> Result<Reply, ApiError> {
    let limit = match parameter(query.as_deref(), "limit") {
        None => USUAL_RECENT,
        Some(text) => limit(&text)?,
    };
    let recent = stats.recent().await.map_err(unavailable)?;
    let jobs: Vec<Value> = recent.iter().take(limit as usize).map(job).collect();
    Ok(Reply(json!({"jobs": jobs})))
}

pub fn unavailable(_: StorageError) -> ApiError {
    let message = "the statistics are unavailable: the database does not answer; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}

/// The first value of this name.
pub fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
}

fn limit(text: &str) -> Result<u32, ApiError> {
    let number = text.parse().ok();
    number
        .filter(|number| (1..=MOST_RECENT).contains(number))
        .ok_or_else(|| {
            let message = format!("limit must be a number from 1 to {MOST_RECENT}");
            Problem::invalid("limit", message).into()
        })
}

fn window<'a>(picture: &'a Picture, period: &str) -> (&'static str, &'a Window) {
    match period {
        "minute" => ("minute", &picture.minute),
        "hour" => ("hour", &picture.hour),
        "day" => ("day", &picture.day),
        "total" => ("total", &picture.ever),
        _ => (USUAL_PERIOD, &picture.month),
    }
}

fn by_kind(window: &Window) -> Map<String, Value> {
    let all = Kind::each();
    let all = all.filter(|kind| kind.listed_as() == *kind);
    let all = all.map(|kind| (kind, window.total(kind)));
    let done = all.filter(|(_, made)| made.delivered > 0);
    done.map(|(kind, made)| (kind.word().to_owned(), sums(kind, made)))
        .collect()
}

fn sums(kind: Kind, made: Made) -> Value {
    json!({"jobs": made.delivered, "den": made.kudos(), "units": made.units(kind)})
}

fn job(job: &RecentJob) -> Value {
    let seconds = |millis: i64| millis as f64 / 1000.0;
    let writing = job.total_millis - job.first_output_millis.unwrap_or(0);
    let is_text = job.kind == "text";
    let speed =
        (is_text && writing > 0 && job.units > 0).then(|| job.units as f64 / seconds(writing));
    json!({
        "job_id": job.job,
        "model": job.model,
        "type": job.kind,
        "worker": job.worker,
        "den": job.reward.0 as f64 / 1000.0,
        "output_units": job.units,
        "duration_s": seconds(job.total_millis),
        "ttft_s": job.first_output_millis.map(seconds),
        "tokens_per_s": speed,
        // Neither prompts nor results are hashed or signed here.
        "prompt_hash": null,
        "result_hash": null,
        "signed": false,
        "created": rfc3339(job.ended_at),
    })
}

#[cfg(test)]
mod tests {
    use super::{job, limit, parameter};
    use crate::storage::RecentJob;
    use muster_protocol::job::{Kudos, UnixMillis};

    #[test]
    fn a_recent_job_tells_how_it_went_and_not_whose_it_was() {
        let shown = job(&RecentJob {
            job: "id".to_owned(),
            kind: "text".to_owned(),
            model: "tiny".to_owned(),
            worker: None,
            reward: Kudos(1500),
            units: 20,
            first_output_millis: Some(500),
            total_millis: 2500,
            ended_at: UnixMillis(0),
        });
        assert_eq!(shown["den"], 1.5);
        assert_eq!(shown["tokens_per_s"], 10.0);
        assert_eq!(shown["created"], "1970-01-01T00:00:00Z");
        assert!(shown.get("account").is_none());
    }

    #[test]
    fn a_limit_is_a_number_from_1_to_100() {
        assert_eq!(limit("100").ok(), Some(100));
        for wrong in ["0", "101", "-1", "many", ""] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            parameter(Some("a=1&limit=7"), "limit").as_deref(),
            Some("7")
        );
        assert_eq!(parameter(None, "limit"), None);
    }
}
