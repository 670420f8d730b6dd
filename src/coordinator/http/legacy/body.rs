//! Request bodies and their memory permits: a permit is held for as long as any value parsed from the body lives, not
//! only while the body is read.

use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::room::Room;
use crate::requests::NewRequest;
use muster_protocol::legacy::Body;

use crate::http::horde_refusal::Refused;

/// Parses a body. The caller keeps the permit as long as the parsed value.
pub fn read<B: Body>(whole: Result<Whole, ApiError>) -> Result<(B, Room), Refused> {
    let Whole { bytes, room } = whole?;
    Ok((B::parse(&bytes)?, room))
}

/// Adds the memory permit for `copies` copies of the body until the request's jobs have ended.
pub fn with_memory(new: NewRequest, copies: usize, room: &Room) -> Result<NewRequest, ApiError> {
    let kept = room.keep(new.body.len().saturating_mul(copies))?;
    Ok(NewRequest {
        memory: Some(Box::new(kept)),
        ..new
    })
}
