//! `DELETE /api/v2/users/{id}`: the first call marks an account and deletes its responses, requests, results and media;
//! a call a month later wipes the account.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use tracing::warn;

use super::super::asked::Named;
use super::{person, unreadable};
use crate::accounts::{ANONYMOUS, Caller};
use crate::erasure::Erasures;
use crate::http::admitted::Admitted;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::people::People;
use crate::storage::{Left, PersonRow};
use muster_protocol::legacy::{Code, Refusal};

pub async fn leave(
    (State(people), State(erasures)): (State<People>, State<Erasures>),
    Admitted(caller): Admitted,
    path: Named,
) -> Result<Response, Refused> {
    let found = person(&people, path.text("id")).await?;
    allow(&caller, &found)?;
    let left = people.leave(found.account).await.map_err(unreadable)?;
    if matches!(left, Left::Marked | Left::Wiped) {
        // A later pass deletes the rest.
        if let Err(error) = erasures.erase(found.account).await {
            warn!("deleting the contents of an account failed, retrying later: {error}");
        }
    }
    match left {
        Left::Marked | Left::Wiped => Ok(reply::json(StatusCode::OK, &json!({"message": "OK"}))),
        Left::TooSoon => Err(Code::CannotWipeActiveUser.into()),
        Left::Nobody => Err(Code::UserNotFound.into()),
    }
}

fn allow(caller: &Caller, leaves: &PersonRow) -> Result<(), Refusal> {
    let is_anonymous = caller.account == ANONYMOUS || leaves.account == ANONYMOUS;
    Code::AnonForbiddenUser.when(is_anonymous)?;
    let may = caller.account == leaves.account || caller.roles.moderates();
    Code::NotUserOrMod.when(!may)?;
    Code::CannotDeleteMod.when(leaves.roles.moderates())
}
