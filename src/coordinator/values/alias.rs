//! A user's public name: a display name, which need not be unique, and the account's number.

use std::fmt;

use muster_protocol::job::AccountId;

/// `name#id`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alias<'a> {
    pub name: &'a str,
    pub account: AccountId,
}

impl<'a> Alias<'a> {
    /// Only the number after the last `#` identifies the user.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (name, id) = text.rsplit_once('#')?;
        let account = AccountId(number(id)?);
        Some(Self { name, account })
    }
}

/// The number of a user account: digits only.
pub fn number(text: &str) -> Option<i64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

impl fmt::Display for Alias<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.account.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Alias;
    use muster_protocol::job::AccountId;

    #[test]
    fn the_number_after_the_last_hash_says_who_it_is() {
        let read = |text| Alias::parse(text).map(|alias| (alias.name, alias.account));
        assert_eq!(read("alice#7"), Some(("alice", AccountId(7))));
        assert_eq!(read("a#b#7"), Some(("a#b", AccountId(7))));
        for nobody in [
            "alice",
            "alice#",
            "alice#-1",
            "alice#+1",
            "alice#7x",
            "#99999999999999999999",
        ] {
            assert_eq!(read(nobody), None, "{nobody}");
        }
        let alias = Alias::parse("alice#7").unwrap();
        assert_eq!(alias.to_string(), "alice#7");
    }
}
