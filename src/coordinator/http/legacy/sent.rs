//! The stored fields of a request, for its owner. A client can submit them again unchanged.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value};

use super::asked::Named;
use super::requested::{COPIES, find};
use crate::accounts::{ANONYMOUS, Caller};
use crate::http::admitted::Admitted;
use crate::http::horde_refusal::Refused;
use crate::http::reply;
use crate::http::room::{Memory, Room};
use crate::requests::Requests;
use crate::requests::orders::Again;
use muster_protocol::job::Kind;
use muster_protocol::legacy::Code;

/// Fields that say how to handle the request, not what to generate; left out of the reply.
const UNTOLD: [&str; 2] = ["allow_downgrade", "dry_run"];
/// Returned only if false: public clients do not know the field, and the default is true.
const FILTERED: &str = "replacement_filter";

/// `GET /api/v2/generate/text/request/{id}`
pub async fn text(
    State(requests): State<Requests>,
    State(memory): State<Memory>,
    Admitted(caller): Admitted,
    path: Named,
) -> Result<Response, Refused> {
    let again = of(&requests, &caller, &path, Kind::Text).await?;
    let mut room = memory.room_to_tell();
    room.cover(again.bytes().saturating_mul(COPIES))?;
    Ok(answer(room, again.fields))
}

/// The request, if the caller sent it.
pub async fn of(
    requests: &Requests,
    caller: &Caller,
    path: &Named,
    kind: Kind,
) -> Result<Again, Refused> {
    // The anonymous key is public, so anonymous requests stay hidden.
    Code::AnonForbidden.when(caller.account == ANONYMOUS)?;
    let request = find(requests, path, kind).await?;
    let again = requests.again(request.id).await?;
    let again = again.ok_or(Code::RequestNotFound)?;
    Code::NotRequestOwner.when(!again.is_by(caller))?;
    Ok(again)
}

pub fn answer(room: Room, mut fields: Map<String, Value>) -> Response {
    let is_default = fields.get(FILTERED) == Some(&Value::Bool(true));
    fields.retain(|name, _| {
        let is_untold = UNTOLD.contains(&name.as_str()) || is_default && name == FILTERED;
        !is_untold
    });
    reply::json_in(room, StatusCode::OK, &fields)
}
