//! Progress of running requests, by tokens of their clients. The route needs no key, so a token must be hard to guess.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Limit of a token, in bytes.
pub const LONGEST_TOKEN: usize = 128;
/// Lifetime of the last value.
const KEPT: Duration = Duration::from_secs(180);
/// Limit of tokens.
const MOST_TOKENS: usize = 10_000;

/// The last progress of each token. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct ProgressBoard(Arc<Mutex<HashMap<String, Progress>>>);

#[derive(Debug, Clone, Copy)]
struct Progress {
    percent: u8,
    noted: Instant,
}

impl ProgressBoard {
    /// Records the progress of a request. Ignores new tokens at the limit.
    pub fn note(&self, token: &str, percent: u8) {
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return;
        }
        let now = Instant::now();
        let mut board = self.lock();
        if board.len() >= MOST_TOKENS && !board.contains_key(token) {
            board.retain(|_, progress| progress.is_kept(now));
            if board.len() >= MOST_TOKENS {
                return;
            }
        }
        let progress = Progress {
            percent: percent.min(100),
            noted: now,
        };
        board.insert(token.to_owned(), progress);
    }

    /// `None` if nothing was recorded lately.
    pub fn percent(&self, token: &str) -> Option<u8> {
        let progress = self.lock().get(token).copied()?;
        progress.is_kept(Instant::now()).then_some(progress.percent)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Progress>> {
        self.0.lock()
    }
}

impl Progress {
    fn is_kept(self, now: Instant) -> bool {
        now.saturating_duration_since(self.noted) < KEPT
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::{KEPT, MOST_TOKENS, ProgressBoard};

    #[tokio::test(start_paused = true)]
    async fn the_last_value_of_a_token_is_kept_for_a_while() {
        let board = ProgressBoard::default();
        assert_eq!(board.percent("token"), None);
        board.note("token", 10);
        board.note("token", 200);
        assert_eq!(board.percent("token"), Some(100));
        advance(KEPT - Duration::from_secs(1)).await;
        assert_eq!(board.percent("token"), Some(100));
        advance(Duration::from_secs(1)).await;
        assert_eq!(board.percent("token"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_bounded_and_old_ones_make_room() {
        let board = ProgressBoard::default();
        for number in 0..MOST_TOKENS {
            board.note(&number.to_string(), 1);
        }
        board.note("one more", 1);
        assert_eq!(board.percent("one more"), None);
        board.note("7", 2);
        assert_eq!(board.percent("7"), Some(2));
        advance(KEPT).await;
        board.note("one more", 1);
        assert_eq!(board.percent("one more"), Some(1));
        board.note(&"x".repeat(200), 1);
        assert_eq!(board.percent(&"x".repeat(200)), None);
    }
}
