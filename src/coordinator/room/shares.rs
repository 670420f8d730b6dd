//! The share of a stage that one sender may take with media requests: they are large and wait long for workers.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use super::Stage;
use crate::error::ApiError;
use crate::sender::Sender;
use muster_protocol::job::FailureKind;

/// A sender's share of a stage is one in this many.
const PART: usize = 4;

/// Memory of senders, in KiB.
#[derive(Debug, Default)]
pub struct Shares(Mutex<HashMap<(Sender, Stage), usize>>);

impl Shares {
    /// Adds to a sender's share. The only request of a sender is accepted whatever its size.
    pub fn take(
        &self,
        (sender, stage): (Sender, Stage),
        (had, more): (usize, usize),
        all_kib: usize,
    ) -> Result<(), ApiError> {
        let most = all_kib / PART;
        let mut shares = self.lock();
        let share = shares.entry((sender, stage)).or_default();
        let others = share.saturating_sub(had);
        if others > 0 && *share + more > most {
            return Err(used_up(*share, most));
        }
        *share += more;
        Ok(())
    }

    pub fn give_back(&self, key: (Sender, Stage), kib: usize) {
        let mut shares = self.lock();
        if let Some(share) = shares.get_mut(&key) {
            *share = share.saturating_sub(kib);
            if *share == 0 {
                shares.remove(&key);
            }
        }
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Sender, Stage), usize>> {
        self.0.lock()
    }
}

fn used_up(taken_kib: usize, most_kib: usize) -> ApiError {
    let mib = |kib: usize| kib.div_ceil(1 << 10);
    let message = format!(
        "the open media requests of your account take {} MiB of memory, its share is {} MiB: retry when some have ended, \
         or send smaller files",
        mib(taken_kib),
        mib(most_kib)
    );
    ApiError::new(FailureKind::InFlightLimit, message)
}
