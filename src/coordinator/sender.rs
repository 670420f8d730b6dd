//! Who sends files along with requests, where accounts share memory, places and storage.

use std::net::IpAddr;

use crate::accounts::ANONYMOUS;
use crate::address::Network;
use muster_protocol::job::AccountId;

/// An account, or a household where there is no key: all callers without one have the same account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sender {
    Account(AccountId),
    Household(Network),
}

impl Sender {
    pub fn of(account: AccountId, address: IpAddr) -> Self {
        match account {
            ANONYMOUS => Self::Household(Network::around(address)),
            account => Self::Account(account),
        }
    }
}
