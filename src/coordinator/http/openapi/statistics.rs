//! Replies of status, statistics, jobs and styles.

use serde_json::{Value, json};

use super::operation::query;
use super::service::{count, list, object, text, texts, word};
use crate::http::route::Route;

/// The schema of the reply of a route that is described here.
pub fn reply(route: &Route) -> Option<&'static str> {
    Some(match (route.method, route.path) {
        ("GET", "/v1/status/models") => "StatusModels",
        ("GET", "/v1/status/network") => "StatusNetwork",
        ("GET", "/v1/status/routing") => "StatusRouting",
        ("GET", "/v1/stats/totals") => "StatsTotals",
        ("GET", "/v1/stats/models") => "StatsModels",
        ("GET", "/v1/jobs/recent") => "RecentJobs",
        ("POST", "/v1/jobs/{id}/cancel") => "CancelledJob",
        ("GET", "/v1/progress/{token}") => "JobProgress",
        ("GET", "/v1/styles") => "PublicStyles",
        ("GET", "/v1/workers/self") => "WorkerSelf",
        _ => return None,
    })
}

pub fn parameters(route: &Route) -> Vec<Value> {
    match (route.method, route.path) {
        ("GET", "/v1/stats/models") => {
            let about = "minute, hour, day, month or total; anything else is month.";
            vec![query("period", "string", about)]
        }
        ("GET", "/v1/jobs/recent") => {
            let mut limit = query("limit", "integer", "Number of jobs.");
            limit["schema"] =
                json!({"type": "integer", "minimum": 1, "maximum": 100, "default": 50});
            vec![limit]
        }
        ("GET", "/v1/styles") => {
            let mut kind = query("job_type", "string", "Type of the styles; all if absent.");
            kind["schema"]["enum"] = json!(["image", "text", "video"]);
            vec![kind]
        }
        ("GET", "/v1/workers/self") => {
            let about = "Worker name, for a key that is not bound to one worker.";
            vec![query("name", "string", about)]
        }
        _ => Vec::new(),
    }
}

pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("StatusModels", list(&status_model())),
        ("StatusNetwork", network()),
        ("StatusRouting", routing()),
        ("StatsTotals", totals()),
        ("StatsModels", model_stats()),
        ("RecentJobs", recent_jobs()),
        ("CancelledJob", cancelled_job()),
        ("JobProgress", progress()),
        ("PublicStyles", styles()),
        ("WorkerSelf", worker_self()),
        ("ModelParams", model_params()),
    ]
}

fn status_model() -> Value {
    all_but(
        &["capabilities", "limits"],
        json!({
            "name": text(),
            "count": about(count(), "Workers that serve it."),
            "type": text(),
            "max_context_length": {"type": ["integer", "null"], "description": "Tokens; the longest of all workers."},
            "samples": about(count(), "Jobs delivered in the last 24 hours."),
            "tokens_per_s": amount(),
            "avg_ttft_s": amount(),
            "avg_latency_s": amount(),
            "capabilities": texts(),
            "limits": {"type": "object", "description": "As in /v1/models."},
        }),
    )
}

fn network() -> Value {
    let model = all(json!({
        "name": text(), "type": text(), "workers": count(), "capabilities": texts(),
    }));
    let capacity = all(json!({
        "workers_online": count(),
        "models_online": count(),
        "redundancy_target": about(count(), "Workers that each model should have."),
        "models_below_target": texts(),
        "models": list(&model),
    }));
    let incident = all(json!({
        "code": text(), "component": text(), "severity": text(), "summary": text(),
    }));
    all(json!({
        "schema": word(&["muster.network.status.v1"]),
        "generated_at": text(),
        "status": word(&["operational", "degraded"]),
        "build_commit": {"type": ["string", "null"]},
        "core": all(json!({
            "api": flag(),
            "database": about(flag(), "Whether the database is reachable."),
            "redis": about(flag(), "Always false: this coordinator uses no Redis."),
        })),
        "capacity": capacity,
        "validators": {"type": "null"},
        "payouts": {"type": "null"},
        "charging": all(json!({"mode": word(&["off", "allowlist", "on"]), "global": flag()})),
        "incidents": list(&incident),
        "incident_history_available": flag(),
        "advisories": texts(),
        "architecture": all(json!({
            "coordinators": count(), "worker_transports": texts(), "reward_unit": text(),
        })),
    }))
}

