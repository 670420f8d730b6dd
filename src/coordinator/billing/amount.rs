//! An amount of money.

use std::iter::Sum;

/// Millionths of a US dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MicroUsd(pub i64);

impl MicroUsd {
    /// For people and for fields in USD; never for sums.
    pub fn usd(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Sum for MicroUsd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        Self(amounts.fold(0, |sum, amount| sum.saturating_add(amount.0)))
    }
}
