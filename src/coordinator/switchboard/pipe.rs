//! The buffer of one client: written by the switchboard, which never waits, and read by the client's stream.
//!
//! The buffer is bounded by bytes, against clients that do not read. A reading client must not lose its job because a
//! worker sends everything at once, or because this process was starved and the client's task has not run:
//!
//! - a slow client gets the same text in fewer events, so that the queue is little larger than its text;
//! - an empty buffer accepts an event of any size;
//! - beyond the buffer's size, a client that read within the last second is tolerated up to [`MOST`] and the
//!   [`Overdraft`] of all clients together.
//!
//! Time in which the process was starved does not count.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::join::{join, weight};
use super::stream::Delivery;
use muster_protocol::job::Event;

/// Buffer of one client, in bytes of events.
pub const CLIENT_BUFFER: usize = 1 << 20;
/// A client with more buffered bytes gets longer pieces.
const LAGGING: usize = CLIENT_BUFFER / 4;
/// From this size on, the client's reads are observed.
const WATCHED: usize = CLIENT_BUFFER / 2;
/// Buffer limit of a client that reads.
const MOST: usize = 8 * CLIENT_BUFFER;
/// Limit of all clients' bytes beyond their buffers.
const ALL_OVERDRAFTS: usize = 64 << 20;
/// Timeout of a client since its last read.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most time counted between two looks: in a longer pause the process was starved.
const GLANCE: Duration = Duration::from_millis(250);

/// Shared by both ends.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    waiting: Mutex<Waiting>,
    bytes: AtomicUsize,
    overdraft: Arc<Overdraft>,
}

/// State under the lock.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub deliveries: VecDeque<Delivery>,
    pub closed: bool,
    /// Another coordinator goes on with the job.
    pub is_parked: bool,
    reader: Option<Waker>,
    habits: Habits,
}

/// Bytes of all clients beyond their buffers.
#[derive(Debug, Default)]
pub(super) struct Overdraft(AtomicUsize);

/// Whether the client reads, as observed by the writer.
#[derive(Debug, Default)]
struct Habits {
    has_asked: bool,
    /// The client's task was woken and has not run yet.
    is_due: bool,
    /// Bytes written so far and read at the last check. Only differences matter.
    written: usize,
    read: usize,
    looked: Option<Instant>,
    idle: Duration,
}

/// The client does not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overflow;

impl Pipe {
    pub fn new(overdraft: Arc<Overdraft>) -> Self {
        Self {
            waiting: Mutex::default(),
            bytes: AtomicUsize::default(),
            overdraft,
        }
    }

    /// Appends an event. Returns the waker, so that the writer wakes the client once for many events.
    pub fn push(&self, event: Event) -> Result<Option<Waker>, Overflow> {
        let held = self.bytes.load(Ordering::Relaxed);
        let mut waiting = self.lock();
        waiting.habits.look(held);
        let then = held + weight(&event);
        if held > 0 && then > CLIENT_BUFFER && !self.bears(then, &waiting.habits) {
            return Err(Overflow);
        }
        let more = waiting.append(event, held >= LAGGING);
        waiting.habits.written = waiting.habits.written.wrapping_add(more);
        self.weigh(more);
        Ok(waiting.wake())
    }

    /// The last delivery, which ignores the limit.
    pub fn end(&self, end: Delivery) -> Option<Waker> {
        let mut waiting = self.lock();
        waiting.deliveries.push_back(end);
        waiting.closed = true;
        waiting.wake()
    }

    /// Closes without an end.
    pub fn close(&self) -> Option<Waker> {
        let mut waiting = self.lock();
        waiting.closed = true;
        waiting.wake()
    }

    /// Closes because the job is left to another coordinator.
    pub fn park(&self) -> Option<Waker> {
        let mut waiting = self.lock();
        (waiting.closed, waiting.is_parked) = (true, true);
        waiting.wake()
    }

    /// The client has received this event.
    pub fn read(&self, event: &Event) {
        self.weigh(weight(event).wrapping_neg());
    }

