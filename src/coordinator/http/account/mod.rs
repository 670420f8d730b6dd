//! `/v1/account`: the account of a key. Every reply to a key is `no-store` (`entrance`).
//!
//! | file | contents |
//! | --- | --- |
//! | `keys` | the keys of the account: listed, created, revoked |
//! | `workers` | its workers |
//! | `jobs` | its latest jobs, without their contents |
//! | `credits` | its money, and quotes for requests |
//! | `lifecycle` | deletion, suspension and export of the account |

pub mod credits;
pub mod jobs;
pub mod keys;
pub mod lifecycle;
pub mod workers;

use std::sync::Arc;

use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use serde_json::{Value, json};

use super::reply::Reply;
use crate::accounts::{Accounts, Caller};
use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::local_models::LocalModelsSlot;
use crate::state::DoorSettings;
use crate::storage::{StorageError, Store};
use crate::values::{Roles, Scopes};
use muster_protocol::job::FailureKind;

/// The caller of an account route. Keys bound to a worker are in its configuration file, so they have no access here.
pub struct AccountCaller(pub Arc<Caller>);

impl<S: Send + Sync> FromRequestParts<S> for AccountCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Admitted(caller) = Admitted::from_request_parts(parts, state).await?;
        if caller.worker_name.is_none() {
            return Ok(Self(caller));
        }
        let message = "a key that is bound to a worker does not open the account: use another key";
        Err(ApiError::new(FailureKind::AccessDenied, message))
    }
}

/// `GET /v1/account`
pub async fn show(
    State(accounts): State<Accounts>,
    State(store): State<Store>,
    State(settings): State<Arc<DoorSettings>>,
    State(local): State<LocalModelsSlot>,
    AccountCaller(caller): AccountCaller,
) -> Result<Reply, ApiError> {
    let kudos = store.balance(caller.account).await.map_err(unavailable)?;
    let keys = accounts.keys_of(caller.account).await;
    let keys: Vec<Value> = keys.map_err(unavailable)?.iter().map(keys::entry).collect();
    Ok(Reply(json!({
        "account_id": caller.account.0.to_string(),
        "username": &*caller.name,
        "kudos": kudos.0 as f64 / 1000.0,
        // Kudos are not paid out, and accounts have no identities of other services.
        "wallet": null,
        "payout_wallet": null,
        "identities": [],
        "payout": null,
        "keys": keys,
        "charging": {
            "mode": settings.charging.mode(),
            "charged": settings.charging.includes(caller.login.as_deref()),
        },
        "limits": {
            "requests_per_minute": settings.requests_per_minute,
            "chat_messages": settings.chat_messages,
            "free_requests_per_day": settings.free_requests_per_day,
        },
        "worker_page": worker_page(&caller, &local).await,
    })))
}

/// The link opens the owner's page of the worker beside the coordinator, for keys that may operate both.
async fn worker_page(caller: &Caller, local: &LocalModelsSlot) -> Option<String> {
    let may = caller.may(Scopes::ACCOUNT_MANAGE) && caller.has(Roles::ADMIN);
    local.get().filter(|_| may)?.worker_page().await
}

pub fn unavailable(_: StorageError) -> ApiError {
    let message = "reading the account failed: the database does not answer; retry later";
    ApiError::new(FailureKind::StoreUnavailable, message)
}
