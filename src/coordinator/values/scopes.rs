//! Scopes: permissions of a key.

use super::named::named_set;

named_set! {
    /// A set of scopes.
    Scopes {
        /// Submit requests.
        INFERENCE_SUBMIT = 1 "inference.submit",
        /// Connect workers.
        WORKER_CONNECT = 2 "worker.connect",
        /// Read the account, its keys and its jobs.
        ACCOUNT_READ = 4 "account.read",
        /// Create and revoke keys of the account.
        ACCOUNT_MANAGE = 8 "account.manage",
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