fn routing() -> Value {
    let score = all(json!({
        "score": about(number(), "Place in the order of auto: 1 is the first choice."),
        "quality": about(number(), "Size of the model; 1 is the largest online."),
        "failed_rate": amount(),
        "tps": amount(),
        "latency": amount(),
    }));
    let none = || json!({"type": "null"});
    all(json!({
        "scores": {"type": "object", "additionalProperties": score},
        "worker_scores": {
            "type": "object",
            "additionalProperties": number(),
            "description": "By model|worker: measured speed; 1 is the fastest worker of the model.",
        },
        "weights": all(json!({
            "quality": none(), "throughput": none(), "latency": none(), "failure": none(),
        })),
        "order": about(texts(), "What auto compares, the most important first."),
        "pin": none(),
        "score_ttl_s": number(),
        "window_hours": count(),
    }))
}

fn totals() -> Value {
    let by_type = || json!({"type": "object", "additionalProperties": all(sums())});
    all(json!({"day": by_type(), "month": by_type(), "total": by_type()}))
}

fn model_stats() -> Value {
    let mut model = sums();
    model["name"] = text();
    model["type"] = text();
    model["samples"] = count();
    model["tokens_per_s"] = amount();
    model["avg_ttft_s"] = amount();
    model["avg_latency_s"] = amount();
    all(json!({
        "period": word(&["minute", "hour", "day", "month", "total"]),
        "models": list(&all(model)),
    }))
}

fn sums() -> Value {
    json!({
        "jobs": about(count(), "Delivered jobs."),
        "den": about(number(), "Kudos that workers earned."),
        "units": about(count(), "Tokens of texts; outputs of other types."),
    })
}

fn recent_jobs() -> Value {
    let none = || json!({"type": ["string", "null"]});
    let job = all(json!({
        "job_id": text(),
        "model": text(),
        "type": text(),
        "worker": about(none(), "Name of the worker; null if it was deleted."),
        "den": about(number(), "Kudos that the worker earned."),
        "output_units": count(),
        "duration_s": number(),
        "ttft_s": amount(),
        "tokens_per_s": amount(),
        "prompt_hash": none(),
        "result_hash": none(),
        "signed": flag(),
        "created": text(),
    }));
    all(json!({"jobs": list(&job)}))
}

fn cancelled_job() -> Value {
    all(json!({
        "id": text(),
        "state": about(
            word(&["cancelled", "delivered", "failed", "expired"]),
            "How the job ended; not cancelled if it had ended before.",
        ),
    }))
}

fn progress() -> Value {
    all(json!({
        "progress": {"type": ["integer", "null"], "minimum": 0, "maximum": 100, "description": "Percent."},
    }))
}

fn styles() -> Value {
    let style = all(json!({
        "id": text(),
        "name": text(),
        "description": {"type": ["string", "null"]},
        "model": {"type": ["string", "null"]},
        "job_type": word(&["image", "text"]),
        "aspect": {"type": ["string", "null"]},
        "locked": about(texts(), "Parameters that the style sets."),
        "nsfw": flag(),
    }));
    all(json!({"styles": list(&style)}))
}

fn worker_self() -> Value {
    let worker = all(json!({
        "name": text(),
        "online": flag(),
        "maintenance": flag(),
        "last_seen": {"type": ["string", "null"]},
        "models": texts(),
        "job_types": texts(),
        "jobs_completed": {"type": "integer"},
        "den_recorded": about(number(), "Kudos."),
    }));
    all(json!({
        "schema": word(&["muster.worker.self.v1"]),
        "worker": worker,
        "payout": {"type": "null"},
    }))
}

fn model_params() -> Value {
    let param = object(
        json!({
            "type": text(),
            "minimum": number(),
            "maximum": number(),
            "maxLength": about(count(), "In characters."),
            "options": {"type": "array", "items": {}},
            "default": {},
        }),
        &["type"],
    );
    all_but(
        &["route", "passthrough", "note", "capabilities"],
        json!({
            "model": text(),
            "job_type": text(),
            "route": about(text(), "Where requests for the model go."),
            "params": {"type": "object", "additionalProperties": param},
            "passthrough": about(flag(), "Whether unknown fields are forwarded."),
            "note": text(),
            "capabilities": all(json!({"img2img": flag(), "loras": flag(), "strength": flag()})),
        }),
    )
}

/// Every property is required.
pub(super) fn all(properties: Value) -> Value {
    all_but(&[], properties)
}

fn all_but(optional: &[&str], properties: Value) -> Value {
    let names = properties.as_object().into_iter().flatten();
    let names: Vec<String> = names
        .map(|(name, _)| name.clone())
        .filter(|name| !optional.contains(&name.as_str()))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    object(properties.clone(), &names)
}

pub(super) fn about(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

pub(super) fn number() -> Value {
    json!({"type": "number"})
}

fn amount() -> Value {
    json!({"type": ["number", "null"]})
}

pub(super) fn flag() -> Value {
    json!({"type": "boolean"})
}
