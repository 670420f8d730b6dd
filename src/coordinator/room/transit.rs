//! Bytes buffered for or from a client: the received part of a body, the unsent rest of a reply. A stalled client would
//! hold memory for as long as it likes; when others need it, the buffer is dropped and its reader or writer gets an
//! error.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::error::ApiError;
use muster_protocol::job::FailureKind;

use super::{Memory, Room, Stage};

/// Buffered bytes from or to a client, with their memory permit.
#[derive(Debug)]
pub struct Transit {
    id: u64,
    memory: Memory,
    cart: Arc<Cart>,
}

/// The buffer was dropped because its client stalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("body too slow (< 64 KiB/s) while memory was short")]
pub struct LetGo;

/// All buffers.
pub struct Transits {
    carts: Mutex<Carts>,
    /// Time limit for the first bytes.
    start: Duration,
}

#[derive(Default)]
struct Carts {
    next: u64,
    all: HashMap<u64, Arc<Cart>>,
}

#[derive(Debug)]
struct Cart {
    load: Mutex<Option<Load>>,
    /// The task to wake when the buffer is dropped.
    waiting: AtomicWaker,
}

#[derive(Debug)]
struct Load {
    bytes: Vec<u8>,
    given_out: usize,
    room: Room,
    /// Counts as stalled after this time.
    due: Instant,
}

/// Bytes per second at which a buffer never counts as stalled.
const PACE: f64 = (64 << 10) as f64;
/// A stopped buffer counts as stalled after this, however fast it was before.
const LONGEST_REST: Duration = Duration::from_secs(15);

impl Transit {
    pub(super) fn new(room: Room, bytes: Vec<u8>) -> Self {
        let memory = room.memory.clone();
        let cart = Arc::new(Cart {
            load: Mutex::new(Some(Load {
                bytes,
                given_out: 0,
                room,
                due: Instant::now() + memory.0.transits.start,
            })),
            waiting: AtomicWaker::new(),
        });
        let id = memory.0.transits.add(cart.clone());
        Self { id, memory, cart }
    }

    /// Appends bytes.
    pub fn take_in(&self, piece: &[u8]) -> Result<(), ApiError> {
        let mut load = self.cart.load();
        let load = load.as_mut().ok_or(LetGo)?;
        load.room.cover(load.bytes.len() + piece.len())?;
        load.bytes.extend_from_slice(piece);
        load.moved(piece.len());
        Ok(())
    }

    /// The same for bytes held elsewhere: their new number.
    pub fn grow(&self, bytes: usize, more: usize) -> Result<(), ApiError> {
        let mut load = self.cart.load();
        let load = load.as_mut().ok_or(LetGo)?;
        load.room.cover(bytes)?;
        load.moved(more);
        Ok(())
    }

    /// A copy of the next bytes. The last copy carries the permit.
    pub fn give_out(&self, most: usize) -> Result<Bytes, LetGo> {
        let mut slot = self.cart.load();
        let load = slot.as_mut().ok_or(LetGo)?;
        let left = &load.bytes[load.given_out..];
        let piece = Bytes::copy_from_slice(&left[..left.len().min(most)]);
        if piece.len() == left.len() {
            *slot = None;
        } else {
            load.given_out += piece.len();
            load.moved(piece.len());
        }
        Ok(piece)
    }

    /// All bytes and the permit, if no bytes were taken before.
    pub fn unload(&self) -> Result<(Vec<u8>, Room), LetGo> {
        let load = self.cart.load().take().ok_or(LetGo)?;
        Ok((load.bytes, load.room))
    }

    /// Returns when the buffer was dropped.
    pub async fn let_go(&self) {
        poll_fn(|context| self.poll_let_go(context)).await;
    }

    /// The same, for one task at a time.
    pub fn poll_let_go(&self, context: &mut Context<'_>) -> Poll<()> {
        self.cart.waiting.register(context.waker());
        match self.cart.load().is_none() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Drop for Transit {
    fn drop(&mut self) {
        self.memory.0.transits.remove(self.id);
    }
}

impl Transits {
    pub fn new(start: Duration) -> Self {
        let carts = Mutex::default();
        Self { carts, start }
    }

    fn add(&self, cart: Arc<Cart>) -> u64 {
        let mut carts = self.carts();
        let id = carts.next;
        carts.next += 1;
        carts.all.insert(id, cart);
        id
    }

    fn remove(&self, id: u64) {
        let cart = self.carts().all.remove(&id);
        // After the lock: there may be much to free.
        drop(cart);
    }

    /// How many there have been so far.
    #[cfg(test)]
    pub(super) fn ever(&self) -> u64 {
        self.carts().next
    }

    /// Drops stalled buffers of a stage, longest overdue first, until enough memory is free. A buffer in use is locked,
    /// and skipped.
    pub(super) fn give_way(&self, stage: Stage, enough_kib: usize) {
        let now = Instant::now();
        let mut freed = 0;
        for (_, cart) in self.overdue(stage, now) {
            if freed >= enough_kib {
                return;
            }
            freed += cart.empty(now);
        }
    }

    fn overdue(&self, stage: Stage, now: Instant) -> Vec<(Instant, Arc<Cart>)> {
        let carts = self.carts();
        let overdue = carts.all.values().filter_map(|cart| {
            let load = cart.load.try_lock()?;
            let load = load.as_ref()?;
            let takes_some = load.room.stage == stage && load.room.kib() > 0;
            let is_overdue = takes_some && load.due < now;
            is_overdue.then(|| (load.due, cart.clone()))
        });
        let mut overdue: Vec<_> = overdue.collect();
        overdue.sort_unstable_by_key(|(due, _)| *due);
        overdue
    }

    fn carts(&self) -> MutexGuard<'_, Carts> {
        self.carts.lock()
    }
}

impl Cart {
    fn load(&self) -> MutexGuard<'_, Option<Load>> {
        self.load.lock()
    }

