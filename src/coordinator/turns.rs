//! Fair turns: each party in a queue runs a few items at a time, and waits with the others for its next turn. So a
//! newcomer waits for a few items of each party, however many items one party has.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Clones are the same.
#[derive(Debug)]
pub struct Turns<Who> {
    lines: Arc<Mutex<HashMap<Who, Arc<Semaphore>>>>,
    /// Concurrent items per party.
    each: fn(&Who) -> usize,
}

/// Until this is dropped.
#[derive(Debug)]
pub struct Turn<Who: Eq + Hash> {
    turns: Turns<Who>,
    who: Who,
    line: Option<Arc<Semaphore>>,
    taken: Option<OwnedSemaphorePermit>,
}

impl<Who: Eq + Hash + Clone> Turns<Who> {
    /// With this many concurrent items for each party.
    pub fn for_each(each: fn(&Who) -> usize) -> Self {
        Self {
            lines: Arc::default(),
            each,
        }
    }

    /// Waits behind the party's other items.
    pub async fn turn(&self, who: Who) -> Turn<Who> {
        let (mut turn, line) = self.stand(who);
        turn.taken = line.acquire_owned().await.ok();
        turn
    }

    /// `None` while too many of the party's items run.
    pub fn turn_now(&self, who: Who) -> Option<Turn<Who>> {
        let (mut turn, line) = self.stand(who);
        turn.taken = line.try_acquire_owned().ok();
        turn.taken.is_some().then_some(turn)
    }

    fn stand(&self, who: Who) -> (Turn<Who>, Arc<Semaphore>) {
        let mut lines = self.lines();
        let line = lines.entry(who.clone());
        let line = line.or_insert_with_key(|who| Arc::new(Semaphore::new((self.each)(who))));
        let turn = Turn {
            turns: self.clone(),
            who,
            line: Some(line.clone()),
            taken: None,
        };
        (turn, line.clone())
    }
}

impl<Who> Turns<Who> {
    fn lines(&self) -> MutexGuard<'_, HashMap<Who, Arc<Semaphore>>> {
        self.lines.lock()
    }
}

impl<Who> Clone for Turns<Who> {
    fn clone(&self) -> Self {
        Self {
            lines: self.lines.clone(),
            each: self.each,
        }
    }
}

impl<Who: Eq + Hash> Drop for Turn<Who> {
    /// The last one takes its line away.
    fn drop(&mut self) {
        self.taken = None;
        let mut lines = self.turns.lines();
        self.line = None;
        let line = lines.get(&self.who);
        if line.is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.who);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::Turns;

    #[test]
    fn what_is_of_one_waits_for_its_own_and_for_nobody_else() {
        let turns = Turns::for_each(|_| 2);
        let now = |who: &'static str| turns.turn(who).now_or_never();
        let (first, second) = (now("alice"), now("alice"));
        assert!(first.is_some() && second.is_some());
        assert!(now("alice").is_none() && turns.turn_now("alice").is_none());
        assert!(now("bob").is_some());
        drop(first);
        assert!(turns.turn_now("alice").is_some());
    }

    #[test]
    fn who_waits_is_next_and_nothing_is_kept_of_those_who_are_gone() {
        let turns = Turns::for_each(|_| 1);
        let first = turns.turn_now("alice");
        let mut second = Box::pin(turns.turn("alice"));
        assert!(second.as_mut().now_or_never().is_none());
        let gone = turns.turn("alice").now_or_never();
        assert!(gone.is_none());
        drop(first);
        assert!(turns.turn_now("alice").is_none(), "it is the second one's");
        assert!(second.as_mut().now_or_never().is_some());
        drop(second);
        assert!(turns.lines().is_empty());
    }
}
