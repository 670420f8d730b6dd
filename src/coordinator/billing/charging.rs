//! Selects the accounts that pay for requests.

use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Charging {
    /// Requests are free: no holds, no charges.
    #[default]
    Off,
    /// Accounts with these logins pay.
    Allowlist(BTreeSet<String>),
    On,
}

impl Charging {
    /// Logins are case-insensitive.
    pub fn allowlist<'a>(logins: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Allowlist(logins.into_iter().map(str::to_ascii_lowercase).collect())
    }

    /// Whether the account with this login pays.
    pub fn includes(&self, login: Option<&str>) -> bool {
        match self {
            Self::Off => false,
            Self::Allowlist(logins) => login.is_some_and(|login| logins.contains(login)),
            Self::On => true,
        }
    }

    /// The name in the configuration.
    pub fn mode(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Allowlist(_) => "allowlist",
            Self::On => "on",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Charging;

    #[test]
    fn an_allowlist_charges_the_accounts_in_it_alone() {
        let some = Charging::allowlist(["Alice"]);
        for (login, some_pay) in [(Some("alice"), true), (Some("bob"), false), (None, false)] {
            assert_eq!(some.includes(login), some_pay, "{login:?}");
            assert!(Charging::On.includes(login));
            assert!(!Charging::Off.includes(login));
        }
    }
}
