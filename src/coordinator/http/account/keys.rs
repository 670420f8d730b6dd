//! `/v1/account/keys`: keys of the caller's account. The text of a key is in the reply that creates it and nowhere else.

use std::time::Duration;

use axum::extract::{Path, State};
use serde_json::{Value, json};

use super::{AccountCaller, unavailable};
use crate::accounts::{Accounts, Caller, KeyOrder};
use crate::clock::{rfc3339, wall_clock};
use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::generation::bodies::read;
use crate::http::reply::Reply;
use crate::storage::{KeyLimit, KeyRow};
use crate::values::Scopes;
use muster_protocol::job::FailureKind;
use muster_protocol::openai::Problem;
use muster_protocol::openai::account::KeyRequest;

/// Keys of one account that are neither revoked nor expired.
const MAX_KEYS: usize = 100;
/// Keys of one account, revoked and expired ones included: they stay for the record.
const MAX_ROWS: usize = 10_000;
const LIMIT: KeyLimit = KeyLimit {
    valid: MAX_KEYS as i64,
    rows: MAX_ROWS as i64,
};

pub async fn list(
    State(accounts): State<Accounts>,
    AccountCaller(caller): AccountCaller,
) -> Result<Reply, ApiError> {
    let keys = accounts.keys_of(caller.account).await;
    let keys: Vec<Value> = keys.map_err(unavailable)?.iter().map(entry).collect();
    Ok(Reply(json!({"count": keys.len(), "keys": keys})))
}

pub async fn create(
    State(accounts): State<Accounts>,
    member: Result<AccountCaller, ApiError>,
    whole: Result<Whole, ApiError>,
) -> Result<Reply, ApiError> {
    let (whole, AccountCaller(caller)) = (whole?, member?);
    let request = read(whole, KeyRequest::read).await?;
    let order = order(request, &caller)?;
    let keys = accounts.keys_of(caller.account).await;
    let keys = keys.map_err(unavailable)?;
    if keys.iter().filter(|key| is_valid(key)).count() >= MAX_KEYS {
        return Err(too_many());
    }
    if keys.len() >= MAX_ROWS {
        let message = format!("the account has had {MAX_ROWS} keys: ask the operator for more");
        return Err(ApiError::new(FailureKind::InvalidRequest, message).with_status(409));
    }
    let expires = order.lifetime.map(|lifetime| wall_clock().after(lifetime));
    let account = caller.account;
    let made = accounts.create_key_within(account, order.clone(), Some(LIMIT));
    let made = made.await.map_err(unavailable)?;
    let made = made.ok_or_else(too_many)?;
    Ok(Reply(json!({
        "api_key": made.text.expose(),
        "id": made.public_id,
        "label": order.label,
        "purpose": "inference",
        "scopes": order.scopes.names().collect::<Vec<_>>(),
        "worker": order.worker_name,
        "expires": expires.map(rfc3339),
    })))
}

pub async fn revoke(
    State(accounts): State<Accounts>,
    AccountCaller(caller): AccountCaller,
    Path(id): Path<String>,
) -> Result<Reply, ApiError> {
    let keys = accounts.keys_of(caller.account).await;
    let keys = keys.map_err(unavailable)?;
    if !keys.iter().any(|key| key.public_id == id) {
        let message = "the account has no key of this id; GET /v1/account/keys lists the ids";
        return Err(ApiError::new(FailureKind::InvalidRequest, message).with_status(404));
    }
    let revoked = accounts.revoke_key(&id).await.map_err(unavailable)?;
    Ok(Reply(json!({
        "id": id,
        "revoked": true,
        "count": u8::from(revoked),
    })))
}

/// A key as its owner sees it later.
pub fn entry(key: &KeyRow) -> Value {
    json!({
        "id": key.public_id,
        "label": key.label,
        "scopes": key.scopes.names().collect::<Vec<_>>(),
        "worker": key.worker_name,
        "created": rfc3339(key.created_at),
        // Uses of keys are not recorded.
        "last_used": null,
        "expires": key.expires_at.map(rfc3339),
        "revoked": key.revoked_at.is_some(),
    })
}

fn too_many() -> ApiError {
    let message = format!("the account has {MAX_KEYS} valid keys: revoke some first");
    ApiError::new(FailureKind::InvalidRequest, message).with_status(409)
}

fn is_valid(key: &KeyRow) -> bool {
    key.revoked_at.is_none() && key.expires_at.is_none_or(|expiry| expiry > wall_clock())
}

/// No more than the caller's own key is good for, and no longer.
fn order(request: KeyRequest, caller: &Caller) -> Result<KeyOrder, ApiError> {
    let scopes = match &request.scopes {
        Some(names) => named(names)?,
        None => usual(request.worker.is_some(), caller.scopes),
    };
    if scopes == Scopes::NONE {
        let message = "scopes must name at least one scope";
        return Err(Problem::invalid("scopes", message).into());
    }
    let beyond = scopes.without(caller.scopes);
    if beyond != Scopes::NONE {
        let beyond = beyond.names().collect::<Vec<_>>().join(" and ");
        let message = format!("a key cannot create a key with more scopes: it lacks {beyond}");
        return Err(ApiError::new(FailureKind::AccessDenied, message));
    }
    Ok(KeyOrder {
        label: request.label,
        scopes,
        worker_name: request.worker,
        lifetime: lifetime(request.expires_in_secs.map(Duration::from_secs), caller)?,
        joins: false,
    })
}

fn named(names: &[String]) -> Result<Scopes, ApiError> {
    let known = names.iter().map(|name| {
        Scopes::named(name).ok_or_else(|| {
            let known = Scopes::ALL.names().collect::<Vec<_>>().join(", ");
            Problem::invalid("scopes", format!("known scopes: {known}")).into()
        })
    });
    known.collect()
}

/// The default scopes of a new key, as far as the caller's own key has them.
fn usual(is_for_worker: bool, own: Scopes) -> Scopes {
    let usual = match is_for_worker {
        true => Scopes::WORKER_CONNECT,
        false => Scopes::INFERENCE_SUBMIT.with(Scopes::ACCOUNT_READ),
    };
    usual.without(Scopes::ALL.without(own))
}

fn lifetime(asked: Option<Duration>, caller: &Caller) -> Result<Option<Duration>, ApiError> {
    let own = caller.expires_at.map(|at| at.since(wall_clock()));
    match (asked, own) {
        (Some(asked), Some(own)) if asked > own => {
            let message = "expires_in is later than the calling key expires";
            Err(Problem::invalid("expires_in", message).into())
        }
        (asked, own) => Ok(asked.or(own)),
    }
}
