//! Repeatable random numbers: SplitMix64.

use std::time::Duration;

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// True with this probability, in a thousand.
    pub fn permille(&mut self, chance: u64) -> bool {
        self.below(1000) < chance
    }

    /// Between two times in milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from * 1000 + self.below((to - from) * 1000))
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len() as u64) as usize)
    }
}
