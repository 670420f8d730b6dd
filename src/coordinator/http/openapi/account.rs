//! Bodies and replies of account routes.

use serde_json::{Value, json};

use super::operation::query;
use super::service::{count, list, text, texts, word};
use super::statistics::{about, all, flag, number};
use crate::http::route::Route;
use crate::storage::ExportSection;
use muster_protocol::openai::account::{KEY_FIELDS, QUOTE_FIELDS};
use muster_protocol::openai::field;

/// The schema of the reply of a route that is described here.
pub fn reply(route: &Route) -> Option<&'static str> {
    Some(match (route.method, route.path) {
        ("GET", "/v1/account") => "Account",
        ("GET", "/v1/account/keys") => "AccountKeys",
        ("POST", "/v1/account/keys") => "NewAccountKey",
        ("DELETE", "/v1/account/keys/{id}") => "RevokedKey",
        ("GET", "/v1/account/workers") => "AccountWorkers",
        ("GET", "/v1/account/jobs") => "AccountJobs",
        ("GET", "/v1/account/credits") => "AccountCredits",
        ("POST", "/v1/account/credits/quote") => "CreditQuote",
        ("GET", "/v1/account/export" | "/v1/accounts/{id}/export") => "AccountExport",
        ("DELETE", "/v1/account" | "/v1/accounts/{id}") => "DeletedAccount",
        ("PUT", "/v1/account/suspension") => "AccountSuspension",
        (_, "/v1/accounts/{id}/suspension") => "AccountSuspension",
        _ => return None,
    })
}

/// The schema of the body that it takes.
pub fn body(route: &Route) -> Option<&'static str> {
    Some(match (route.method, route.path) {
        ("POST", "/v1/account/keys") => "AccountKeyRequest",
        ("POST", "/v1/account/credits/quote") => "CreditQuoteRequest",
        _ => return None,
    })
}

pub fn parameters(route: &Route) -> Vec<Value> {
    match (route.method, route.path) {
        ("GET", "/v1/account/jobs") => {
            let mut limit = query("limit", "integer", "Number of jobs.");
            limit["schema"] =
                json!({"type": "integer", "minimum": 1, "maximum": 200, "default": 50});
            let before = "Job id: list the jobs accepted before it; next_before of the last page.";
            vec![limit, query("before", "string", before)]
        }
        _ => Vec::new(),
    }
}

pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("Account", account()),
        (
            "AccountKeys",
            all(json!({"count": count(), "keys": list(&key())})),
        ),
        ("AccountKeyRequest", field::schema(KEY_FIELDS, &[])),
        ("NewAccountKey", new_key()),
        ("RevokedKey", revoked_key()),
        ("AccountWorkers", workers()),
        ("AccountJobs", jobs()),
        ("AccountCredits", all(credits())),
        (
            "CreditQuoteRequest",
            field::schema(QUOTE_FIELDS, &["model"]),
        ),
        ("CreditQuote", quote()),
        ("AccountExport", export()),
        (
            "DeletedAccount",
            all(json!({"account_id": text(), "deleted": flag()})),
        ),
        (
            "AccountSuspension",
            all(json!({"account_id": text(), "suspended": flag()})),
        ),
    ]
}

/// A list for each table with data of the account.
fn export() -> Value {
    let mut fields = json!({
        "object": {"const": "account.export"},
        "account_id": text(),
        "exported": about(text(), "When the export began."),
        "media": list(&all(json!({"name": text(), "bytes": count(), "url": text()}))),
    });
    for section in ExportSection::ALL {
        fields[section.name()] = list(&json!({"type": "object"}));
    }
    all(fields)
}

fn account() -> Value {
    let none = || json!({"type": "null"});
    all(json!({
        "account_id": text(),
        "username": about(text(), "Display name."),
        "kudos": number(),
        "wallet": none(),
        "payout_wallet": none(),
        "identities": list(&json!({})),
        "payout": none(),
        "keys": list(&key()),
        "charging": all(json!({
            "mode": charging_mode(),
            "charged": about(flag(), "Whether requests of this account cost credits."),
        })),
        "limits": all(json!({
            "requests_per_minute": about(maybe_count(), "Generation requests per key; null: no limit."),
            "chat_messages": about(count(), "Messages of one chat request."),
            "free_requests_per_day": about(maybe_count(), "Requests per UTC day without paid credits; null: no limit."),
        })),
        "worker_page": about(maybe_text(), "For administrators: link to the page of the coordinator's own worker."),
    }))
}

