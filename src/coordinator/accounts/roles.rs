//! What an account may do, beyond what its keys are good for.

use std::fmt;

/// A set of roles.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Roles(u8);

impl Roles {
    pub const USER: Self = Self(1);
    pub const MODERATOR: Self = Self(2);
    pub const ADMIN: Self = Self(4);
    /// Owns workers.
    pub const WORKER_OWNER: Self = Self(8);

    pub const ALL: Self = Self(15);

    const NAMES: [(Self, &'static str); 4] = [
        (Self::USER, "user"),
        (Self::MODERATOR, "moderator"),
        (Self::ADMIN, "admin"),
        (Self::WORKER_OWNER, "worker_owner"),
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
        named.map(|(role, _)| role)
    }

    /// Names between blanks. Those of a newer version are passed over: an account never may more than is
    /// understood.
    pub fn parse(text: &str) -> Self {
        let roles = text.split_whitespace().filter_map(Self::named);
        roles.fold(Self::default(), Self::with)
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let named = Self::NAMES
            .into_iter()
            .filter(move |(one, _)| self.contains(*one));
        named.map(|(_, name)| name)
    }
}

/// As [`Roles::parse`] reads it.
impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Roles;

    #[test]
    fn roles_are_stored_as_their_names() {
        assert_eq!(Roles::parse(&Roles::ALL.to_string()), Roles::ALL);
        assert_eq!(Roles::parse("user king"), Roles::USER);
        assert!(!Roles::USER.contains(Roles::MODERATOR));
    }
}
