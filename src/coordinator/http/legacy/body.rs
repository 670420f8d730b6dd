//! What was sent, and the memory that it takes: it is counted for as long as anything of it is kept, and not only while it
//! is read.

use crate::error::ApiError;
use crate::http::body::Whole;
use crate::http::room::Room;
use crate::requests::NewRequest;
use muster_protocol::legacy::Body;

use super::refused::Refused;

/// What a body says; whoever holds that holds the room, too.
pub fn read<B: Body>(whole: Result<Whole, ApiError>) -> Result<(B, Room), Refused> {
    let Whole { bytes, room } = whole?;
    Ok((B::parse(&bytes)?, room))
}

/// The request with the memory that so many copies of it take until its jobs have ended.
pub fn with_memory(new: NewRequest, copies: usize, room: &Room) -> Result<NewRequest, ApiError> {
    let kept = room.keep(new.body.len().saturating_mul(copies))?;
    Ok(NewRequest {
        memory: Some(Box::new(kept)),
        ..new
    })
}