fn key() -> Value {
    all(json!({
        "id": about(text(), "Not a secret."),
        "label": text(),
        "scopes": texts(),
        "worker": about(maybe_text(), "Name of the only worker that the key connects."),
        "created": text(),
        "last_used": about(json!({"type": "null"}), "Not recorded."),
        "expires": maybe_text(),
        "revoked": flag(),
    }))
}

fn new_key() -> Value {
    all(json!({
        "api_key": about(text(), "The key; shown once."),
        "id": text(),
        "label": text(),
        "purpose": word(&["inference"]),
        "scopes": texts(),
        "worker": maybe_text(),
        "expires": maybe_text(),
    }))
}

fn revoked_key() -> Value {
    all(json!({
        "id": text(),
        "revoked": flag(),
        "count": about(count(), "Keys that this request revoked: 0 if it was revoked before."),
    }))
}

fn workers() -> Value {
    let worker = all(json!({
        "id": about(text(), "The id of the worker in /api/v2/workers."),
        "name": text(),
        "type": text(),
        "models": texts(),
        "den_earned": about(number(), "Kudos."),
        "jobs_completed": count(),
        "last_seen": maybe_text(),
        "maintenance": flag(),
        "online": flag(),
    }));
    all(json!({
        "count": count(),
        "online": count(),
        "den_earned": about(number(), "Kudos."),
        "jobs_completed": count(),
        "workers": list(&worker),
    }))
}

fn jobs() -> Value {
    let job = all(json!({
        "id": text(),
        "model": text(),
        "kind": text(),
        "state": word(&["delivered", "failed", "cancelled", "expired"]),
        "reason": about(text(), "Finish reason, or code of the failure."),
        "prompt_tokens": count(),
        "completion_tokens": count(),
        "kudos": about(number(), "What the job cost in kudos."),
        "cost_micro": about(maybe_count(), "What the job cost in micro-USD; null if it was not charged."),
        "cost_usd": {"type": ["number", "null"]},
        "created": text(),
        "duration_s": number(),
    }));
    all(json!({
        "jobs": list(&job),
        "next_before": about(maybe_text(), "before of the next page; null at the end."),
    }))
}

fn charging_mode() -> Value {
    word(&["off", "allowlist", "on"])
}

fn credits() -> Value {
    let micro = || json!({"type": "integer", "description": "Micro-USD."});
    let midnight = || word(&["utc-midnight"]);
    json!({
        "account_id": text(),
        "promotional": all(json!({
            "remaining_micro": micro(), "remaining_usd": number(), "active": flag(),
        })),
        "free": all(json!({
            "daily_cap_micro": micro(),
            "daily_cap_usd": number(),
            "remaining_micro": micro(),
            "remaining_usd": number(),
            "resets": midnight(),
            "active": flag(),
        })),
        "paid": all(json!({"balance_micro": micro(), "balance_usd": number()})),
        "held_micro": about(micro(), "Held for open jobs; not in the other amounts."),
        "held_usd": number(),
        "total_spendable_micro": micro(),
        "total_spendable_usd": number(),
        "free_requests": all(json!({
            "daily_cap": about(maybe_count(), "Requests per UTC day without paid credits; null: no limit."),
            "remaining": maybe_count(),
            "resets": midnight(),
        })),
        "charging_enabled": about(flag(), "Whether requests of this account cost credits."),
        "charging_mode": charging_mode(),
        "charging_global": flag(),
    })
}

fn quote() -> Value {
    let micro = || json!({"type": "integer", "description": "Micro-USD."});
    let mut quote = credits();
    quote["estimate"] = all(json!({
        "priced": flag(),
        "reason": about(maybe_text(), "no_price: the model has no price for this kind of output."),
        "base_cost_micro": micro(),
        "discount_bps": count(),
        "cost_micro": micro(),
        "cost_usd": number(),
        "balance_sufficient": flag(),
        "from_promotional_micro": micro(),
        "from_daily_micro": micro(),
        "from_paid_micro": micro(),
        "shortfall_micro": micro(),
        "shortfall_usd": number(),
    }));
    all(quote)
}

fn maybe_text() -> Value {
    json!({"type": ["string", "null"]})
}

fn maybe_count() -> Value {
    json!({"type": ["integer", "null"], "minimum": 0})
}
