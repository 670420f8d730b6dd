//! How much memory requests may take together, from the first byte of their bodies to the end of their jobs. Many
//! large ones at once are refused, and the process keeps what it has.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::coordinator::error::ApiError;
use crate::coordinator::state::DoorSettings;
use crate::protocol::job::FailureKind;

/// All requests together may take as much as this many of the largest. One alone always fits: it is there as the
/// client's words, as JSON, and once for each choice.
const LARGEST_REQUESTS: usize = 32;
/// What takes less than this until its jobs have ended is not counted: it is little, and there is much of it.
const LITTLE: usize = 256 << 10;
/// What is counted.
const KIB: usize = 1 << 10;

/// The memory for all requests. Clones are the same.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Semaphore>);

/// What one request takes of it, until this is dropped.
#[derive(Debug)]
pub struct Room {
    memory: Memory,
    taken: Option<OwnedSemaphorePermit>,
}

impl Memory {
    pub fn new(settings: &DoorSettings) -> Self {
        let most = settings.largest_request.saturating_mul(LARGEST_REQUESTS) / KIB;
        let most = most.clamp(LARGEST_REQUESTS, Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(most)))
    }

    /// Nothing yet.
    pub fn room(&self) -> Room {
        Room {
            memory: self.clone(),
            taken: None,
        }
    }
}

impl Room {
    /// For what is kept of a request in so many copies; nothing, where that is little.
    pub fn for_copies(mut self, bytes: usize, copies: usize) -> Result<Option<Self>, ApiError> {
        let bytes = bytes.saturating_mul(copies);
        if bytes < LITTLE {
            return Ok(None);
        }
        self.cover(bytes)?;
        Ok(Some(self))
    }

    /// Grows to so many bytes.
    pub fn cover(&mut self, bytes: usize) -> Result<(), ApiError> {
        let taken = self
            .taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(KIB).saturating_sub(taken);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let more = self.memory.0.clone().try_acquire_many_owned(missing);
        let more = more.map_err(|_| {
            let full = "the requests that are here take all the memory there is for them";
            ApiError::new(FailureKind::QueueFull, full)
        })?;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
    use crate::coordinator::state::DoorSettings;

    #[test]
    fn room_is_taken_once_and_given_back() {
        let memory = Memory::new(&DoorSettings {
            largest_request: 1 << 20,
            ..DoorSettings::default()
        });
        let (mut one, mut other) = (memory.room(), memory.room());
        for bytes in [1, 20 << 20, 10 << 20, 20 << 20] {
            one.cover(bytes).unwrap();
        }
        other.cover(12 << 20).unwrap();
        let full = other.cover(13 << 20).unwrap_err();
        assert_eq!(full.status(), 503);
        assert!(full.retry_after.is_some());
        drop(one);
        other.cover(13 << 20).unwrap();
    }

    #[test]
    fn what_is_kept_takes_room_where_it_is_much() {
        let memory = Memory::new(&DoorSettings {
            largest_request: 1 << 20,
            ..DoorSettings::default()
        });
        let kept = |bytes, copies| memory.room().for_copies(bytes, copies);
        assert!(kept(1 << 10, 21).unwrap().is_none());
        let _large = kept(1 << 20, 21).unwrap().unwrap();
        assert!(kept(1 << 20, 12).is_err());
        assert!(kept(1 << 20, 11).unwrap().is_some());
    }
}
