//! How somebody came to have an account, and what that makes certain.

use muster_protocol::job::Kudos;

/// What is known of who somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Everybody without an account.
    Anonymous,
    /// Somebody with a key and no more.
    Pseudonymous,
    /// Somebody another service has let in.
    Known,
}

impl Kind {
    /// Below which no charge takes a balance.
    pub const fn floor(self) -> Kudos {
        match self {
            Self::Anonymous => Kudos(-50_000),
            Self::Pseudonymous => Kudos(14_000),
            Self::Known => Kudos(25_000),
        }
    }
}
