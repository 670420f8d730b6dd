//! Parties of a call: an account, and for anonymous requests the called host, because all of them share one account.

use url::Url;

use super::{AT_ONCE, QUEUE};
use crate::accounts::ANONYMOUS;
use muster_protocol::job::AccountId;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Party {
    Account(AccountId),
    Host(String),
}

impl Party {
    /// Narrowest first: a call that waits for its host's share holds none of the account's.
    pub fn all_of(account: AccountId, address: &str) -> Vec<Self> {
        match account {
            ANONYMOUS => vec![Self::Host(host(address)), Self::Account(account)],
            account => vec![Self::Account(account)],
        }
    }

    /// Limit of its queued calls.
    pub const fn share(&self) -> usize {
        match self {
            Self::Account(_) => QUEUE / 8,
            Self::Host(_) => QUEUE / 32,
        }
    }

    /// Limit of its concurrent calls.
    pub const fn at_once(&self) -> usize {
        match self {
            Self::Account(ANONYMOUS) => AT_ONCE / 4,
            Self::Account(_) => AT_ONCE / 8,
            Self::Host(_) => AT_ONCE / 16,
        }
    }
}

fn host(address: &str) -> String {
    let url = Url::parse(address).ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.unwrap_or(address).to_owned()
}

#[cfg(test)]
mod tests {
    use super::Party;
    use crate::accounts::ANONYMOUS;
    use muster_protocol::job::AccountId;

    #[test]
    fn only_where_there_is_no_key_the_host_counts() {
        let keyless = |address| Party::all_of(ANONYMOUS, address);
        let one = keyless("https://one.example/a");
        assert_eq!(one, keyless("https://ONE.example:8443/b?c"));
        let two = keyless("https://two.example/a");
        assert!(one[0] != two[0] && one[1] == two[1]);
        let keyed = |address| Party::all_of(AccountId(7), address);
        assert_eq!(
            keyed("https://one.example/a"),
            keyed("https://two.example/a")
        );
    }
}
