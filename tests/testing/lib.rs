//! How tests wait and measure: for a condition, for a line or the end of a child process, never without a limit; memory
//! at its peak. And PDF files for them.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod child;
pub mod pdf;
pub mod peak;

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

pub use child::{Lines, ended};

/// No test waits longer for one thing.
pub const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(5);

/// What one look at a condition found.
pub trait Look {
    type Found;

    /// The value, or an error with the found one.
    fn found(self) -> Result<Self::Found, String>;
}

impl Look for bool {
    type Found = ();

    fn found(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "not yet".to_owned())
    }
}

impl<T> Look for Option<T> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "nothing".to_owned())
    }
}

impl<T, E: Debug> Look for Result<T, E> {
    type Found = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|seen| format!("{seen:?}"))
    }
}

/// Looks every 5 ms until the condition holds, and returns its value. On a paused clock every look moves the clock by
/// 5 ms; the limit is real time all the same, since the condition may depend on other threads.
pub async fn eventually<T: Look>(what: &str, mut look: impl AsyncFnMut() -> T) -> T::Found {
    let began = Instant::now();
    loop {
        match look().await.found() {
            Ok(found) => return found,
            Err(seen) => give_up_after(PATIENCE, began, what, &seen),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The same where nothing is async.
#[track_caller]
pub fn eventually_blocking<T: Look>(what: &str, mut look: impl FnMut() -> T) -> T::Found {
    let began = Instant::now();
    loop {
        match look().found() {
            Ok(found) => return found,
            Err(seen) => give_up_after(PATIENCE, began, what, &seen),
        }
        thread::sleep(PAUSE);
    }
}

#[track_caller]
fn give_up_after(limit: Duration, began: Instant, what: &str, seen: &str) {
    assert!(
        began.elapsed() < limit,
        "waited {limit:?} for {what}; last seen: {seen}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_looked_at_until_it_holds() {
        let mut looks = 0;
        let found = eventually_blocking("the third look", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[test]
    #[should_panic(expected = "waited 0ns for the end of days; last seen: \"the sun\"")]
    fn giving_up_says_what_was_waited_for_and_what_was_seen() {
        let seen = Err::<(), _>("the sun").found().unwrap_err();
        give_up_after(Duration::ZERO, Instant::now(), "the end of days", &seen);
    }
}
