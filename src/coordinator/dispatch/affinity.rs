//! A bounded cache of the workers that lately read a prompt with the same beginning. Only a hint.

use std::collections::VecDeque;

use muster_protocol::job::WorkerId;

use super::clock::Table;

#[derive(Debug)]
pub struct Affinity {
    seen: Table<u64, WorkerId>,
    order: VecDeque<u64>,
    limit: usize,
}

impl Affinity {
    pub fn new(limit: usize) -> Self {
        Self {
            seen: Table::default(),
            order: VecDeque::new(),
            limit,
        }
    }

    pub fn remember(&mut self, prefix: u64, worker: WorkerId) {
        if self.seen.insert(prefix, worker).is_some() {
            return;
        }
        self.order.push_back(prefix);
        if self.order.len() > self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }

    pub fn worker(&self, prefix: u64) -> Option<WorkerId> {
        self.seen.get(&prefix).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Affinity;
    use muster_protocol::job::WorkerId;

    #[test]
    fn the_oldest_prefix_is_forgotten_first() {
        let mut affinity = Affinity::new(2);
        for prefix in 1..=3 {
            affinity.remember(prefix, WorkerId(prefix as i64));
        }
        affinity.remember(2, WorkerId(9));
        assert_eq!(affinity.worker(1), None);
        assert_eq!(affinity.worker(2), Some(WorkerId(9)));
        assert_eq!(affinity.worker(3), Some(WorkerId(3)));
    }
}
