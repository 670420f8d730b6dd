//! Prices of jobs in money.

use std::iter::Sum;

/// Millionths of a US dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MicroUsd(pub i64);

/// The price of a job, fixed when it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobPrice {
    pub input_per_mtok: MicroUsd,
    pub output_per_mtok: MicroUsd,
    /// For the output as a whole.
    pub fixed: MicroUsd,
    /// Held when it was accepted; the job never costs more.
    pub held: MicroUsd,
}

const MILLION: i128 = 1_000_000;

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

impl JobPrice {
    /// The price of this many tokens, rounded up once, regardless of the hold.
    pub fn of_tokens(&self, prompt: u64, output: u64) -> MicroUsd {
        let scaled = i128::from(self.input_per_mtok.0) * i128::from(prompt)
            + i128::from(self.output_per_mtok.0) * i128::from(output);
        let micro = (scaled + MILLION - 1) / MILLION + i128::from(self.fixed.0);
        MicroUsd(i64::try_from(micro).unwrap_or(i64::MAX))
    }

    /// The same for a part of the output, whose price as a whole is rounded up.
    #[must_use]
    pub fn for_part(self, part: u64, whole: u64) -> Self {
        let whole = i128::from(whole.max(1));
        let fixed = (i128::from(self.fixed.0) * i128::from(part) + whole - 1) / whole;
        Self {
            fixed: MicroUsd(i64::try_from(fixed).unwrap_or(i64::MAX)),
            ..self
        }
    }

    /// The final cost of a job with this many tokens, at most the hold.
    pub fn cost(&self, prompt: u64, output: u64) -> MicroUsd {
        self.of_tokens(prompt, output).min(self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::{JobPrice, MicroUsd};

    #[test]
    fn a_job_never_costs_more_than_was_held() {
        let price = JobPrice {
            input_per_mtok: MicroUsd(50_000),
            output_per_mtok: MicroUsd(150_000),
            held: MicroUsd(2),
            ..JobPrice::default()
        };
        assert_eq!(price.cost(1, 0), MicroUsd(1));
        assert_eq!(price.cost(10, 10), MicroUsd(2));
        assert_eq!(price.cost(1000, 1000), MicroUsd(2));
        let dear = JobPrice {
            input_per_mtok: MicroUsd(i64::MAX),
            ..price
        };
        assert_eq!(dear.of_tokens(u64::MAX, 0), MicroUsd(i64::MAX));
    }

    #[test]
    fn a_part_has_its_share_of_the_whole_price() {
        let price = JobPrice {
            fixed: MicroUsd(250),
            ..JobPrice::default()
        };
        let fixed = |part, whole| price.for_part(part, whole).fixed;
        assert_eq!(fixed(1000, 2500), MicroUsd(100));
        assert_eq!(fixed(1, 2500), MicroUsd(1));
        assert_eq!(fixed(0, 0), MicroUsd(0));
    }
}
