//! Roles: permissions of an account, beyond the scopes of its keys.

use super::named::named_set;

named_set! {
    /// A set of roles.
    Roles {
        USER = 1 "user",
        MODERATOR = 2 "moderator",
        ADMIN = 4 "admin",
        /// Owns workers.
        WORKER_OWNER = 8 "worker_owner",
        /// Trusted: its workers may get private requests, and it gets no suspicion marks.
        TRUSTED = 16 "trusted",
        /// Suspicious: its workers get no jobs and its prompts are always filtered.
        FLAGGED = 32 "flagged",
        /// May serve unlisted models and create styles.
        CUSTOMIZER = 64 "customizer",
        /// May use VPNs and proxies.
        VPN = 128 "vpn",
        /// May use models for special users.
        SPECIAL = 256 "special",
        /// A service: sends requests for its own users, and may name them.
        SERVICE = 512 "service",
        /// A school account: its requests are SFW and go to trusted workers only.
        EDUCATION = 1024 "education",
        /// Being deleted, without any permission.
        DELETED = 2048 "deleted",
        /// Prompts of the account are rewritten on a filter match, whatever the request says.
        FILTERED = 4096 "filtered",
        /// All keys of the account are refused until an operator ends the suspension.
        SUSPENDED = 8192 "suspended",
    }
}

/// Permission to change other users: a moderator may change users, an administrator may change all accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    User,
    Moderator,
    Admin,
}

impl Roles {
    pub const fn rank(self) -> Rank {
        match (self.contains(Self::ADMIN), self.contains(Self::MODERATOR)) {
            (true, _) => Rank::Admin,
            (false, true) => Rank::Moderator,
            (false, false) => Rank::User,
        }
    }

    /// Roles of the service's operator.
    pub const ADMINISTRATOR: Self = Self::USER
        .with(Self::MODERATOR)
        .with(Self::ADMIN)
        .with(Self::WORKER_OWNER)
        .with(Self::TRUSTED)
        .with(Self::CUSTOMIZER);

    /// Moderator or administrator.
    pub const fn moderates(self) -> bool {
        self.contains(Self::MODERATOR) || self.contains(Self::ADMIN)
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