    /// Drops the buffer. Returns the freed memory.
    fn empty(&self, now: Instant) -> usize {
        let Some(mut slot) = self.load.try_lock() else {
            return 0;
        };
        let Some(load) = slot.take_if(|load| load.due < now) else {
            return 0;
        };
        // Unlocked first, so that the woken task finds it free.
        drop(slot);
        self.waiting.wake();
        load.room.kib()
    }
}

impl Load {
    fn moved(&mut self, bytes: usize) {
        let earned = Duration::from_secs_f64(bytes as f64 / PACE);
        self.due = (self.due + earned).min(Instant::now() + LONGEST_REST);
    }
}

impl From<LetGo> for ApiError {
    fn from(let_go: LetGo) -> Self {
        Self::new(FailureKind::InvalidRequest, let_go.to_string()).with_status(408)
    }
}

/// Each holds its room, and so all the others again.
impl fmt::Debug for Transits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transits")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::{LetGo, Transit};
    use crate::room::{Memory, PASSING};

    const LARGEST: usize = 1 << 20;
    const ALL: usize = PASSING * LARGEST;

    fn memory() -> Memory {
        Memory::new(LARGEST, Duration::from_secs(5))
    }

    fn transit(memory: &Memory, bytes: usize) -> Transit {
        let transit = memory.room().carry(Vec::new());
        transit.take_in(&vec![0; bytes]).unwrap();
        transit
    }

    async fn after(seconds: u64) {
        advance(Duration::from_secs(seconds)).await;
    }

    fn finds_room(memory: &Memory, bytes: usize) -> bool {
        memory.room().cover(bytes).is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn what_stands_still_gives_way_to_others_after_a_while() {
        let memory = memory();
        let still: Vec<Transit> = (0..PASSING).map(|_| transit(&memory, LARGEST)).collect();
        after(4).await;
        assert!(!finds_room(&memory, LARGEST));
        // However fast it came: fifteen seconds later it stands still.
        after(12).await;
        assert!(finds_room(&memory, LARGEST));
        let gone = still
            .iter()
            .filter(|transit| transit.take_in(b"x").is_err())
            .count();
        assert_eq!(gone, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_overdue_gives_way_and_what_moves_stays() {
        let memory = memory();
        let first = transit(&memory, LARGEST);
        after(2).await;
        let second = transit(&memory, LARGEST);
        let moving = transit(&memory, ALL - 2 * LARGEST - (1 << 20));
        for _ in 0..15 {
            after(1).await;
            moving.take_in(&[0; 64 << 10]).unwrap();
        }
        let mut other = memory.room();
        other.cover(LARGEST).unwrap();
        assert_eq!(first.unload().unwrap_err(), LetGo);
        // Now all is taken again.
        after(1).await;
        let mut another = memory.room();
        another.cover(LARGEST).unwrap();
        assert_eq!(second.unload().unwrap_err(), LetGo);
        assert!(!finds_room(&memory, LARGEST));
        assert!(moving.unload().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_gives_way_while_there_is_room() {
        let memory = memory();
        let still = transit(&memory, LARGEST);
        after(3600).await;
        assert!(finds_room(&memory, ALL - LARGEST));
        assert!(still.unload().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_for_it_is_told() {
        let memory = memory();
        let still = transit(&memory, ALL);
        after(16).await;
        assert!(finds_room(&memory, LARGEST));
        still.let_go().await;
    }

    #[test]
    fn a_reply_is_given_out_in_pieces_and_takes_its_room_until_the_last() {
        let memory = memory();
        let mut room = memory.room();
        room.cover(ALL).unwrap();
        let reply = room.carry(b"abcde".to_vec());
        assert_eq!(reply.give_out(3).unwrap(), "abc");
        assert!(!finds_room(&memory, LARGEST));
        assert_eq!(reply.give_out(3).unwrap(), "de");
        assert!(finds_room(&memory, LARGEST));
    }
}
