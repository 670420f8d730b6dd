//! Uptime of each worker since its last reward. A worker that disconnects starts again.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use crate::kudos::UPTIME;

#[derive(Debug, Default)]
pub struct Attendance {
    since: HashMap<Uuid, Duration>,
}

impl Attendance {
    /// Records which workers were online `during` this time, and whether each served all users. Returns those whose
    /// reward is due.
    pub fn note(
        &mut self,
        there: impl Iterator<Item = (Uuid, bool)>,
        during: Duration,
    ) -> Vec<Uuid> {
        let before = std::mem::take(&mut self.since);
        let mut full = Vec::new();
        for (worker, serves) in there {
            let more = if serves { during } else { Duration::ZERO };
            let stayed = before.get(&worker).map(|time| *time + more);
            let time = stayed.unwrap_or_default();
            if time >= UPTIME {
                full.push(worker);
            }
            let left = if time >= UPTIME { time - UPTIME } else { time };
            self.since.insert(worker, left);
        }
        full
    }

    /// Restores a reward that could not be paid; due again at the next check.
    pub fn give_back(&mut self, worker: Uuid) {
        let since = self.since.entry(worker);
        since.and_modify(|time| *time = time.saturating_add(UPTIME));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::Attendance;

    const MINUTE: Duration = Duration::from_secs(60);
    const WORKER: Uuid = Uuid::from_u128(1);

    /// Number of rewards for this presence, minute by minute.
    fn paid(there: impl Iterator<Item = bool>) -> usize {
        paid_serving(there.map(|is| is.then_some(true)))
    }

    /// The same with the worker serving all users or only its owner.
    fn paid_serving(there: impl Iterator<Item = Option<bool>>) -> usize {
        let mut attendance = Attendance::default();
        let full = there.map(|is| {
            let is_there = is.map(|serves| (WORKER, serves));
            attendance.note(is_there.into_iter(), MINUTE).len()
        });
        full.sum()
    }

    #[test]
    fn time_in_maintenance_is_not_paid_and_costs_nothing() {
        let resting =
            |minutes| (0..21).map(move |minute| Some(minute < 5 || minute >= 5 + minutes));
        assert_eq!(paid_serving(resting(0)), 2);
        assert_eq!(paid_serving(resting(10)), 1);
        assert_eq!(paid_serving(resting(15)), 0);
    }

    #[test]
    fn ten_minutes_are_paid_and_nobody_is_paid_for_less() {
        assert_eq!(paid(std::iter::repeat_n(true, 10)), 0);
        assert_eq!(paid(std::iter::repeat_n(true, 11)), 1);
        assert_eq!(paid(std::iter::repeat_n(true, 61)), 6);
    }

    #[test]
    fn what_could_not_be_paid_is_due_until_it_is() {
        let mut attendance = Attendance::default();
        let mut full = |time| attendance.note([(WORKER, true)].into_iter(), time);
        assert!(full(MINUTE).is_empty());
        assert_eq!(full(10 * MINUTE), [WORKER]);
        attendance.give_back(WORKER);
        let mut full = |time| attendance.note([(WORKER, true)].into_iter(), time);
        assert_eq!(full(Duration::ZERO), [WORKER]);
        assert!(full(Duration::ZERO).is_empty());
    }

    #[test]
    fn whoever_leaves_begins_anew() {
        let away = |missing: usize| (0..20).map(move |minute| minute != missing);
        assert_eq!(paid(away(9)), 0);
        assert_eq!(paid(away(5)), 1);
    }
}
