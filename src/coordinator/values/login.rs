//! Logins: the operator's unique and permanent names of accounts. Users choose their display names, which several
//! accounts may share, so a display name never identifies an account.

use std::fmt;

/// A small ASCII alphabet in lower case, so that no two logins look alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidLogin {
    #[error(
        "a login has 1 to {LONGEST} of the characters a-z, 0-9, dot, hyphen and underscore, and begins with a letter"
    )]
    Characters,
    #[error("the login {0} is reserved")]
    Reserved(String),
}

const LONGEST: usize = 64;
const ADMIN: &str = "admin";
/// Logins that would look like accounts of the coordinator itself.
const RESERVED: [&str; 3] = ["anonymous", "deleted", "house"];
/// Followed by the account's number, the default login.
const UNNAMED: &str = "user-";

impl Login {
    /// Login of the administrator created at the first start.
    pub fn admin() -> Self {
        Self(ADMIN.to_owned())
    }

    /// Accepts capital letters.
    pub fn parse(text: &str) -> Result<Self, InvalidLogin> {
        let login = text.to_ascii_lowercase();
        let known =
            |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
        let begins_well = login.starts_with(|first: char| first.is_ascii_alphabetic());
        if login.len() > LONGEST || !begins_well || !login.chars().all(known) {
            return Err(InvalidLogin::Characters);
        }
        match RESERVED.contains(&login.as_str()) || login.starts_with(UNNAMED) {
            true => Err(InvalidLogin::Reserved(login)),
            false => Ok(Self(login)),
        }
    }

    pub fn is_admin(&self) -> bool {
        self.0 == ADMIN
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{InvalidLogin, Login};

    #[test]
    fn a_login_is_plain_ascii_in_one_case() {
        let parse = |text| Login::parse(text).map(|login| login.to_string());
        assert_eq!(parse("Alice"), Ok("alice".to_owned()));
        assert_eq!(parse("rig.owner-2_b"), Ok("rig.owner-2_b".to_owned()));
        for wrong in [
            "",
            "7",
            "-a",
            "al ice",
            "аlice",
            "alice#7",
            "\u{212a}ate",
            "alice\u{202e}",
            &"a".repeat(65),
        ] {
            assert_eq!(parse(wrong), Err(InvalidLogin::Characters), "{wrong:?}");
        }
    }

    #[test]
    fn nobody_takes_a_login_that_the_coordinator_gives() {
        for reserved in ["house", "Anonymous", "user-7", "deleted"] {
            let refused = Login::parse(reserved).unwrap_err();
            assert!(matches!(refused, InvalidLogin::Reserved(_)), "{reserved}");
        }
    }
}
