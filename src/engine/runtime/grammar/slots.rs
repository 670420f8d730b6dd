//! The queue of compilations: few at once, one per account, the shortest source first.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::runtime::{CacheScope, Failure};

/// Grammars of one model that are compiled at a time.
const MOST_COMPILING: usize = 2;

#[derive(Default)]
pub struct CompileSlots {
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Default)]
struct SlotState {
    running: Vec<CacheScope>,
    waiting: Vec<WaitingSource>,
    next_id: u64,
}

#[derive(Clone, Copy)]
struct WaitingSource {
    bytes: usize,
    id: u64,
    scope: CacheScope,
}

/// A permit to compile, released when it is dropped.
pub struct Slot {
    slots: Arc<CompileSlots>,
    scope: CacheScope,
}

impl CompileSlots {
    /// Waits for a slot, at most so long.
    pub fn take(
        slots: &Arc<Self>,
        scope: CacheScope,
        bytes: usize,
        patience: Duration,
    ) -> Result<Slot, Failure> {
        let until = Instant::now() + patience;
        let mut state = slots.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.waiting.push(WaitingSource { bytes, id, scope });
        while state.next() != Some(id) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.leave(id);
                slots.changed.notify_all();
                // The client may retry: this engine or another may have a free slot soon.
                return Err(Failure::Busy {
                    running: MOST_COMPILING,
                    waiting: 0,
                });
            }
            let waited = slots.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.leave(id);
        state.running.push(scope);
        drop(state);
        // Another may be next now.
        slots.changed.notify_all();
        Ok(Slot {
            slots: Arc::clone(slots),
            scope,
        })
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotState {
    fn next(&self) -> Option<u64> {
        if self.running.len() >= MOST_COMPILING {
            return None;
        }
        let free = self.waiting.iter();
        let free = free.filter(|source| !self.running.contains(&source.scope));
        let first = free.min_by_key(|source| (source.bytes, source.id));
        first.map(|source| source.id)
    }

    fn leave(&mut self, id: u64) {
        self.waiting.retain(|source| source.id != id);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        let own = state.running.iter();
        if let Some(at) = own.clone().position(|scope| *scope == self.scope) {
            state.running.swap_remove(at);
        }
        drop(state);
        self.slots.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{CompileSlots, SlotState, WaitingSource};
    use crate::runtime::{CacheScope, Failure};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_account_has_one_slot_and_short_sources_go_first() {
        let source = |bytes, id, scope| WaitingSource {
            bytes,
            id,
            scope: CacheScope(scope),
        };
        let mut state = SlotState {
            waiting: vec![source(9, 0, 1), source(5, 1, 1), source(7, 2, 2)],
            ..SlotState::default()
        };
        assert_eq!(state.next(), Some(1));
        state.leave(1);
        state.running.push(CacheScope(1));
        assert_eq!(state.next(), Some(2), "the account has its slot");
        state.leave(2);
        state.running.push(CacheScope(2));
        assert_eq!(state.next(), None);
    }

    #[test]
    fn a_second_source_of_an_account_waits_while_others_pass() {
        let slots = Arc::new(CompileSlots::default());
        let take = |scope, patience| CompileSlots::take(&slots, CacheScope(scope), 1, patience);
        let first = take(1, LONG).unwrap();
        let refused = take(1, Duration::ZERO).err();
        assert!(matches!(refused, Some(Failure::Busy { .. })), "{refused:?}");
        drop(take(2, Duration::ZERO).unwrap());
        drop(first);
        take(1, Duration::ZERO).unwrap();
    }
}
