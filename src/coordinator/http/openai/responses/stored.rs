//! Stored responses: read, list, cancel, delete.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::reply::{Reply, text_in};
use crate::http::room::Memory;
use crate::http::statistics::parameter;
use crate::responses::{Responses, StoredResponse};
use crate::state::DoorSettings;
use muster_process::tasks::Tasks;
use muster_protocol::job::{AccountId, FailureKind};
use muster_protocol::openai::Problem;

use super::create::no_store;
use super::events;

const USUAL_ITEMS: usize = 20;
const MOST_ITEMS: usize = 100;

/// `GET /v1/responses/{id}?stream=&starting_after=`
pub async fn show(
    State(responses): State<Responses>,
    (State(settings), State(tasks)): (State<Arc<DoorSettings>>, State<Tasks>),
    State(memory): State<Memory>,
    Admitted(caller): Admitted,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let parameter = |name| parameter(query.as_deref(), name);
    if parameter("stream").as_deref() != Some("true") {
        return show_whole(&responses, &memory, &id, caller.account).await;
    }
    let after = match parameter("starting_after") {
        None => 0,
        Some(text) => text
            .parse::<usize>()
            .ok()
            .and_then(|number| number.checked_add(1))
            .ok_or_else(|| {
                let message = "starting_after must be a sequence number";
                Problem::invalid("starting_after", message)
            })?,
    };
    let live = responses.live(&id, caller.account);
    let Some(live) = live.filter(|live| live.is_background) else {
        find(&responses, &id, caller.account).await?;
        return Err(events::lost());
    };
    events::follow(live, after, (settings.heartbeat, tasks.stopping()))
}

/// The stored response, without parsing it.
async fn show_whole(
    responses: &Responses,
    memory: &Memory,
    id: &str,
    account: AccountId,
) -> Result<Response, ApiError> {
    let text = responses.find_text(id, account).await;
    let text = text.map_err(|_| no_store())?.ok_or_else(|| unknown(id))?;
    let mut room = memory.room_to_tell();
    room.cover_in_time(text.len()).await?;
    Ok(text_in(room, StatusCode::OK, text.into()))
}

/// `GET /v1/responses/{id}/input_items?order=&limit=&after=`
pub async fn input_items(
    State(responses): State<Responses>,
    Admitted(caller): Admitted,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Reply, ApiError> {
    let parameter = |name| parameter(query.as_deref(), name);
    let mut items = find(&responses, &id, caller.account).await?.input;
    match parameter("order").as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(_) => return Err(Problem::invalid("order", "order must be asc or desc").into()),
    }
    let limit = match parameter("limit") {
        None => USUAL_ITEMS,
        Some(text) => text
            .parse()
            .ok()
            .filter(|number| (1..=MOST_ITEMS).contains(number))
            .ok_or_else(|| {
                let message = format!("limit must be an integer from 1 to {MOST_ITEMS}");
                Problem::invalid("limit", message)
            })?,
    };
    if let Some(after) = parameter("after") {
        let place = items.iter().position(|item| item["id"] == after.as_str());
        let place = place.ok_or_else(|| {
            let message = "after must be the id of an item of this response";
            Problem::invalid("after", message)
        })?;
        items.drain(..=place);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    Ok(Reply(json!({
        "object": "list",
        "first_id": items.first().map(|item| &item["id"]),
        "last_id": items.last().map(|item| &item["id"]),
        "has_more": has_more,
        "data": items,
    })))
}

/// `POST /v1/responses/{id}/cancel`: a response that has ended stays unchanged.
pub async fn cancel(
    (State(responses), State(tasks)): (State<Responses>, State<Tasks>),
    Admitted(caller): Admitted,
    Path(id): Path<String>,
) -> Result<Reply, ApiError> {
    let found = find(&responses, &id, caller.account).await?;
    if found.response["background"] != true {
        let message =
            "only background responses can be cancelled: close the connection of the others";
        return Err(ApiError::new(FailureKind::InvalidRequest, message));
    }
    let Some(live) = responses.live(&id, caller.account) else {
        return cancel_stored(&responses, &id, caller.account, found.response).await;
    };
    drop(found);
    let mut changes = live.changes();
    live.cancel();
    let ending = async { while !live.is_ended() && changes.changed().await.is_ok() {} };
    if tasks.stopping().run_until_cancelled(ending).await.is_none() {
        let message =
            "the coordinator is shutting down: cancel the response again after its restart";
        return Err(ApiError::new(FailureKind::ShuttingDown, message));
    }
    let found = find(&responses, &id, caller.account).await?;
    Ok(Reply(found.response))
}

/// Cancels a response of an earlier process that has not started again yet.
async fn cancel_stored(
    responses: &Responses,
    id: &str,
    account: AccountId,
    response: Value,
) -> Result<Reply, ApiError> {
    let cancelled = responses.cancel_stored(id, account, &response).await;
    Ok(Reply(
        cancelled.map_err(|_| no_store())?.unwrap_or(response),
    ))
}

/// `DELETE /v1/responses/{id}`
pub async fn delete(
    State(responses): State<Responses>,
    Admitted(caller): Admitted,
    Path(id): Path<String>,
) -> Result<Reply, ApiError> {
    let deleted = responses.delete(&id, caller.account).await;
    match deleted.map_err(|_| no_store())? {
        true => Ok(Reply(deleted_reply(&id))),
        false => Err(unknown(&id)),
    }
}

fn deleted_reply(id: &str) -> Value {
    json!({"id": id, "object": "response.deleted", "deleted": true})
}

async fn find(
    responses: &Responses,
    id: &str,
    account: AccountId,
) -> Result<StoredResponse, ApiError> {
    let found = responses.find(id, account).await;
    found.map_err(|_| no_store())?.ok_or_else(|| unknown(id))
}

/// The same for a response of another account: its existence is a secret.
fn unknown(id: &str) -> ApiError {
    let message = format!(
        "no stored response of your account has the id {:?}",
        muster_protocol::openai::nearest::shortened(id)
    );
    ApiError::new(FailureKind::InvalidRequest, message).with_status(404)
}
