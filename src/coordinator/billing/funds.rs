//! The funds of an account, in the order of spending.

use super::MicroUsd;

/// Funds of an account: promotional credits are spent first, then those of the day, then paid ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Funds {
    pub promotional: MicroUsd,
    /// Free credits of the UTC day.
    pub free: MicroUsd,
    pub paid: MicroUsd,
}

impl Funds {
    pub fn total(self) -> MicroUsd {
        [self.promotional, self.free, self.paid].into_iter().sum()
    }

    /// Splits an amount among the funds, limited to the total.
    pub fn part(self, amount: MicroUsd) -> Self {
        let mut left = amount.0.max(0);
        let mut take = |has: MicroUsd| {
            let taken = has.0.clamp(0, left);
            left -= taken;
            MicroUsd(taken)
        };
        Self {
            promotional: take(self.promotional),
            free: take(self.free),
            paid: take(self.paid),
        }
    }

    #[must_use]
    pub fn minus(self, part: Self) -> Self {
        Self {
            promotional: MicroUsd(self.promotional.0 - part.promotional.0),
            free: MicroUsd(self.free.0 - part.free.0),
            paid: MicroUsd(self.paid.0 - part.paid.0),
        }
    }

    #[must_use]
    pub fn plus(self, part: Self) -> Self {
        let sum = |one: MicroUsd, other: MicroUsd| MicroUsd(one.0.saturating_add(other.0));
        Self {
            promotional: sum(self.promotional, part.promotional),
            free: sum(self.free, part.free),
            paid: sum(self.paid, part.paid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Funds;
    use crate::billing::MicroUsd;

    fn funds(promotional: i64, free: i64, paid: i64) -> Funds {
        Funds {
            promotional: MicroUsd(promotional),
            free: MicroUsd(free),
            paid: MicroUsd(paid),
        }
    }

    #[test]
    fn promotional_credits_go_first_and_paid_ones_last() {
        let all = funds(5, 3, 10);
        let check = |amount, part: Funds| {
            assert_eq!(all.part(MicroUsd(amount)), part, "{amount}");
            assert_eq!(all.minus(part).plus(part), all);
        };
        check(0, funds(0, 0, 0));
        check(4, funds(4, 0, 0));
        check(7, funds(5, 2, 0));
        check(18, funds(5, 3, 10));
        check(19, funds(5, 3, 10));
        assert_eq!(funds(-5, 3, 1).part(MicroUsd(4)), funds(0, 3, 1));
    }
}
