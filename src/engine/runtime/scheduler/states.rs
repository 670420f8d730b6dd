//! State slots of models with recurrent layers: one per running sequence, and snapshots at page borders. Pure: the
//! caller copies the tensors.
//!
//! A state depends on all tokens before it, so that pages are not enough to share a prefix. A snapshot is kept after a
//! prompt's last full page, for the next turn of a chat, and where a prompt diverges from earlier ones, for their
//! common prefix. New snapshots replace the least recently used one.

use crate::runtime::kv_cache::Prefix;
use muster_kernels::PAGE_TOKENS;

/// How many snapshots a model keeps.
pub const SNAPSHOTS: usize = 8;

/// A shorter prefix is read again.
const LEAST_TOKENS: usize = 2 * PAGE_TOKENS;

/// A state that becomes that of another slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateCopy {
    pub from: u32,
    pub to: u32,
}

#[derive(Debug)]
pub struct States {
    /// Slots that no running sequence has, the smallest last.
    free: Vec<u32>,
    /// Slots of snapshots that were not needed yet.
    unused: Vec<u32>,
    /// Least recently used first.
    snapshots: Vec<(Prefix, u32)>,
    /// Copies to make before the next step, in order.
    copies: Vec<StateCopy>,
}

impl States {
    /// Slots for running sequences, followed by those for snapshots.
    pub fn new(running: usize, snapshots: usize) -> Self {
        let (running, snapshots) = (running as u32, snapshots as u32);
        Self {
            free: (0..running).rev().collect(),
            unused: (running..running + snapshots).rev().collect(),
            snapshots: Vec::new(),
            copies: Vec::new(),
        }
    }

    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub fn give_back(&mut self, slot: Option<u32>) {
        self.free.extend(slot);
    }

    pub fn has_snapshot(&self, prefix: Prefix) -> bool {
        self.snapshots.iter().any(|(known, _)| *known == prefix)
    }

    /// Copies a prefix's state to a sequence's slot.
    pub fn restore(&mut self, prefix: Prefix, slot: Option<u32>) {
        if let (Some(from), Some(to)) = (self.used(prefix), slot) {
            self.copies.push(StateCopy { from, to });
        }
    }

    /// Keeps the state of a sequence that has computed a prefix.
    pub fn keep(&mut self, prefix: Prefix, slot: Option<u32>) {
        let Some(from) = slot.filter(|_| self.used(prefix).is_none()) else {
            return;
        };
        let oldest = || (!self.snapshots.is_empty()).then(|| self.snapshots.remove(0).1);
        if let Some(to) = self.unused.pop().or_else(oldest) {
            self.snapshots.push((prefix, to));
            self.copies.push(StateCopy { from, to });
        }
    }

    pub fn take_copies(&mut self) -> Vec<StateCopy> {
        std::mem::take(&mut self.copies)
    }

    /// The slot of a snapshot, which is the most recently used one now.
    fn used(&mut self, prefix: Prefix) -> Option<u32> {
        let at = self
            .snapshots
            .iter()
            .position(|(known, _)| *known == prefix)?;
        let snapshot = self.snapshots.remove(at);
        self.snapshots.push(snapshot);
        Some(snapshot.1)
    }
}

/// Positions of snapshots, in order: after the prefix shared with others, and after the last full page.
pub fn marks(tokens: usize, computed: usize, common: usize) -> Vec<usize> {
    let last = tokens.saturating_sub(1) / PAGE_TOKENS * PAGE_TOKENS;
    let mut marks = vec![common, last];
    marks.dedup();
    marks.retain(|&mark| mark > computed && mark >= LEAST_TOKENS);
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::CacheScope;

    fn prefix(number: u128) -> Prefix {
        Prefix::from(CacheScope(number))
    }

    #[test]
    fn snapshots_are_kept_once_and_the_oldest_makes_room() {
        let mut states = States::new(2, 2);
        let slot = states.take();
        assert_eq!(slot, Some(0));
        for number in [1, 2, 1] {
            states.keep(prefix(number), slot);
        }
        let copy = |from, to| StateCopy { from, to };
        assert_eq!(states.take_copies(), [copy(0, 2), copy(0, 3)]);
        let other = states.take();
        states.restore(prefix(2), other);
        states.keep(prefix(3), slot);
        assert_eq!(states.take_copies(), [copy(3, 1), copy(0, 2)]);
        assert!(!states.has_snapshot(prefix(1)) && states.has_snapshot(prefix(3)));
        states.restore(prefix(1), other);
        assert_eq!(states.take_copies(), []);
        states.give_back(slot);
        assert_eq!(states.take(), Some(0));
        assert_eq!(states.take(), None);
    }

    #[test]
    fn prompts_are_cut_where_a_state_is_worth_keeping() {
        assert_eq!(marks(200, 0, 96), [96, 192]);
        assert_eq!(marks(200, 96, 96), [192]);
        assert_eq!(marks(200, 192, 192), [0; 0]);
        assert_eq!(marks(193, 0, 192), [192]);
        assert_eq!(marks(192, 0, 0), [160]);
        assert_eq!(marks(64, 0, 32), [0; 0]);
        assert_eq!(marks(0, 0, 0), [0; 0]);
    }
}
