//! Budget of decoded audio samples per sender: a decoder costs processor time by rate, channels and seconds, and a file
//! of some kilobytes may hold hours. Each sender has a bucket that refills with time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::sender::Sender;

/// Samples of the longest accepted audio: two hours at 48 kHz in stereo.
pub const MOST_SAMPLES: u64 = 2 * 3600 * 48_000 * 2;
/// Four of the largest files at once.
const CAPACITY: u64 = 4 * MOST_SAMPLES;
/// Sixty times the playback speed of such audio.
const SAMPLES_A_SECOND: u64 = 60 * 48_000 * 2;
/// Rough decoding speed of a processor, for a decoder that was stopped before it reported its samples.
const DECODED_A_SECOND: u64 = 50_000_000;
/// Number of buckets beyond which full ones are removed.
const MANY: usize = 1024;

/// Clones share the buckets.
#[derive(Debug, Clone, Default)]
pub struct SampleBudget(Arc<Mutex<HashMap<Sender, SampleBucket>>>);

#[derive(Debug, Clone, Copy)]
struct SampleBucket {
    /// Decoded samples that are not refilled yet.
    used: u64,
    since: Instant,
}

/// A decoder's use of the budget. If dropped before the samples are known, the elapsed time is charged.
#[derive(Debug)]
pub struct Spending {
    budget: SampleBudget,
    sender: Sender,
    began: Instant,
    samples: Option<u64>,
}

impl SampleBudget {
    /// Fails with the time until the sender's next decoding.
    pub fn begin(&self, sender: Sender, now: Instant) -> Result<Spending, Duration> {
        let mut buckets = self.buckets();
        if buckets.len() > MANY {
            buckets.retain(|_, bucket| bucket.at(now).used > 0);
        }
        let used = buckets.get(&sender).map_or(0, |bucket| bucket.at(now).used);
        match used.checked_sub(CAPACITY) {
            Some(over) if over > 0 => Err(Duration::from_secs(over / SAMPLES_A_SECOND + 1)),
            _ => Ok(Spending {
                budget: self.clone(),
                sender,
                began: now,
                samples: None,
            }),
        }
    }

    fn spend(&self, sender: Sender, samples: u64, now: Instant) {
        let mut buckets = self.buckets();
        let empty = SampleBucket {
            used: 0,
            since: now,
        };
        let bucket = buckets.entry(sender).or_insert(empty);
        *bucket = bucket.at(now);
        bucket.used = bucket.used.saturating_add(samples);
    }

    fn buckets(&self) -> MutexGuard<'_, HashMap<Sender, SampleBucket>> {
        self.0.lock()
    }
}

impl SampleBucket {
    fn at(self, now: Instant) -> Self {
        let passed = now.saturating_duration_since(self.since);
        let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        let back = millis.saturating_mul(SAMPLES_A_SECOND / 1000);
        Self {
            used: self.used.saturating_sub(back),
            since: self.since.max(now),
        }
    }
}

impl Spending {
    /// Reports the number of decoded samples.
    pub fn decoded(mut self, samples: u64) {
        self.samples = Some(samples);
    }
}

impl Drop for Spending {
    fn drop(&mut self) {
        let now = Instant::now();
        let millis = now.saturating_duration_since(self.began).as_millis();
        let by_time = u64::try_from(millis)
            .unwrap_or(u64::MAX)
            .saturating_mul(DECODED_A_SECOND / 1000);
        let samples = self.samples.unwrap_or(by_time.min(MOST_SAMPLES));
        self.budget.spend(self.sender, samples, now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use muster_protocol::job::AccountId;

    use super::{MOST_SAMPLES, SAMPLES_A_SECOND, SampleBudget};
    use crate::sender::Sender;

    #[test]
    fn a_sender_waits_for_what_was_decoded_and_nobody_else_does() {
        let budget = SampleBudget::default();
        let (alice, bob) = (AccountId(7), AccountId(8));
        let (alice, bob) = (Sender::Account(alice), Sender::Account(bob));
        let now = Instant::now();
        for _ in 0..5 {
            budget.begin(alice, now).unwrap().decoded(MOST_SAMPLES);
        }
        // Decoded samples count from the time they are reported.
        let now = Instant::now();
        let wait = budget.begin(alice, now).unwrap_err();
        let longest = Duration::from_secs(MOST_SAMPLES / SAMPLES_A_SECOND + 1);
        assert!(wait > longest / 2 && wait <= longest, "{wait:?}");
        assert!(budget.begin(bob, now).is_ok());
        assert!(budget.begin(alice, now + wait).is_ok());
    }
}