    pub fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    fn bears(&self, bytes: usize, habits: &Habits) -> bool {
        let all = self.overdraft.0.load(Ordering::Relaxed) + beyond(bytes);
        bytes <= MOST && all <= ALL_OVERDRAFTS && habits.has_asked && habits.idle < PATIENCE
    }

    /// Adds to the size; a subtraction is a wrapped addition.
    fn weigh(&self, more: usize) {
        let before = self.bytes.fetch_add(more, Ordering::Relaxed);
        let overdrawn = beyond(before.wrapping_add(more)).wrapping_sub(beyond(before));
        if overdrawn != 0 {
            self.overdraft.0.fetch_add(overdrawn, Ordering::Relaxed);
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let overdrawn = beyond(*self.bytes.get_mut());
        self.overdraft.0.fetch_sub(overdrawn, Ordering::Relaxed);
    }
}

fn beyond(bytes: usize) -> usize {
    bytes.saturating_sub(CLIENT_BUFFER)
}

impl Waiting {
    /// True if a delivery is available; otherwise the client is woken later.
    pub fn ask(&mut self, waker: &Waker) -> bool {
        self.habits.has_asked = true;
        self.habits.is_due = false;
        let has_news = !self.deliveries.is_empty() || self.closed;
        self.reader = (!has_news).then(|| waker.clone());
        has_news
    }

    fn wake(&mut self) -> Option<Waker> {
        let reader = self.reader.take();
        self.habits.is_due |= reader.is_some();
        reader
    }

