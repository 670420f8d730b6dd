//! Users that tests of other programs make for themselves. A coordinator in development mode offers them, and no
//! other.

use super::rules::{flag, text, whole};
use super::tables::{body, reply};

body! {
    /// `POST /v2/dev/test-user`
    pub struct TestUserInput {
        needs {
            username: String = text(1..=100),
            /// The same one gives the same user, with a new key.
            oauth_id: String = text(1..=255),
        }
        fills {
            moderator: bool = flag() => false,
            trusted: bool = flag() => false,
        }
        may {
            /// Sets the user's balance, if given.
            kudos: i64 = whole(..),
        }
    }
}

reply! {
    pub struct TestUser {
        always {
            api_key: String,
            user_id: i64,
            username: String,
            /// `name#id`
            alias: String,
            kudos: f64,
            trusted: bool,
            moderator: bool,
            /// Not one that was there before.
            created: bool,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::TestUserInput;
    use crate::legacy::Body;

    #[test]
    fn a_test_user_is_nobody_special_unless_asked_for() {
        let user = TestUserInput::read(json!({"username": "alice", "oauth_id": "test-1"})).unwrap();
        assert!(!user.moderator && !user.trusted && user.kudos.is_none());
        assert!(TestUserInput::read(json!({"username": "alice"})).is_err());
    }
}
