//! Unauthenticated sockets. All of them share one budget: a number of sockets, each with one small message and little
//! time. Beyond the limit, the socket that has been silent for longest is closed, so that idle sockets keep no worker
//! out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// With the longest first message each, 64 MiB.
const MOST: usize = 1024;
/// Limit of the first message. Public workers send some hundred bytes.
pub const FIRST_MESSAGE: usize = 64 << 10;
/// Bytes of the first message, its frames and some pings.
pub const ALLOWANCE: usize = FIRST_MESSAGE + (4 << 10);

/// Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Strangers(Arc<Mutex<Present>>);

#[derive(Debug, Default)]
struct Present {
    next: u64,
    /// Silent sockets, in order of arrival.
    silent: BTreeMap<u64, Arc<Notify>>,
    /// Sockets whose first message is being checked.
    known: BTreeSet<u64>,
}

/// The slot of one socket, until dropped.
#[derive(Debug)]
pub struct Stranger {
    all: Strangers,
    id: u64,
    dismissed: Arc<Notify>,
}

impl Strangers {
    /// `None` if all places are taken by sockets that have spoken.
    pub fn enter(&self) -> Option<Stranger> {
        let mut present = self.present();
        if present.silent.len() + present.known.len() >= MOST {
            let (_, longest) = present.silent.pop_first()?;
            longest.notify_one();
        }
        let id = present.next;
        present.next += 1;
        let dismissed = Arc::new(Notify::new());
        present.silent.insert(id, dismissed.clone());
        drop(present);
        Some(Stranger {
            all: self.clone(),
            id,
            dismissed,
        })
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.0.lock()
    }
}

impl Stranger {
    /// The first message has arrived, so the place is not given away any more. False if it was already.
    pub fn has_spoken(&self) -> bool {
        let mut present = self.all.present();
        let was_silent = present.silent.remove(&self.id).is_some();
        if was_silent {
            present.known.insert(self.id);
        }
        was_silent
    }

    /// Returns when the slot was given to another socket.
    pub async fn dismissed(&self) {
        self.dismissed.notified().await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut present = self.all.present();
        present.silent.remove(&self.id);
        present.known.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Strangers};

    #[tokio::test]
    async fn the_longest_silent_stranger_makes_room_and_those_that_spoke_keep_theirs() {
        let strangers = Strangers::default();
        let mut present: Vec<_> = (0..MOST).map(|_| strangers.enter().unwrap()).collect();
        assert!(present[0].has_spoken());
        let newest = strangers.enter().unwrap();
        present[1].dismissed().await;
        assert!(!present[1].has_spoken());
        assert!(newest.has_spoken());
        present.iter().skip(2).for_each(|one| {
            one.has_spoken();
        });
        assert!(strangers.enter().is_none());
        present.pop();
        assert!(strangers.enter().is_some());
    }
}
