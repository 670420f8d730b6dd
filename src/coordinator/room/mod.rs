//! The memory budget of requests and replies, from the first byte of a body to the last of a reply. When it is
//! exhausted, large requests are refused, so the process never runs out of memory.
//!
//! Each stage has a budget of its own, so that queued requests do not block new ones, and slow readers do not block the
//! queue: workers can always drain a full queue. Small requests have a separate budget and are accepted when large ones
//! are not. Small amounts in other stages are not counted, nor is streamed text, which is counted as it is sent. Large
//! messages of workers' sockets have a stage, too.
//!
//! | file | contents |
//! | --- | --- |
//! | `shares` | the share of one sender for media requests |
//! | `transit` | buffered bodies and replies, released when stalled while others need the memory |

mod shares;
#[cfg(test)]
mod tests;
mod transit;

pub use transit::{LetGo, Transit};

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

use crate::error::ApiError;
use crate::sender::Sender;
use muster_process::memory;
use muster_protocol::job::FailureKind;
use muster_protocol::link::LARGEST_FRAME;

use shares::Shares;
use transit::Transits;

/// The unit of counting.
const KIB: usize = 1 << 10;

/// The memory for all requests. Clones share it.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Stages>);

#[derive(Debug)]
struct Stages {
    small: Pool,
    passing: Pool,
    kept: Pool,
    told: Pool,
    messages: Pool,
    shares: Shares,
    transits: Transits,
}

/// The use of a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// The first bytes of a request that is being read and checked.
    Small,
    /// The same beyond the first bytes.
    Passing,
    /// A request in the queue, until its jobs have ended.
    Kept,
    /// A reply being sent.
    Told,
    /// A large message of a worker, until it is handled.
    Message,
}

#[derive(Debug)]
struct Pool {
    free: Arc<Semaphore>,
    most_kib: usize,
}

/// The permit of one request in a stage, until dropped.
#[derive(Debug)]
pub struct Room {
    memory: Memory,
    stage: Stage,
    /// The sender whose share includes it, for media requests.
    sender: Option<Sender>,
    taken: Option<OwnedSemaphorePermit>,
}

impl Memory {
    /// For requests up to a limit in bytes. Buffers that stall for `standstill` are dropped when others need the memory.
    pub fn new(largest_request: usize, standstill: Duration) -> Self {
        let largest = |requests: usize| Pool::new(largest_request.saturating_mul(requests));
        Self(Arc::new(Stages {
            small: Pool::new(MOST_SMALL * SMALL),
            passing: largest(PASSING),
            kept: largest(KEPT),
            told: largest(TOLD),
            messages: Pool::new(MESSAGES * LARGEST_FRAME),
            shares: Shares::default(),
            transits: Transits::new(standstill),
        }))
    }

    /// An empty permit for a request.
    pub fn room(&self) -> Room {
        self.room_for(Stage::Small)
    }

    /// An empty permit for a media request, counted in the share of its sender.
    pub fn room_of(&self, sender: Sender) -> Room {
        let mut room = self.room();
        room.sender = Some(sender);
        room
    }

    /// An empty permit for a reply.
    pub fn room_to_tell(&self) -> Room {
        self.room_for(Stage::Told)
    }

    /// An empty permit for a message of a worker.
    pub fn room_for_message(&self) -> Room {
        self.room_for(Stage::Message)
    }

    /// Total number of buffered bodies and replies so far.
    #[cfg(test)]
    pub fn ever_under_way(&self) -> u64 {
        self.0.transits.ever()
    }

    fn room_for(&self, stage: Stage) -> Room {
        Room {
            memory: self.clone(),
            stage,
            sender: None,
            taken: None,
        }
    }

    fn pool(&self, stage: Stage) -> &Pool {
        match stage {
            Stage::Small => &self.0.small,
            Stage::Passing => &self.0.passing,
            Stage::Kept => &self.0.kept,
            Stage::Told => &self.0.told,
            Stage::Message => &self.0.messages,
        }
    }

    /// Takes a permit, releasing stalled bodies if memory is short.
    fn take(&self, stage: Stage, kib: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let pool = self.pool(stage);
        let after_others = || {
            // Slightly more than needed: a search costs more than dropping some.
            let enough = kib.max(pool.most_kib / 64);
            self.0.transits.give_way(stage, enough);
            pool.take(kib)
        };
        let full = || ApiError::new(FailureKind::QueueFull, stage.full());
        pool.take(kib).or_else(after_others).ok_or_else(full)
    }
}

impl Pool {
    fn new(most_bytes: usize) -> Self {
        let most_kib = (most_bytes / KIB).clamp(1, Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(most_kib)),
            most_kib,
        }
    }

    fn take(&self, kib: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        self.free.clone().try_acquire_many_owned(kib).ok()
    }
}

