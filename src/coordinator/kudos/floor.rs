//! Floors: no request is refused for lack of kudos; a charge that would take a balance below its floor is forgiven down
//! to there. The house pays the forgiven part, by two more entries of the same job or posting, so that each still sums
//! to zero and the ledger shows the cost.

use std::collections::HashMap;

use muster_protocol::job::{AccountId, Kudos};

use super::{Entry, HOUSE, Reason};

/// An account below its floor after some entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallen {
    /// Balance before these entries.
    pub before: Kudos,
    pub floor: Kudos,
}

/// The forgiven parts of the entries, in order.
pub fn forgiven<'a, T: ?Sized>(
    entries: &[(&'a T, Entry)],
    fallen: &HashMap<AccountId, Fallen>,
) -> Vec<(&'a T, Entry)> {
    let mut balances: HashMap<AccountId, i64> = HashMap::new();
    let mut forgiven = Vec::new();
    for (of, entry) in entries {
        let Some(Fallen { before, floor }) = fallen.get(&entry.account) else {
            continue;
        };
        let balance = balances.entry(entry.account).or_insert(before.0);
        *balance = balance.saturating_add(entry.amount.0);
        let missing = floor.0.saturating_sub(*balance);
        let amount = missing.min(entry.amount.0.saturating_neg());
        if amount > 0 {
            *balance += amount;
            let entries = forgive(entry.account, Kudos(amount));
            forgiven.extend(entries.map(|entry| (*of, entry)));
        }
    }
    forgiven
}

/// The house pays the account.
pub fn forgive(account: AccountId, amount: Kudos) -> [Entry; 2] {
    [(HOUSE, -amount.0), (account, amount.0)].map(|(account, amount)| Entry {
        account,
        worker: None,
        reason: Reason::Forgiven,
        amount: Kudos(amount),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::collection::vec;
    use proptest::{prop_assert, proptest};

    use super::{Fallen, forgiven};
    use crate::kudos::{Entry, Reason};
    use muster_protocol::job::{AccountId, Kudos};

    const ALICE: AccountId = AccountId(1);

    fn entry(amount: i64) -> Entry {
        Entry {
            account: ALICE,
            worker: None,
            reason: Reason::Charge,
            amount: Kudos(amount),
        }
    }

    /// The forgiven part of each amount.
    fn of(before: i64, floor: i64, amounts: &[i64]) -> Vec<i64> {
        let amounts = amounts.iter();
        let entries: Vec<_> = amounts.map(|amount| (&"a job", entry(*amount))).collect();
        let fallen = Fallen {
            before: Kudos(before),
            floor: Kudos(floor),
        };
        let forgiven = forgiven(&entries, &HashMap::from([(ALICE, fallen)]));
        let sum: i64 = forgiven.iter().map(|(_, entry)| entry.amount.0).sum();
        assert_eq!(sum, 0);
        let its = forgiven.iter().filter(|(_, entry)| entry.account == ALICE);
        its.map(|(_, entry)| entry.amount.0).collect()
    }

    #[test]
    fn a_charge_is_forgiven_down_to_the_floor() {
        assert_eq!(of(20, 14, &[-10]), [4]);
        assert_eq!(of(14, 14, &[-10, -3]), [10, 3]);
        assert_eq!(of(20, 14, &[-5, -5, 7]), [4]);
        assert_eq!(of(20, 14, &[-6]), [0; 0]);
    }

    #[test]
    fn whoever_was_below_pays_nothing_and_is_not_lifted() {
        assert_eq!(of(0, 14, &[-10]), [10]);
        assert_eq!(of(-45, -50, &[-10]), [5]);
    }

    proptest! {
        #[test]
        fn no_charge_takes_a_balance_below_its_floor(before in 14_i64..100, amounts in vec(-50_i64..50, 0..20)) {
            let given: i64 = of(before, 14, &amounts).iter().sum();
            let after = before + amounts.iter().sum::<i64>() + given;
            prop_assert!(after >= 14);
        }
    }
}
