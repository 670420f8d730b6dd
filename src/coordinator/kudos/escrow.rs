//! Escrow of owners' rewards before they are trusted. Half of each reward is kept in an account beside the owner's own,
//! so that the ledger alone shows amounts and owners.

use muster_protocol::job::{AccountId, Kudos};

use super::{Entry, Reason, Settlement};

/// The escrow account of a user: the negated number, below the house's.
pub const fn escrow_of(account: AccountId) -> AccountId {
    AccountId(-1 - account.0)
}

/// The owner of an escrow account.
pub const fn owner_of(escrow: AccountId) -> Option<AccountId> {
    match escrow.0 < -1 {
        true => Some(AccountId(-1 - escrow.0)),
        false => None,
    }
}

/// The part of a reward kept in escrow.
pub const fn withheld(reward: Kudos) -> Kudos {
    Kudos(reward.0 / 2)
}

impl Settlement {
    /// Moves half of untrusted owners' rewards to escrow.
    #[must_use]
    pub fn keeping_back(mut self, is_trusted: impl Fn(AccountId) -> bool) -> Self {
        let waits = |entry: &Entry| entry.reason == Reason::Reward && !is_trusted(entry.account);
        if self.entries.iter().any(waits) {
            let entries = std::mem::take(&mut self.entries);
            let split = |entry| match waits(&entry) {
                true => halves(entry),
                false => [Some(entry), None],
            };
            self.entries = entries.into_iter().flat_map(split).flatten().collect();
        }
        self
    }
}

fn halves(entry: Entry) -> [Option<Entry>; 2] {
    let waiting = withheld(entry.amount);
    let paid = Entry {
        amount: Kudos(entry.amount.0 - waiting.0),
        ..entry
    };
    let kept = Entry {
        account: escrow_of(entry.account),
        reason: Reason::Escrow,
        amount: waiting,
        ..entry
    };
    [Some(paid), (waiting.0 > 0).then_some(kept)]
}

#[cfg(test)]
mod tests {
    use super::{escrow_of, owner_of, withheld};
    use crate::kudos::HOUSE;
    use muster_protocol::job::{AccountId, Kudos};

    #[test]
    fn every_owner_has_an_escrow_of_their_own() {
        assert_eq!(escrow_of(AccountId(1)), AccountId(-2));
        assert_eq!(owner_of(AccountId(-2)), Some(AccountId(1)));
        assert_eq!((owner_of(HOUSE), owner_of(AccountId(1))), (None, None));
        let escrows: Vec<_> = (1..100).map(|id| escrow_of(AccountId(id))).collect();
        assert!(escrows.iter().all(|escrow| escrow.0 < HOUSE.0));
        assert!(escrows.is_sorted_by(|one, next| one.0 == next.0 + 1));
    }

    #[test]
    fn half_of_a_reward_waits_and_the_odd_thousandth_does_not() {
        assert_eq!(withheld(Kudos(1001)), Kudos(500));
        assert_eq!(withheld(Kudos(1)), Kudos(0));
    }
}