/// Each stage fits this many of the largest requests: moderation holds a request in a dozen forms, and the queue holds
/// it once for each of its jobs.
const PASSING: usize = 12;
const KEPT: usize = 12;
const TOLD: usize = 8;
/// This many of the largest messages of workers fit.
const MESSAGES: usize = 4;
/// Smaller requests count as this size, because most of their memory is not the bytes of the body.
const SMALL: usize = 16 << 10;
/// Limit of concurrent small requests.
const MOST_SMALL: usize = 8192;
/// Sizes from here on are returned to the system.
const LARGE_KIB: usize = 1 << 10;
/// Stalled bodies are released by then.
const LONGEST_WAIT: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(250);

impl Stage {
    /// The stage of a request that has grown to this size.
    const fn grown_to(self, bytes: usize) -> Self {
        match self {
            Self::Small if bytes >= SMALL => Self::Passing,
            stage => stage,
        }
    }

    /// Smaller amounts are not counted: they are small and frequent.
    const fn little(self) -> usize {
        match self {
            Self::Small => 0,
            Self::Passing => SMALL,
            Self::Told | Self::Message => 64 << 10,
            Self::Kept => 256 << 10,
        }
    }

    fn counted_kib(self, bytes: usize) -> usize {
        match self {
            Self::Small => SMALL / KIB,
            stage if bytes < stage.little() => 0,
            _ => bytes.div_ceil(KIB),
        }
    }

    /// Whether senders have shares of it.
    const fn is_shared(self) -> bool {
        matches!(self, Self::Passing | Self::Kept)
    }

    const fn full(self) -> &'static str {
        match self {
            Self::Small | Self::Passing => "server busy: request memory exhausted, retry later",
            Self::Kept => "server busy: memory for queued requests exhausted, retry later",
            Self::Told => "server busy: memory for replies exhausted, retry later",
            Self::Message => "server busy: memory for worker messages exhausted, retry later",
        }
    }
}

impl Room {
    /// A permit for bytes that stay until a request's jobs have ended.
    pub fn keep(&self, bytes: usize) -> Result<Self, ApiError> {
        let mut kept = self.memory.room_for(Stage::Kept);
        kept.sender = self.sender;
        kept.cover(bytes)?;
        Ok(kept)
    }

    /// The same, waiting for a while if memory is short.
    pub async fn keep_in_time(&self, bytes: usize) -> Result<Self, ApiError> {
        let mut kept = self.keep(0)?;
        kept.cover_in_time(bytes).await?;
        Ok(kept)
    }

    /// Grows the permit. A need beyond the whole budget takes all of it, if no other permit is out.
    pub fn cover(&mut self, bytes: usize) -> Result<(), ApiError> {
        let stage = self.stage.grown_to(bytes);
        let taken = if stage == self.stage { self.kib() } else { 0 };
        let most = self.memory.pool(stage).most_kib;
        let wanted = stage.counted_kib(bytes).min(most);
        let missing = wanted.saturating_sub(taken);
        if missing == 0 {
            return Ok(());
        }
        let share = self.sender.filter(|_| stage.is_shared());
        let shares = &self.memory.0.shares;
        if let Some(sender) = share {
            shares.take((sender, stage), (taken, missing), most)?;
        }
        let more = self.memory.take(stage, missing).inspect_err(|_| {
            share.inspect(|sender| shares.give_back((*sender, stage), missing));
        })?;
        match &mut self.taken {
            Some(taken) if stage == self.stage => taken.merge(more),
            taken => *taken = Some(more),
        }
        self.stage = stage;
        Ok(())
    }

    /// Grows the permit, waiting for a while if memory is short.
    pub async fn cover_in_time(&mut self, bytes: usize) -> Result<(), ApiError> {
        let until = Instant::now() + LONGEST_WAIT;
        loop {
            match self.cover(bytes) {
                Err(_) if Instant::now() < until => sleep(LOOK_AGAIN).await,
                done => return done,
            }
        }
    }

    /// Counts the permit in the share of this sender from now on.
    pub fn count_for(&mut self, sender: Sender) -> Result<(), ApiError> {
        if self.sender.is_none() && self.stage.is_shared() {
            let most = self.memory.pool(self.stage).most_kib;
            let key = (sender, self.stage);
            self.memory.0.shares.take(key, (0, self.kib()), most)?;
        }
        self.sender.get_or_insert(sender);
        Ok(())
    }

    /// Buffers bytes under this permit.
    pub fn carry(self, bytes: Vec<u8>) -> Transit {
        Transit::new(self, bytes)
    }

    /// Whether it is too small to be counted.
    pub fn is_empty(&self) -> bool {
        self.kib() == 0
    }

    fn kib(&self) -> usize {
        self.taken
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits)
    }
}

/// The buffered data is freed at about this time.
impl Drop for Room {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.filter(|_| self.stage.is_shared()) {
            let shares = &self.memory.0.shares;
            shares.give_back((sender, self.stage), self.kib());
        }
        if self.kib() >= LARGE_KIB {
            memory::freed(self.kib() * KIB);
        }
    }
}
