//! What was sent, and the memory that it takes: it is counted for as long as anything of it is kept, and not only while it
//! is read.

use crate::coordinator::error::ApiError;
use crate::coordinator::http::body::Whole;
use crate::coordinator::http::room::Room;
use crate::coordinator::requests::NewRequest;
use crate::protocol::legacy::Body;

use super::refused::Refused;

/// What a body says; whoever keeps that keeps the room, too.
pub fn read<B: Body>(whole: Result<Whole, ApiError>) -> Result<(B, Room), Refused> {
    let Whole { bytes, room } = whole?;
    Ok((B::parse(&bytes)?, room))
}

/// The request with the memory that it takes until its jobs have ended: as it is written down, and once for each job.
pub fn with_memory(new: NewRequest, room: Room) -> Result<NewRequest, ApiError> {
    let room = room.for_copies(new.body.len(), 1 + new.jobs.len())?;
    Ok(NewRequest {
        memory: room.map(|room| Box::new(room) as _),
        ..new
    })
}
