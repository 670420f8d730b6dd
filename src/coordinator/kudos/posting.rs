//! Postings: balanced entries with a cause, without a job. Every movement of kudos outside the settlement of a job is a
//! posting, so that the ledger alone explains every balance.

use uuid::Uuid;

use muster_protocol::job::{AccountId, Kudos, UnixMillis, timely};

use super::HOUSE;

/// Limit of one transfer: a trillion kudos, more than all accounts of the public service have.
pub const MOST: Kudos = Kudos(1_000_000_000_000_000);
/// Most kudos created at once, by an award or a correction: a billion. Such amounts are limited by no balance, and the
/// sum of some millions of them still fits in 64 bits.
pub const MOST_CREATED: Kudos = Kudos(1_000_000_000_000);

/// Tallies of transfers between users.
pub const GIFTED: &str = "gifted";
pub const DONATED: &str = "donated";
pub const RECEIVED: &str = "received";

/// Entries that are written together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    pub id: PostingId,
    pub cause: Cause,
    /// The subject, for readers of the ledger: a style, a request, a month.
    pub about: String,
    /// Idempotency key: of several postings with the same one, only one is booked.
    pub once: Option<String>,
    pub at: UnixMillis,
    /// Accounts and amounts, negative for the giver. The amounts sum to zero.
    pub moves: Vec<(AccountId, Kudos)>,
    /// Accounts whose balance less holds must stay above the floor. Others may fall to anything.
    pub floored: Vec<AccountId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PostingId(pub Uuid);

/// Why kudos are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Between users.
    Transfer,
    /// From a user to a class.
    Donation,
    /// An award by an administrator, paid by the house.
    Award,
    /// Initial balance of an account.
    Start,
    /// An operator set a balance.
    Correction,
    Monthly,
    /// Uptime of a worker.
    Uptime,
    /// Reward of a style's owner for a use.
    Style,
    /// Reward for rating images.
    Rating,
    /// Fee of a request, besides its jobs.
    Request,
    /// Rewards held until their owner was trusted.
    Escrow,
}

/// Outcome of a posting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    Done,
    /// Posted before on the same terms; nothing was written.
    Already,
    /// Another posting was booked under this `once`; nothing was written.
    Conflict,
    /// An account would fall below its floor; nothing was written.
    NotEnough,
}

impl Posting {
    pub fn new(cause: Cause, moves: Vec<(AccountId, Kudos)>, at: UnixMillis) -> Self {
        Self {
            id: PostingId(timely()),
            cause,
            about: String::new(),
            once: None,
            at,
            moves,
            floored: Vec::new(),
        }
    }

    /// Moves an amount from one account to another.
    pub fn between(
        cause: Cause,
        (from, to): (AccountId, AccountId),
        amount: Kudos,
        at: UnixMillis,
    ) -> Self {
        let given = Kudos(amount.0.saturating_neg());
        Self::new(cause, vec![(from, given), (to, amount)], at)
    }

    /// A posting from the house, or to it if negative.
    pub fn from_house(cause: Cause, to: AccountId, amount: Kudos, at: UnixMillis) -> Self {
        Self::between(cause, (HOUSE, to), amount, at)
    }

    #[must_use]
    pub fn about(mut self, what: impl Into<String>) -> Self {
        self.about = what.into();
        self
    }

    /// Idempotency: of all postings with this key, one is written. The key is known as long as the records of jobs are
    /// kept.
    #[must_use]
    pub fn once(mut self, key: impl Into<String>) -> Self {
        self.once = Some(key.into());
        self
    }

    /// Refuses the posting if this account's balance less holds would fall below its floor.
    #[must_use]
    pub fn above_floor(mut self, account: AccountId) -> Self {
        self.floored.push(account);
        self
    }

    /// Whether the entries sum to zero and are within limits.
    pub fn is_sound(&self) -> bool {
        let sum: i128 = self
            .moves
            .iter()
            .map(|(_, amount)| i128::from(amount.0))
            .sum();
        let creates = self.moves.iter().any(|(account, _)| *account == HOUSE);
        let most = if creates { MOST_CREATED } else { MOST };
        let sensible =
            |(_, amount): &(AccountId, Kudos)| amount.0.unsigned_abs() <= most.0.unsigned_abs();
        sum == 0 && self.moves.iter().all(sensible)
    }

    /// The terms that equal postings share.
    pub fn terms(&self) -> String {
        let moves = self.moves.iter();
        let moves: Vec<_> = moves
            .map(|(account, amount)| format!("{} {}", account.0, amount.0))
            .collect();
        format!("{} {}: {}", self.cause.word(), self.about, moves.join(", "))
    }
}

impl Cause {
    /// The tally of an account's side; amounts given and received have separate tallies.
    pub fn tally(self, amount: Kudos) -> &'static str {
        match (self, amount.0 < 0) {
            (Self::Transfer, true) => GIFTED,
            (Self::Donation, true) => DONATED,
            (Self::Transfer | Self::Donation, false) => RECEIVED,
            (other, _) => other.word(),
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Transfer => "transfer",
            Self::Donation => "donation",
            Self::Award => "award",
            Self::Start => "start",
            Self::Correction => "correction",
            Self::Monthly => "monthly",
            Self::Uptime => "uptime",
            Self::Style => "style",
            Self::Rating => "rating",
            Self::Request => "request",
            Self::Escrow => "escrow",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, MOST, MOST_CREATED, Posting};
    use muster_protocol::job::{AccountId, Kudos, UnixMillis};

    const ALICE: AccountId = AccountId(1);
    const BOB: AccountId = AccountId(2);

    fn gift(amount: i64) -> Posting {
        Posting::between(Cause::Transfer, (ALICE, BOB), Kudos(amount), UnixMillis(0))
    }

    #[test]
    fn what_one_gives_the_other_receives() {
        assert!(gift(5).is_sound());
        assert_eq!(gift(5).moves, [(ALICE, Kudos(-5)), (BOB, Kudos(5))]);
    }

    #[test]
    fn absurd_or_unbalanced_postings_are_not_sound() {
        assert!(gift(MOST.0).is_sound() && gift(MOST_CREATED.0 + 1).is_sound());
        assert!(!gift(MOST.0 + 1).is_sound());
        let award = |amount| Posting::from_house(Cause::Award, BOB, Kudos(amount), UnixMillis(0));
        assert!(award(MOST_CREATED.0).is_sound());
        assert!(!award(MOST_CREATED.0 + 1).is_sound());
        assert!(!gift(i64::MIN).is_sound());
        let lost = vec![(ALICE, Kudos(-5)), (BOB, Kudos(4))];
        assert!(!Posting::new(Cause::Transfer, lost, UnixMillis(0)).is_sound());
    }

    #[test]
    fn giving_and_receiving_are_tallied_apart() {
        let tallies = |cause: Cause| [-5, 5].map(|amount| cause.tally(Kudos(amount)));
        assert_eq!(tallies(Cause::Transfer), ["gifted", "received"]);
        assert_eq!(tallies(Cause::Donation), ["donated", "received"]);
        assert_eq!(tallies(Cause::Award), ["award", "award"]);
    }

    #[test]
    fn another_amount_or_subject_is_another_matter() {
        assert_eq!(gift(5).terms(), gift(5).terms());
        assert_ne!(gift(5).terms(), gift(6).terms());
        assert_ne!(gift(5).terms(), gift(5).about("a key").terms());
    }
}