    /// Returns the added bytes, wrapped below zero if a newer event replaced a larger one.
    fn append(&mut self, event: Event, lags: bool) -> usize {
        let rest = match self.deliveries.back_mut() {
            Some(Delivery::Event(last)) if lags => {
                let before = weight(last);
                match join(last, event) {
                    None => return weight(last).wrapping_sub(before),
                    Some(event) => event,
                }
            }
            _ => event,
        };
        let more = weight(&rest);
        self.deliveries.push_back(Delivery::Event(rest));
        more
    }
}

impl Habits {
    fn look(&mut self, held: usize) {
        if held < WATCHED {
            (self.looked, self.idle) = (None, Duration::ZERO);
            return;
        }
        let (now, read) = (Instant::now(), self.written.wrapping_sub(held));
        let since = self.looked.replace(now).map(|before| now - before);
        if read != self.read || self.is_due {
            self.idle = Duration::ZERO;
        } else {
            self.idle += since.unwrap_or_default().min(GLANCE);
        }
        self.read = read;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::task::Waker;
    use std::time::Duration;

    use tokio::time::advance;

    use super::{ALL_OVERDRAFTS, CLIENT_BUFFER, Delivery, MOST, Overdraft, Overflow, Pipe};
    use muster_protocol::job::{Event, TokenEvent, TokenLogprob};

    fn text(length: usize) -> Event {
        Event::Token(TokenEvent {
            text: "x".repeat(length),
            ..TokenEvent::default()
        })
    }

    fn word(id: u32) -> Event {
        let logprob = TokenLogprob {
            bytes: format!("{id} ").into_bytes(),
            logprob: -1.0,
            top: Vec::new(),
        };
        Event::Token(TokenEvent {
            text: format!("{id} "),
            ids: vec![id],
            logprobs: id
                .is_multiple_of(10)
                .then_some(logprob)
                .into_iter()
                .collect(),
            ..TokenEvent::default()
        })
    }

    /// All available deliveries of the pipe.
    fn read_all(pipe: &Pipe) -> Vec<Event> {
        let mut waiting = pipe.lock();
        waiting.ask(Waker::noop());
        let deliveries = std::mem::take(&mut waiting.deliveries);
        drop(waiting);
        let events = deliveries.into_iter().map(|delivery| match delivery {
            Delivery::Event(event) => event,
            Delivery::End { .. } => panic!("no end was written"),
        });
        events.inspect(|event| pipe.read(event)).collect()
    }

    fn fill(pipe: &Pipe) -> usize {
        (0..)
            .take_while(|_| pipe.push(text(100_000)).is_ok())
            .count()
    }

    #[test]
    fn a_reader_that_has_not_had_its_turn_loses_nothing_of_a_long_output() {
        let pipe = Pipe::default();
        for id in 0..20_000 {
            assert!(pipe.push(word(id)).is_ok(), "{id}");
        }
        let (mut said, mut ids, mut logprobs) = (String::new(), Vec::new(), 0);
        for event in read_all(&pipe) {
            let Event::Token(token) = event else {
                panic!("expected a token");
            };
            said.push_str(&token.text);
            ids.extend(token.ids);
            logprobs += token.logprobs.len();
        }
        assert!(ids.iter().copied().eq(0..20_000));
        assert_eq!((said.split_whitespace().count(), logprobs), (20_000, 2000));
        assert_eq!(pipe.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_reads_in_time_hears_every_token_by_itself() {
        let pipe = Pipe::default();
        for round in 0..10 {
            for id in 0..1000 {
                pipe.push(word(id)).unwrap();
            }
            assert_eq!(read_all(&pipe).len(), 1000, "round {round}");
        }
    }

    #[test]
    fn of_pictures_and_progress_a_client_that_lags_is_shown_the_newest() {
        let pipe = Pipe::default();
        for step in 0..100 {
            let preview = Event::Preview {
                mime: "image/webp".to_owned(),
                bytes: vec![step; 300_000],
            };
            pipe.push(preview).unwrap();
        }
        let seen = read_all(&pipe);
        let Some(Event::Preview { bytes, .. }) = seen.last() else {
            panic!("expected a preview");
        };
        assert_eq!((seen.len(), bytes[0]), (1, 99));
    }

    #[test]
    fn what_is_larger_than_the_buffer_fits_into_an_empty_one() {
        let pipe = Pipe::default();
        assert!(pipe.push(text(3 * CLIENT_BUFFER)).is_ok());
        assert_eq!(pipe.push(text(1)).err(), Some(Overflow));
        assert_eq!(read_all(&pipe).len(), 1);
        assert!(pipe.push(text(3 * CLIENT_BUFFER)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_is_borne_with_and_one_that_has_stopped_is_not() {
        let pipe = Pipe::default();
        pipe.push(text(1)).unwrap();
        read_all(&pipe);
        let burst = fill(&pipe);
        assert_eq!(burst, MOST / 100_096);
        read_all(&pipe);
        for _ in 0..CLIENT_BUFFER / 100_096 {
            pipe.push(text(100_000)).unwrap();
        }
        for _ in 0..4 {
            assert!(pipe.push(text(100_000)).is_ok());
            advance(Duration::from_millis(250)).await;
        }
        assert_eq!(pipe.push(text(100_000)).err(), Some(Overflow));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_of_the_whole_process_is_held_against_nobody() {
        let pipe = Pipe::default();
        pipe.push(text(1)).unwrap();
        read_all(&pipe);
        for _ in 0..8 {
            pipe.push(text(100_000)).unwrap();
        }
        advance(Duration::from_secs(60)).await;
        for _ in 0..8 {
            assert!(pipe.push(text(100_000)).is_ok());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_was_woken_waits_for_its_turn_and_nobody_for_it() {
        let pipe = Pipe::default();
        assert!(!pipe.lock().ask(Waker::noop()));
        for _ in 0..40 {
            assert!(pipe.push(text(100_000)).is_ok());
            advance(Duration::from_millis(250)).await;
        }
    }

    #[test]
    fn what_clients_have_beyond_their_buffers_is_bounded_for_all_together() {
        let overdraft = Arc::new(Overdraft::default());
        let mut pipes = Vec::new();
        for _ in 0..20 {
            let pipe = Pipe::new(overdraft.clone());
            read_all(&pipe);
            fill(&pipe);
            pipes.push(pipe);
        }
        let held: usize = pipes.iter_mut().map(|pipe| *pipe.bytes.get_mut()).sum();
        assert!(held > ALL_OVERDRAFTS, "{held}");
        assert!(held <= ALL_OVERDRAFTS + 20 * CLIENT_BUFFER, "{held}");
        read_all(&pipes[0]);
        drop(pipes);
        assert_eq!(overdraft.0.load(Ordering::Relaxed), 0);
    }
}
