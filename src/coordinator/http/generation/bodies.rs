//! Bodies of requests for values, and of their replies.

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::Value;
use tokio::task::spawn_blocking;

use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::headers::JOB_ID;
use crate::http::reply;
use crate::http::room::Room;
use muster_protocol::job::{FailureKind, JobId};
use muster_protocol::openai::{Problem, json};

/// Larger bodies are parsed on a blocking thread, not on those that relay tokens.
const LARGE: usize = 128 << 10;
/// Copies of a body that exist while its job runs: as JSON, as the job, and as the frame of a worker.
pub const COPIES: usize = 3;

/// Parses a body by its route's reader; a large one on a blocking thread.
pub async fn read<T: Send + 'static>(
    whole: Whole,
    read: fn(Value) -> Result<T, Problem>,
) -> Result<T, ApiError> {
    let Whole { bytes, room } = whole;
    let size = bytes.len();
    let work = move || -> Result<T, ApiError> {
        let _room = room;
        Ok(read(json::parse(&bytes)?)?)
    };
    if size <= LARGE {
        return work();
    }
    spawn_blocking(work).await.unwrap_or_else(|_| {
        let message = "internal error; give the operator the x-request-id of this response";
        Err(ApiError::new(FailureKind::Internal, message))
    })
}

/// A reply that waits for memory, since its work is done and paid.
pub async fn answer(
    mut room: Room,
    job: Option<JobId>,
    text: String,
) -> Result<Response, ApiError> {
    room.cover_in_time(text.len()).await?;
    let mut response = reply::text_in(room, StatusCode::OK, text.into());
    let id = job.and_then(|job| HeaderValue::try_from(job.to_string()).ok());
    if let Some(id) = id {
        response.headers_mut().insert(JOB_ID, id);
    }
    Ok(response)
}
