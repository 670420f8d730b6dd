//! Responses that are read, listed, cancelled and deleted.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::auth::Admitted;
use crate::http::reply::Reply;
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
    Admitted(caller): Admitted,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let parameter = |name| parameter(query.as_deref(), name);
    let found = find(&responses, &id, caller.account).await?;
    if parameter("stream").as_deref() != Some("true") {
        return Ok(Reply(found.response).into_response());
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
    let live = live
        .filter(|live| live.is_background)
        .ok_or_else(events::lost)?;
    events::follow(live, after, (settings.heartbeat, tasks.stopping()))
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

/// `POST /v1/responses/{id}/cancel`: one that has ended stays as it ended.
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
        return Ok(Reply(found.response));
    };
    let mut changes = live.changes();
    live.cancel();
    let ending = async { while !live.is_ended() && changes.changed().await.is_ok() {} };
    if tasks.stopping().run_until_cancelled(ending).await.is_none() {
        let message =
            "the coordinator is shutting down: cancel the response again after its restart";
        return Err(ApiError::new(FailureKind::ShuttingDown, message));
    }
    Ok(Reply(live.response().unwrap_or(found.response)))
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
