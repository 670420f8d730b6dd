//! How much memory requests and their replies may take together, from the first byte of a body to the last of an answer.
//! Many large ones at once are refused, and the process keeps what it has.
//!
//! Each of three stages has memory of its own, so that requests that wait long keep nobody out of the door, and clients that
//! read slowly keep nobody waiting: workers empty a queue that takes all it may. What is little takes no room.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::coordinator::error::ApiError;
use crate::coordinator::state::DoorSettings;
use crate::protocol::job::FailureKind;

/// What is counted.
const KIB: usize = 1 << 10;

/// The memory for all requests. Clones are the same.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Stages>);

#[derive(Debug)]
struct Stages {
    passing: Pool,
    kept: Pool,
    told: Pool,
}

/// What room is taken for.
#[derive(Debug, Clone, Copy)]
enum Stage {
    /// A request that is read and looked at.
    Passing,
    /// What is left of it until its jobs have ended.
    Kept,
    /// What is read of it in the end.
    Told,
}

#[derive(Debug)]
struct Pool {
    free: Arc<Semaphore>,
    most_kib: usize,
}

/// What one request takes of a stage, until this is dropped.
#[derive(Debug)]
pub struct Room {
    memory: Memory,
    stage: Stage,
    taken: Option<OwnedSemaphorePermit>,
}

impl Memory {
    pub fn new(settings: &DoorSettings) -> Self {
        let pool = |stage: Stage| Pool::new(settings.largest_request, stage.largest_requests());
        Self(Arc::new(Stages {
            passing: pool(Stage::Passing),
            kept: pool(Stage::Kept),
            told: pool(Stage::Told),
        }))
    }

    /// For a request, nothing yet.
    pub fn room(&self) -> Room {
        self.room_for(Stage::Passing)
    }

    /// For a reply, nothing yet.
    pub fn room_to_tell(&self) -> Room {
        self.room_for(Stage::Told)
    }

    fn room_for(&self, stage: Stage) -> Room {
        Room {
            memory: self.clone(),
            stage,
            taken: None,
        }
    }

    fn pool(&self, stage: Stage) -> &Pool {
        match stage {
            Stage::Passing => &self.0.passing,
            Stage::Kept => &self.0.kept,
            Stage::Told => &self.0.told,
        }
    }
}

impl Pool {
    fn new(largest_request: usize, largest_requests: usize) -> Self {
        let most_kib = largest_request.saturating_mul(largest_requests) / KIB;
        let most_kib = most_kib.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(most_kib)),
            most_kib,
        }
    }
}

impl Stage {
    /// All together may take as much as this many of the largest requests. One is passed in a dozen forms while it is looked
    /// at, and kept once for each of its jobs.
    const fn largest_requests(self) -> usize {
        match self {
            Self::Passing | Self::Kept => 12,
            Self::Told => 8,
        }
    }

    /// What takes fewer bytes is not counted: it is little, and there is much of it.
    const fn little(self) -> usize {
        match self {
            Self::Passing => 16 << 10,
            Self::Told => 64 << 10,
            Self::Kept => 256 << 10,
        }
    }

    const fn full(self) -> &'static str {
        match self {
            Self::Passing => "the requests that are here take all the memory there is for them",
            Self::Kept => "the requests that wait take all the memory there is for them",
            Self::Told => "the replies on their way take all the memory there is for them",
        }
    }
}

impl Room {
    /// For so many bytes that are left of a request until its jobs have ended.
    pub fn keep(&self, bytes: usize) -> Result<Self, ApiError> {
        let mut kept = self.memory.room_for(Stage::Kept);
        kept.cover(bytes)?;
        Ok(kept)
    }

    /// Grows to so many bytes. What needs more than there is gets all of it, while nobody else has any.
    pub fn cover(&mut self, bytes: usize) -> Result<(), ApiError> {
        if bytes < self.stage.little() {
            return Ok(());
        }
        let pool = self.memory.pool(self.stage);
        let taken = self
            .taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let wanted = bytes.div_ceil(KIB).min(pool.most_kib);
        let missing = wanted.saturating_sub(taken);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX);
        let more = pool.free.clone().try_acquire_many_owned(missing);
        let full = |_| ApiError::new(FailureKind::QueueFull, self.stage.full());
        let more = more.map_err(full)?;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Memory, Room, Stage};
    use crate::coordinator::error::ApiError;
    use crate::coordinator::state::DoorSettings;

    fn memory() -> Memory {
        Memory::new(&DoorSettings {
            largest_request: 1 << 20,
            ..DoorSettings::default()
        })
    }

    fn all(stage: Stage) -> usize {
        stage.largest_requests() << 20
    }

    #[test]
    fn room_is_taken_once_and_given_back() {
        let memory = memory();
        let (mut one, mut other) = (memory.room(), memory.room());
        for bytes in [1, 8 << 20, 4 << 20, 8 << 20] {
            one.cover(bytes).unwrap();
        }
        other.cover(4 << 20).unwrap();
        let full = other.cover(5 << 20).unwrap_err();
        assert_eq!(full.status(), 503);
        assert!(full.retry_after.is_some());
        drop(one);
        other.cover(5 << 20).unwrap();
    }

    #[test]
    fn what_fills_one_stage_takes_nothing_of_another() {
        let memory = memory();
        let full = |room: Result<Room, ApiError>| room.unwrap_err().status() == 503;
        let cover = |mut room: Room, bytes| room.cover(bytes).map(|()| room);
        let kept = memory.room().keep(all(Stage::Kept)).unwrap();
        assert!(full(memory.room().keep(1 << 20)));
        let told = cover(memory.room_to_tell(), all(Stage::Told)).unwrap();
        assert!(full(cover(memory.room_to_tell(), 1 << 20)));
        let passing = cover(memory.room(), all(Stage::Passing)).unwrap();
        assert!(full(cover(memory.room(), 1 << 20)));
        drop((kept, told, passing));
    }

    #[test]
    fn what_is_little_finds_room_where_there_is_none() {
        let memory = memory();
        for stage in [Stage::Passing, Stage::Kept, Stage::Told] {
            let mut large = memory.room_for(stage);
            large.cover(all(stage)).unwrap();
            let mut small = memory.room_for(stage);
            small.cover(stage.little() - 1).unwrap();
            assert!(small.cover(stage.little()).is_err(), "{stage:?}");
        }
    }

    #[test]
    fn one_that_needs_more_than_there_is_has_all_of_it() {
        let memory = memory();
        let mut large = memory.room();
        large.cover(2 * all(Stage::Passing)).unwrap();
        let mut other = memory.room();
        assert!(other.cover(1 << 20).is_err());
        drop(large);
        other.cover(1 << 20).unwrap();
        assert!(memory.room().cover(all(Stage::Passing)).is_err());
    }
}
