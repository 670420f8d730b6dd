//! Delays of reconnects: one second, doubling up to thirty, with jitter up to the same amount, so that workers do not
//! all return to a restarted coordinator at once.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    bits: u64,
}

impl Backoff {
    pub fn new(seed: u64) -> Self {
        Self {
            next: FIRST,
            // A xorshift generator at zero stays at zero.
            bits: seed | 1,
        }
    }

    pub fn wait(&mut self) -> Duration {
        let base = self.next;
        self.next = (base * 2).min(LONGEST);
        (base + base.mul_f64(self.chance())).min(LONGEST)
    }

    pub fn reset(&mut self) {
        self.next = FIRST;
    }

    /// From 0 to 1, by a xorshift generator.
    fn chance(&mut self) -> f64 {
        self.bits ^= self.bits << 13;
        self.bits ^= self.bits >> 7;
        self.bits ^= self.bits << 17;
        (self.bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Backoff;

    #[test]
    fn waits_grow_from_one_to_thirty_seconds_and_differ() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<f64> = (0..10).map(|_| backoff.wait().as_secs_f64()).collect();
        for (index, wait) in waits.iter().enumerate() {
            let base = f64::from(1 << index.min(5)).min(30.0);
            assert!((base..=30.0).contains(wait), "{waits:?}");
        }
        backoff.reset();
        assert!(backoff.wait().as_secs_f64() < 2.0);
        let first = |seed| Backoff::new(seed).wait();
        assert_ne!(first(3), first(0x9E37_79B9_7F4A_7C15));
    }
}
