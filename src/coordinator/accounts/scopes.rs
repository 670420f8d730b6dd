//! What a key is good for.

use std::fmt;

/// A set of scopes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

impl Scopes {
    /// Ask for work to be done.
    pub const INFERENCE_SUBMIT: Self = Self(1);
    /// Connect a worker.
    pub const WORKER_CONNECT: Self = Self(2);
    /// See the account, its keys and its jobs.
    pub const ACCOUNT_READ: Self = Self(4);
    /// Make and revoke keys of the account.
    pub const ACCOUNT_MANAGE: Self = Self(8);

    pub const ALL: Self = Self(15);

    const NAMES: [(Self, &'static str); 4] = [
        (Self::INFERENCE_SUBMIT, "inference.submit"),
        (Self::WORKER_CONNECT, "worker.connect"),
        (Self::ACCOUNT_READ, "account.read"),
        (Self::ACCOUNT_MANAGE, "account.manage"),
    ];

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn contains(self, all: Self) -> bool {
        self.0 & all.0 == all.0
    }

    pub fn named(name: &str) -> Option<Self> {
        let named = Self::NAMES.into_iter().find(|(_, known)| *known == name);
        named.map(|(scope, _)| scope)
    }

    /// Names between blanks. Those of a newer version are passed over: a key is never good for more than is
    /// understood.
    pub fn parse(text: &str) -> Self {
        let scopes = text.split_whitespace().filter_map(Self::named);
        scopes.fold(Self::default(), Self::with)
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMES
            .into_iter()
            .filter(move |(one, _)| self.contains(*one));
        named.map(|(_, name)| name)
    }
}

/// As [`Scopes::parse`] reads it.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Scopes;

    #[test]
    fn scopes_are_stored_as_their_names() {
        assert_eq!(Scopes::parse(&Scopes::ALL.to_string()), Scopes::ALL);
        assert_eq!(
            Scopes::parse("worker.connect of.tomorrow"),
            Scopes::WORKER_CONNECT
        );
        assert!(!Scopes::parse("").contains(Scopes::INFERENCE_SUBMIT));
    }
}
