//! What owners of workers have earned before they are trusted. Half of each reward waits in an account beside the
//! owner's own, so that the ledger alone says how much it is and whose.

use crate::protocol::job::{AccountId, Kudos};

/// The escrow of an account of people: its number's opposite, beyond the house's.
pub const fn escrow_of(account: AccountId) -> AccountId {
    AccountId(-1 - account.0)
}

/// Of a reward, what waits.
pub const fn withheld(reward: Kudos) -> Kudos {
    Kudos(reward.0 / 2)
}

#[cfg(test)]
mod tests {
    use super::{escrow_of, withheld};
    use crate::coordinator::kudos::HOUSE;
    use crate::protocol::job::{AccountId, Kudos};

    #[test]
    fn every_owner_has_an_escrow_of_their_own() {
        assert_eq!(escrow_of(AccountId(1)), AccountId(-2));
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
