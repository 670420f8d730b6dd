//! Balances of accounts.

use muster_protocol::job::Kudos;

/// The balance of an account at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Means {
    pub kudos: Kudos,
    /// Balance above the floor, less holds.
    pub spare: Kudos,
}
