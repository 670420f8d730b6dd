//! Memory of responses, in total and per account.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use muster_protocol::job::AccountId;

/// Limits of the memory.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    pub all: usize,
    /// Limit of one account.
    pub share: usize,
}

/// Clones share the counters.
#[derive(Debug, Clone)]
pub struct ResponseMemory {
    limits: MemoryLimits,
    taken: Arc<Mutex<MemoryTable>>,
}

#[derive(Debug, Default)]
struct MemoryTable {
    all: usize,
    accounts: HashMap<AccountId, AccountShare>,
}

/// Memory of an account's responses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountShare {
    pub bytes: usize,
    /// Responses still to be stored, and the size of their texts.
    pub unsaved: usize,
    pub unsaved_bytes: usize,
}

/// Memory of one response, until dropped.
#[derive(Debug)]
pub struct MemoryLease {
    memory: ResponseMemory,
    account: AccountId,
    bytes: usize,
    unsaved: Option<usize>,
}

/// The exceeded limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryFull {
    Account,
    All,
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self {
            all: 256 << 20,
            share: 64 << 20,
        }
    }
}

impl ResponseMemory {
    pub fn new(limits: MemoryLimits) -> Self {
        Self {
            limits,
            taken: Arc::default(),
        }
    }

    /// Memory of a new response, empty at first.
    pub fn hold(&self, account: AccountId) -> MemoryLease {
        MemoryLease {
            memory: self.clone(),
            account,
            bytes: 0,
            unsaved: None,
        }
    }

    /// Bytes of all accounts.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.lock().all
    }

    pub fn share(&self, account: AccountId) -> AccountShare {
        self.lock()
            .accounts
            .get(&account)
            .copied()
            .unwrap_or_default()
    }

    pub fn limits(&self) -> MemoryLimits {
        self.limits
    }

    fn lock(&self) -> MutexGuard<'_, MemoryTable> {
        self.taken.lock()
    }
}

impl MemoryLease {
    /// Takes more bytes if available.
    pub fn try_grow(&mut self, bytes: usize) -> Result<(), MemoryFull> {
        let limits = self.memory.limits;
        let mut taken = self.memory.lock();
        let of_account = taken.accounts.get(&self.account).map_or(0, |it| it.bytes);
        if of_account.saturating_add(bytes) > limits.share {
            return Err(MemoryFull::Account);
        }
        if taken.all.saturating_add(bytes) > limits.all {
            return Err(MemoryFull::All);
        }
        taken.add(self.account, bytes);
        self.bytes += bytes;
        Ok(())
    }

    /// Takes more bytes even beyond the limit, for bytes that exist already.
    pub fn grow(&mut self, bytes: usize) {
        self.memory.lock().add(self.account, bytes);
        self.bytes += bytes;
    }

    pub fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.memory.lock().remove(self.account, bytes);
    }

    /// Counts the response as still to be stored.
    pub fn note_unsaved(&mut self, bytes: usize) {
        self.note_saved();
        self.unsaved = Some(bytes);
        let mut taken = self.memory.lock();
        let share = taken.accounts.entry(self.account).or_default();
        share.unsaved += 1;
        share.unsaved_bytes += bytes;
    }

    /// The response was stored, or will not be stored.
    pub fn note_saved(&mut self) {
        let Some(bytes) = self.unsaved.take() else {
            return;
        };
        let mut taken = self.memory.lock();
        if let Some(share) = taken.accounts.get_mut(&self.account) {
            share.unsaved -= 1;
            share.unsaved_bytes -= bytes;
        }
        taken.forget_empty(self.account);
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.note_saved();
        self.shrink(self.bytes);
    }
}

impl MemoryTable {
    fn add(&mut self, account: AccountId, bytes: usize) {
        self.all += bytes;
        self.accounts.entry(account).or_default().bytes += bytes;
    }

    fn remove(&mut self, account: AccountId, bytes: usize) {
        self.all -= bytes;
        if let Some(share) = self.accounts.get_mut(&account) {
            share.bytes -= bytes;
        }
        self.forget_empty(account);
    }

    fn forget_empty(&mut self, account: AccountId) {
        let is_empty = |share: &AccountShare| *share == AccountShare::default();
        if self.accounts.get(&account).is_some_and(is_empty) {
            self.accounts.remove(&account);
        }
    }
}
