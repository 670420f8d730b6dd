//! Scopes: permissions of a key.

use super::named::named_set;

named_set! {
    /// A set of scopes.
    Scopes {
        /// Ask for work to be done.
        INFERENCE_SUBMIT = 1 "inference.submit",
        /// Connect a worker.
        WORKER_CONNECT = 2 "worker.connect",
        /// See the account, its keys and its jobs.
        ACCOUNT_READ = 4 "account.read",
        /// Make and revoke keys of the account.
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
