//! Messages to workers: create, read, delete, and delivery with pops.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::error::ApiError;
use crate::http::admitted::Admitted;
use crate::http::body::Whole;
use crate::http::horde_refusal::Refused;
use crate::http::legacy::asked::{Named, Query};
use crate::http::reply;
use crate::messages::{Messages, NotTold, Wanted};
use crate::storage::MessageRow;
use muster_protocol::job::AccountId;
use muster_protocol::legacy::Body;
use muster_protocol::legacy::date::Date;
use muster_protocol::legacy::pop::ResponseModelMessagePop;
use muster_protocol::legacy::service::SimpleResponse;
use muster_protocol::legacy::worker::{Validity, WorkerMessage, WorkerMessageInput};

impl From<NotTold> for Refused {
    fn from(not: NotTold) -> Self {
        match not {
            NotTold::Refused(refusal) => refusal.into(),
            NotTold::Storage(error) => error.into(),
        }
    }
}

/// `GET /api/v2/workers/messages`
pub async fn list(
    State(messages): State<Messages>,
    Admitted(caller): Admitted,
    query: Query,
) -> Result<Response, Refused> {
    let author = query.whole("user_id")?;
    let wanted = Wanted {
        author: author.map(|id| AccountId(i64::try_from(id).unwrap_or(i64::MAX))),
        worker: query.text("worker_id"),
        validity: query.word("validity", Validity::Active)?,
        page: query.page()?,
    };
    let found = messages.list(&caller, wanted).await?;
    let found: Vec<WorkerMessage> = found.iter().map(shown).collect();
    Ok(reply::json(StatusCode::OK, &found))
}

/// `POST /api/v2/workers/messages`
pub async fn create(
    State(messages): State<Messages>,
    Admitted(caller): Admitted,
    whole: Result<Whole, ApiError>,
) -> Result<Response, Refused> {
    let asked = WorkerMessageInput::parse(&whole?.bytes)?;
    let made = messages.create(&caller, asked).await?;
    Ok(reply::json(StatusCode::OK, &shown(&made)))
}

/// `GET /api/v2/workers/messages/{id}`
pub async fn show(State(messages): State<Messages>, named: Named) -> Result<Response, Refused> {
    let found = messages.find(named.id("id")).await?;
    Ok(reply::json(StatusCode::OK, &shown(&found)))
}

/// `DELETE /api/v2/workers/messages/{id}`
pub async fn delete(
    State(messages): State<Messages>,
    Admitted(caller): Admitted,
    named: Named,
) -> Result<Response, Refused> {
    messages.delete(&caller, named.id("id")).await?;
    Ok(reply::json(StatusCode::OK, &SimpleResponse::ok()))
}

pub fn shown(row: &MessageRow) -> WorkerMessage {
    WorkerMessage {
        id: row.id,
        message: row.message.clone(),
        expiry: Date(row.expires_at),
        user_id: row.author.0.to_string(),
        created: Date(row.created_at),
        origin: Some(row.origin.clone()),
        worker_id: row.worker_id,
    }
}

/// Messages in the reply to a pop.
pub fn popped(rows: &[Arc<MessageRow>]) -> Vec<ResponseModelMessagePop> {
    let popped = rows.iter().map(|row| ResponseModelMessagePop {
        id: row.id,
        message: row.message.clone(),
        expiry: Date(row.expires_at),
        origin: Some(row.origin.clone()),
    });
    popped.collect()
}
