//! Limit of stored bytes per owner.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

/// Number of owners beyond which those without bytes are removed.
const MANY: usize = 1024;

/// Clones share the counters.
#[derive(Debug, Clone)]
pub struct StorageQuota<Owner> {
    most: u64,
    stored: Arc<Mutex<HashMap<Owner, Weak<StoredBytes>>>>,
}

type StoredBytes = Mutex<u64>;

/// Stored bytes of an owner, counted until the drop.
#[derive(Debug)]
pub struct QuotaShare {
    counter: Arc<StoredBytes>,
    bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the files of your open requests take {} MiB of storage, and an account may have {} MiB: retry when some have ended, \
     or send smaller files",
    .stored.div_ceil(1 << 20),
    .most.div_ceil(1 << 20)
)]
pub struct QuotaExceeded {
    stored: u64,
    most: u64,
}

impl<Owner: Hash + Eq> StorageQuota<Owner> {
    pub fn new(most: u64) -> Self {
        Self {
            most,
            stored: Arc::default(),
        }
    }

    /// Whether any space is left, before a file is read.
    pub fn check(&self, owner: Owner) -> Result<(), QuotaExceeded> {
        let stored = lock(&self.stored).get(&owner).and_then(Weak::upgrade);
        let stored = stored.map_or(0, |counter| *lock(&counter));
        self.fits(stored, 1)
    }

    pub fn take(&self, owner: Owner, bytes: u64) -> Result<QuotaShare, QuotaExceeded> {
        let counter = self.counter(owner);
        let mut stored = lock(&counter);
        self.fits(*stored, bytes)?;
        *stored += bytes;
        drop(stored);
        Ok(QuotaShare { counter, bytes })
    }

    fn fits(&self, stored: u64, bytes: u64) -> Result<(), QuotaExceeded> {
        let most = self.most;
        match stored.saturating_add(bytes) > most {
            true => Err(QuotaExceeded { stored, most }),
            false => Ok(()),
        }
    }

    fn counter(&self, owner: Owner) -> Arc<StoredBytes> {
        let mut all = lock(&self.stored);
        if all.len() > MANY {
            all.retain(|_, counter| counter.strong_count() > 0);
        }
        let counter = all.entry(owner).or_default();
        counter.upgrade().unwrap_or_else(|| {
            let new = Arc::new(StoredBytes::default());
            *counter = Arc::downgrade(&new);
            new
        })
    }
}

impl Drop for QuotaShare {
    fn drop(&mut self) {
        *lock(&self.counter) -= self.bytes;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::StorageQuota;

    #[test]
    fn an_owner_stores_so_much_at_a_time_and_others_do_not_notice() {
        let quota = StorageQuota::new(10 << 20);
        let held: Vec<_> = (0..2).map(|_| quota.take("alice", 4 << 20)).collect();
        assert!(held.iter().all(Result::is_ok));
        let refused = quota.take("alice", 3 << 20).unwrap_err().to_string();
        assert!(refused.contains("take 8 MiB"), "{refused}");
        assert!(refused.contains("may have 10 MiB"), "{refused}");
        let rest = quota.take("alice", 2 << 20).unwrap();
        assert!(quota.check("alice").is_err());
        assert!(quota.take("bob", 10 << 20).is_ok());
        drop(rest);
        assert!(quota.check("alice").is_ok());
        drop(held);
        assert!(quota.take("alice", 10 << 20).is_ok());
    }
}
