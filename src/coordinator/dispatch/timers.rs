//! Alarms. An alarm per subject is moved rather than added again, so that the queue is bounded by the subjects and a
//! finished job leaves none.

use std::collections::BTreeSet;

use muster_protocol::job::{JobId, WorkerId};

use super::clock::{Mono, Table};
use super::lanes::LaneId;

/// The subject of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Alarm {
    Job(JobId),
    Worker(WorkerId),
    /// A worker's strikes and evictions, which outlive its connection.
    Conduct(WorkerId),
    Lane(LaneId),
    /// The shutdown timeout of the coordinator.
    Drain,
}

#[derive(Debug, Default)]
pub struct Timers {
    queue: BTreeSet<(Mono, Alarm)>,
    set: Table<Alarm, Mono>,
}

impl Timers {
    /// Sets or moves the timer.
    pub fn set(&mut self, alarm: Alarm, at: Mono) {
        match self.set.insert(alarm, at) {
            Some(before) if before == at => return,
            Some(before) => {
                self.queue.remove(&(before, alarm));
            }
            None => {}
        }
        self.queue.insert((at, alarm));
    }

    /// Sets the timer unless it is earlier already.
    pub fn set_by(&mut self, alarm: Alarm, at: Mono) {
        if self.set.get(&alarm).is_none_or(|&before| before > at) {
            self.set(alarm, at);
        }
    }

    pub fn clear(&mut self, alarm: Alarm) {
        if let Some(at) = self.set.remove(&alarm) {
            self.queue.remove(&(at, alarm));
        }
    }

    pub fn next(&self) -> Option<Mono> {
        self.queue.first().map(|&(at, _)| at)
    }

    /// Removes and returns the next due alarm, with the moment it was set for.
    pub fn pop(&mut self, now: Mono) -> Option<(Mono, Alarm)> {
        let &(at, alarm) = self.queue.first().filter(|(at, _)| *at <= now)?;
        self.clear(alarm);
        Some((at, alarm))
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Alarm, Timers};
    use crate::dispatch::clock::Mono;
    use muster_protocol::job::WorkerId;

    #[test]
    fn a_moved_alarm_goes_off_once_and_late() {
        let mut timers = Timers::default();
        let alarm = Alarm::Worker(WorkerId(1));
        timers.set(alarm, Mono(5));
        timers.set(alarm, Mono(9));
        timers.set_by(alarm, Mono(20));
        timers.set(Alarm::Drain, Mono(7));
        assert_eq!(timers.next(), Some(Mono(7)));
        assert_eq!(timers.pop(Mono(8)), Some((Mono(7), Alarm::Drain)));
        assert_eq!(timers.pop(Mono(8)), None);
        assert_eq!(timers.pop(Mono(9)), Some((Mono(9), alarm)));
        assert_eq!(timers.len(), 0);
    }
}
