//! Deletion, suspension and export of accounts: by their own key, or by an operator or moderator.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::CONTENT_DISPOSITION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tracing::warn;

use super::{AccountCaller, unavailable};
use crate::accounts::Caller;
use crate::erasure::{AccountExport, ErasureError, Erasures, ExportError, pieces};
use crate::error::ApiError;
use crate::http::reply::{JSON, Reply};
use crate::media::Media;
use crate::storage::{AccountChange, Store};
use crate::values::alias::number;
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, FailureKind};

/// `DELETE /v1/account`
pub async fn delete_own(
    State(erasures): State<Erasures>,
    AccountCaller(caller): AccountCaller,
) -> Result<Reply, ApiError> {
    delete(&erasures, caller.account).await
}

/// `DELETE /v1/accounts/{id}`
pub async fn delete_other(
    (State(erasures), State(store)): (State<Erasures>, State<Store>),
    AccountCaller(caller): AccountCaller,
    Path(id): Path<String>,
) -> Result<Reply, ApiError> {
    let account = managed(&caller, &id, &store).await?;
    delete(&erasures, account).await
}

async fn delete(erasures: &Erasures, account: AccountId) -> Result<Reply, ApiError> {
    let deleted = erasures.delete(account).await.map_err(|error| {
        warn!("deleting an account failed: {error}");
        match error {
            ErasureError::Storage(error) => unavailable(error),
            ErasureError::Media(_) => {
                let message = "the account is deleted, deleting its media failed and is tried again within a minute";
                ApiError::new(FailureKind::StoreUnavailable, message)
            }
        }
    })?;
    done(
        deleted,
        json!({"account_id": account.0.to_string(), "deleted": true}),
    )
}

/// `PUT /v1/account/suspension`
pub async fn suspend_own(
    State(erasures): State<Erasures>,
    AccountCaller(caller): AccountCaller,
) -> Result<Reply, ApiError> {
    suspend(&erasures, caller.account, true).await
}

/// `PUT /v1/accounts/{id}/suspension`
pub async fn suspend_other(
    (State(erasures), State(store)): (State<Erasures>, State<Store>),
    AccountCaller(caller): AccountCaller,
    Path(id): Path<String>,
) -> Result<Reply, ApiError> {
    let account = managed(&caller, &id, &store).await?;
    suspend(&erasures, account, true).await
}

/// `DELETE /v1/accounts/{id}/suspension`
pub async fn lift_suspension(
    (State(erasures), State(store)): (State<Erasures>, State<Store>),
    AccountCaller(caller): AccountCaller,
    Path(id): Path<String>,
) -> Result<Reply, ApiError> {
    let account = managed(&caller, &id, &store).await?;
    suspend(&erasures, account, false).await
}

async fn suspend(
    erasures: &Erasures,
    account: AccountId,
    is_suspended: bool,
) -> Result<Reply, ApiError> {
    let changed = erasures.suspend(account, is_suspended).await;
    let reply = json!({"account_id": account.0.to_string(), "suspended": is_suspended});
    done(changed.map_err(unavailable)?, reply)
}

fn done(change: AccountChange, reply: Value) -> Result<Reply, ApiError> {
    match change {
        AccountChange::Done => Ok(Reply(reply)),
        AccountChange::Missing => Err(missing()),
        AccountChange::LastAdmin => {
            let message =
                "this account is the last administrator: give another account the role admin first";
            Err(ApiError::new(FailureKind::InvalidRequest, message).with_status(409))
        }
    }
}

/// `GET /v1/account/export`
pub async fn export_own(
    (State(store), State(media), State(tasks)): (State<Store>, State<Media>, State<Tasks>),
    AccountCaller(caller): AccountCaller,
) -> Response {
    export(store, media, &tasks, caller.account)
}

/// `GET /v1/accounts/{id}/export`
pub async fn export_other(
    (State(store), State(media), State(tasks)): (State<Store>, State<Media>, State<Tasks>),
    AccountCaller(caller): AccountCaller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let account = managed(&caller, &id, &store).await?;
    Ok(export(store, media, &tasks, account))
}

/// A failed export truncates the body.
fn export(store: Store, media: Media, tasks: &Tasks, account: AccountId) -> Response {
    let (pieces, read) = pieces();
    let export = AccountExport {
        store,
        media,
        account,
    };
    let stopping = tasks.stopping();
    tasks.start(async move { stopping.run_until_cancelled(export.write(pieces)).await });
    let pieces = unfold(read, |mut read| async move {
        let piece = read.recv().await?;
        if let Err(error @ ExportError::Erasure(_)) = &piece {
            warn!("exporting an account failed: {error}");
        }
        Some((piece, read))
    });
    let mut response = (StatusCode::OK, Body::from_stream(pieces)).into_response();
    let headers = response.headers_mut();
    headers.insert(axum::http::header::CONTENT_TYPE, JSON);
    let name = format!("attachment; filename=\"account-{}.json\"", account.0);
    if let Ok(name) = HeaderValue::try_from(name) {
        headers.insert(CONTENT_DISPOSITION, name);
    }
    response
}

/// The account of this number, if the caller may manage it.
async fn managed(caller: &Caller, id: &str, store: &Store) -> Result<AccountId, ApiError> {
    let account = number(id).map(AccountId).ok_or_else(missing)?;
    let found = store.account(account).await.map_err(unavailable)?;
    let found = found.ok_or_else(missing)?;
    if caller.account == account || caller.outranks(found.roles) {
        return Ok(account);
    }
    let message =
        "the account is of a moderator or an administrator: only an administrator may do this";
    Err(ApiError::new(FailureKind::AccessDenied, message))
}

fn missing() -> ApiError {
    let message = "no account has this number";
    ApiError::new(FailureKind::InvalidRequest, message).with_status(404)
}
