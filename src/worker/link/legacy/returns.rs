//! Jobs that this worker returned. Coordinators count them: after some twenty in an hour the public one sets a worker
//! to maintenance, and its owner becomes suspicious. A returned job may also be offered to the same worker again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Older returns do not count.
const COUNTED: Duration = Duration::from_secs(3600);
/// The rest after the first, which doubles with every further one. Two thirds of twenty fit into an hour.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(900);

#[derive(Debug, Default)]
pub struct Returns(VecDeque<Instant>);

impl Returns {
    pub fn note(&mut self, now: Instant) {
        self.0.push_back(now);
    }

    /// The number of recent returns, and the time of the next pop.
    pub fn rest(&mut self, now: Instant) -> Option<(usize, Instant)> {
        while self.0.front().is_some_and(|first| *first + COUNTED < now) {
            self.0.pop_front();
        }
        let last = *self.0.back()?;
        let doublings = u32::try_from(self.0.len() - 1).unwrap_or(u32::MAX);
        let rest = FIRST.saturating_mul(2_u32.saturating_pow(doublings));
        let until = last + rest.min(LONGEST);
        (until > now).then_some((self.0.len(), until))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Returns;

    #[test]
    fn whoever_gives_back_rests_longer_and_longer_and_is_forgiven() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut returns = Returns::default();
        assert_eq!(returns.rest(begin), None);
        returns.note(begin);
        assert_eq!(returns.rest(begin), Some((1, at(5))));
        assert_eq!(returns.rest(at(5)), None);
        returns.note(at(5));
        assert_eq!(returns.rest(at(5)), Some((2, at(15))));
        (0..6).for_each(|_| returns.note(at(20)));
        assert_eq!(returns.rest(at(20)), Some((8, at(660))));
        (0..100).for_each(|_| returns.note(at(30)));
        assert_eq!(returns.rest(at(30)), Some((108, at(930))));
        assert_eq!(returns.rest(at(4000)), None);
        returns.note(at(4000));
        assert_eq!(returns.rest(at(4000)), Some((1, at(4005))));
    }

    #[test]
    fn a_worker_that_can_do_nothing_gives_back_fewer_than_a_coordinator_bears() {
        let mut now = Instant::now();
        let end = now + Duration::from_secs(3600);
        let mut returns = Returns::default();
        let mut given_back = 0;
        while now < end {
            returns.note(now);
            given_back += 1;
            now = returns.rest(now).unwrap().1;
        }
        assert!((8..14).contains(&given_back), "{given_back}");
    }
}
