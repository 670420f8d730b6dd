//! Strikes of workers, and the bar after too many. Kept per worker, not per connection, so that reconnecting resets
//! nothing.

use std::collections::VecDeque;
use std::time::Duration;

use muster_protocol::job::WorkerId;

use super::clock::{Mono, Table};
use super::settings::StrikeRules;

#[derive(Debug, Default)]
pub struct Conduct {
    records: Table<WorkerId, Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// Times of failures, oldest first; one entry per job.
    strikes: VecDeque<Mono>,
    succeeded: Option<Mono>,
    evictions: VecDeque<Mono>,
    barred_until: Option<Mono>,
}

impl Conduct {
    /// Counts a strike for a job that this worker failed at `failed` and that has ended since. Returns the duration of
    /// the bar if this was the last strike allowed.
    pub fn strike(
        &mut self,
        worker: WorkerId,
        failed: Mono,
        now: Mono,
        rules: &StrikeRules,
    ) -> Option<Duration> {
        let record = self.records.entry(worker).or_default();
        let cleared = record.succeeded.max(record.evictions.back().copied());
        if cleared.is_some_and(|cleared| cleared > failed) {
            return None;
        }
        // Jobs end in another order than their failures.
        let place = record.strikes.partition_point(|&earlier| earlier <= failed);
        record.strikes.insert(place, failed);
        record.forget(now, rules);
        (record.strikes.len() >= rules.limit).then(|| record.evict(now, rules))
    }

    /// A success clears all earlier strikes.
    pub fn success(&mut self, worker: WorkerId, now: Mono) {
        if let Some(record) = self.records.get_mut(&worker) {
            record.strikes.clear();
            record.succeeded = Some(now);
        }
    }

    /// The remaining time of the bar on the worker's name.
    pub fn barred(&self, worker: WorkerId, now: Mono) -> Option<Duration> {
        let until = self.records.get(&worker)?.barred_until?;
        (until > now).then(|| until.since(now))
    }

    pub fn strikes(&self, worker: WorkerId) -> usize {
        self.records
            .get(&worker)
            .map_or(0, |record| record.strikes.len())
    }

    /// Drops expired strikes and evictions. Returns when the next one expires, `None` if the record is empty.
    pub fn forget(&mut self, worker: WorkerId, now: Mono, rules: &StrikeRules) -> Option<Mono> {
        let record = self.records.get_mut(&worker)?;
        record.forget(now, rules);
        let next = record.next_change(rules);
        if next.is_none() {
            self.records.remove(&worker);
        }
        next
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }
}

impl Record {
    fn evict(&mut self, now: Mono, rules: &StrikeRules) -> Duration {
        let rung = self
            .evictions
            .len()
            .min(rules.ladder.len().saturating_sub(1));
        let bar = rules.ladder.get(rung).copied().unwrap_or_default();
        self.strikes.clear();
        self.evictions.push_back(now);
        self.barred_until = Some(now + bar);
        bar
    }

    fn forget(&mut self, now: Mono, rules: &StrikeRules) {
        while self
            .strikes
            .front()
            .is_some_and(|&at| at + rules.window <= now)
        {
            self.strikes.pop_front();
        }
        while self
            .evictions
            .front()
            .is_some_and(|&at| at + rules.memory <= now)
        {
            self.evictions.pop_front();
        }
        self.barred_until = self.barred_until.filter(|&until| until > now);
    }

    fn next_change(&self, rules: &StrikeRules) -> Option<Mono> {
        let strike = self.strikes.front().map(|&at| at + rules.window);
        let eviction = self.evictions.front().map(|&at| at + rules.memory);
        [strike, eviction, self.barred_until]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Conduct;
    use crate::dispatch::clock::Mono;
    use crate::dispatch::settings::StrikeRules;
    use muster_protocol::job::WorkerId;

    const WORKER: WorkerId = WorkerId(7);

    fn at(secs: u64) -> Mono {
        Mono(secs * 1_000_000)
    }

    fn strike_six_times(conduct: &mut Conduct, from: u64) -> Option<Duration> {
        let rules = StrikeRules::default();
        let barred =
            (from..from + 6).map(|secs| conduct.strike(WORKER, at(secs), at(secs), &rules));
        barred.last().flatten()
    }

    #[test]
    fn the_bar_grows_with_every_eviction_within_an_hour() {
        let mut conduct = Conduct::default();
        let bars = [0, 100, 300, 1000, 5000].map(|from| strike_six_times(&mut conduct, from));
        // The fifth failure comes when the others are more than an hour old.
        let secs = bars.map(|bar| bar.unwrap().as_secs());
        assert_eq!(secs, [30, 120, 600, 3600, 30]);
    }

    #[test]
    fn a_success_clears_strikes_and_those_still_pending_from_before() {
        let (mut conduct, rules) = (Conduct::default(), StrikeRules::default());
        for secs in 0..5 {
            assert_eq!(conduct.strike(WORKER, at(secs), at(secs), &rules), None);
        }
        conduct.success(WORKER, at(10));
        assert_eq!(conduct.strike(WORKER, at(9), at(11), &rules), None);
        assert_eq!(conduct.strikes(WORKER), 0);
    }

    #[test]
    fn what_was_failed_before_an_eviction_is_paid_for_with_it() {
        let (mut conduct, rules) = (Conduct::default(), StrikeRules::default());
        assert!(strike_six_times(&mut conduct, 10).is_some());
        for secs in 4..10 {
            assert_eq!(conduct.strike(WORKER, at(secs), at(20), &rules), None);
        }
        assert_eq!(conduct.strikes(WORKER), 0);
    }

    #[test]
    fn strikes_grow_old_by_when_the_worker_failed_and_not_by_when_the_job_ended() {
        let (mut conduct, rules) = (Conduct::default(), StrikeRules::default());
        for failed in [100, 50] {
            conduct.strike(WORKER, at(failed), at(120), &rules);
        }
        assert_eq!(conduct.forget(WORKER, at(351), &rules), Some(at(400)));
        assert_eq!(conduct.strikes(WORKER), 1);
    }

    #[test]
    fn strikes_and_bars_are_forgotten_in_time() {
        let (mut conduct, rules) = (Conduct::default(), StrikeRules::default());
        strike_six_times(&mut conduct, 0);
        assert_eq!(
            conduct.barred(WORKER, at(10)),
            Some(Duration::from_secs(25))
        );
        assert_eq!(conduct.barred(WORKER, at(35)), None);
        assert_eq!(conduct.forget(WORKER, at(40), &rules), Some(at(3605)));
        assert_eq!(conduct.forget(WORKER, at(3605), &rules), None);
        assert_eq!(conduct.len(), 0);
    }
}
