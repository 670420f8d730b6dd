//! What an account may do, beyond what its keys are good for.

use super::named::named_set;

named_set! {
    /// A set of roles.
    Roles {
        USER = 1 "user",
        MODERATOR = 2 "moderator",
        ADMIN = 4 "admin",
        /// Owns workers.
        WORKER_OWNER = 8 "worker_owner",
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
