//! How an account was created, and the floor of its balance.

use muster_protocol::job::Kudos;

/// How an account's user is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountKind {
    /// All callers without an account.
    Anonymous,
    /// A user with a key only.
    Pseudonymous,
    /// A user logged in by another service.
    Known,
}

impl AccountKind {
    /// Charges never take a balance below this.
    pub const fn floor(self) -> Kudos {
        match self {
            Self::Anonymous => Kudos(-50_000),
            Self::Pseudonymous => Kudos(14_000),
            Self::Known => Kudos(25_000),
        }
    }
}
