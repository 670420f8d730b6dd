//! The rows of an account, table by table, as JSON: times as text, kudos as numbers, without secrets.

use serde_json::{Map, Value};
use sqlx::any::{AnyRow, AnyTypeInfoKind};
use sqlx::{Column, Row, ValueRef};

use crate::clock::rfc3339;
use muster_protocol::job::{AccountId, UnixMillis};

use super::{StorageError, Store};

/// A section of the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportSection {
    name: &'static str,
    /// Parameters: account, limit, offset.
    query: &'static str,
    page: usize,
}

/// Page size for small rows.
const SMALL: usize = 500;
/// Page size for rows of megabytes.
const LARGE: usize = 4;

macro_rules! sections {
    ($($name:literal, $page:ident, $query:literal;)+) => {
        &[$(ExportSection {
            name: $name,
            query: concat!($query, " LIMIT $2 OFFSET $3"),
            page: $page,
        }),+]
    };
}

impl ExportSection {
    pub const ALL: &[Self] = sections! {
        "account", SMALL, "SELECT accounts.id, accounts.login, accounts.name, roles, created_at, people.login AS known_as, \
            contact, admin_comment, concurrency, worker_invited, public_workers, monthly_kudos, monthly_paid_at, \
            suspicion, deleted_at, kudos, held FROM accounts LEFT JOIN people ON people.account = accounts.id \
            LEFT JOIN balances ON balances.account = accounts.id WHERE accounts.id = $1";
        "records", SMALL, "SELECT * FROM records WHERE account = $1";
        "keys", SMALL, "SELECT public_id, label, scopes, worker_name, created_at, expires_at, revoked_at FROM keys \
            WHERE account = $1 ORDER BY id";
        "shared_keys", SMALL, "SELECT name, budget, utilized, expires_at, max_image_pixels, max_image_steps, \
            max_text_tokens, created_at FROM shared_keys WHERE owner = $1 ORDER BY created_at, id";
        "workers", SMALL, "SELECT public_id, name, created_at, agent, models, seen_at, info, maintenance_note, \
            worker_addresses.address FROM workers LEFT JOIN rigs ON rigs.worker = workers.id \
            LEFT JOIN worker_addresses ON worker_addresses.worker = workers.id WHERE owner = $1 ORDER BY workers.id";
        "worker_messages", SMALL, "SELECT id, message, origin, created_at, expires_at FROM worker_messages \
            WHERE author = $1 ORDER BY created_at, id";
        "teams", SMALL, "SELECT public_id, name, info, created_at FROM teams WHERE creator = $1 ORDER BY id";
        "styles", SMALL, "SELECT id, making, name, info, prompt, params, public, nsfw, tags, models, examples, \
            use_count, created_at FROM styles WHERE owner = $1 ORDER BY number";
        "collections", SMALL, "SELECT id, making, name, info, public, use_count, created_at FROM collections \
            WHERE owner = $1 ORDER BY number";
        "suspicions", SMALL, "SELECT reason, at FROM suspicions WHERE account = $1 ORDER BY id";
        "credits", SMALL, "SELECT paid AS paid_micro_usd, promotional AS promotional_micro_usd, day, requests \
            FROM credits WHERE account = $1";
        "credit_entries", SMALL, "SELECT job, promotional AS promotional_micro_usd, free AS free_micro_usd, \
            paid AS paid_micro_usd, at FROM credit_entries WHERE account = $1 ORDER BY id";
        "ledger", SMALL, "SELECT job, reason, amount, at FROM ledger WHERE account = $1 ORDER BY id";
        "opening_balance", SMALL, "SELECT kudos FROM openings WHERE account = $1";
        "jobs", SMALL, "SELECT job, request, kind, model, state, reason, attempts, prompt_tokens, completion_tokens, \
            charge, cost AS cost_micro_usd, accepted_at, queued_ms, first_output_ms, total_ms FROM settled \
            WHERE account = $1 ORDER BY accepted_at, job";
        "requests", LARGE, "SELECT id, kind, body, accepted_at, expires_at FROM requests WHERE account = $1 ORDER BY id";
        "results", LARGE, "SELECT job, request, model, state, reason, output, charge FROM results \
            WHERE request IN (SELECT id FROM requests WHERE account = $1) ORDER BY request, job";
        "responses", LARGE, "SELECT id, previous, response, input, body, created_at, expires_at FROM responses \
            WHERE account = $1 ORDER BY id";
    };

    pub fn name(self) -> &'static str {
        self.name
    }

    /// Rows per page.
    pub fn page(self) -> usize {
        self.page
    }
}

/// Columns in thousandths of kudos.
const KUDOS: &[&str] = &[
    "amount",
    "budget",
    "charge",
    "held",
    "kudos",
    "monthly_kudos",
    "utilized",
];
/// Columns of JSON text, exported as JSON if they parse.
const JSON: &[&str] = &[
    "body", "examples", "input", "models", "output", "params", "response", "tags",
];

impl Store {
    /// A page of a section from `offset` on. A short page is the last.
    pub async fn export_page(
        &self,
        section: ExportSection,
        account: AccountId,
        offset: usize,
    ) -> Result<Vec<Value>, StorageError> {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let rows = sqlx::query(section.query).bind(account.0);
        let rows = rows.bind(number(section.page)).bind(number(offset));
        let rows = rows.fetch_all(&self.readers).await?;
        rows.iter().map(object).collect()
    }
}

fn object(row: &AnyRow) -> Result<Value, StorageError> {
    let mut object = Map::new();
    for column in row.columns() {
        let (name, index) = (column.name(), column.ordinal());
        let value = row.try_get_raw(index)?;
        let value = match value.type_info().kind() {
            _ if value.is_null() => Value::Null,
            AnyTypeInfoKind::Text => text(name, row.try_get(index)?),
            AnyTypeInfoKind::Real | AnyTypeInfoKind::Double => row.try_get::<f64, _>(index)?.into(),
            _ => number(name, row.try_get(index)?),
        };
        object.insert(name.to_owned(), value);
    }
    Ok(Value::Object(object))
}

fn text(name: &str, text: String) -> Value {
    match JSON.contains(&name) {
        true => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        false => Value::String(text),
    }
}

fn number(name: &str, number: i64) -> Value {
    match name {
        "at" => rfc3339(UnixMillis(number)).into(),
        name if name.ends_with("_at") => rfc3339(UnixMillis(number)).into(),
        name if KUDOS.contains(&name) => (number as f64 / 1000.0).into(),
        _ => number.into(),
    }
}
