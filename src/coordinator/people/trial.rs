//! Users created by tests of other programs, in development mode only.

use crate::accounts::KeyOrder;
use crate::clock::wall_clock;
use crate::storage::{NewLogin, StorageError};
use crate::values::{Alias, KeyText, Roles, Scopes};
use muster_protocol::job::{AccountId, Kudos};

use super::People;

/// Settings for tests of other programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Development {
    /// Administrators: `name#id`, or a name.
    pub admins: Vec<String>,
    /// A gray image replaces one that the worker reported, but did not upload.
    pub fills_in_images: bool,
}

/// A requested test user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub name: String,
    /// The same login gives the same user.
    pub login: String,
    pub is_moderator: bool,
    pub is_trusted: bool,
    /// Sets the user's balance, if given.
    pub kudos: Option<Kudos>,
}

/// A created test user.
#[derive(Debug, Clone)]
pub struct TrialUser {
    pub account: AccountId,
    pub name: String,
    pub key: KeyText,
    pub roles: Roles,
    pub kudos: Kudos,
    pub is_new: bool,
}

impl People {
    /// Creates or renews a test user, with a new key; earlier keys are revoked.
    pub async fn try_out(
        &self,
        trial: Trial,
        development: &Development,
    ) -> Result<TrialUser, StorageError> {
        let now = wall_clock();
        let login = NewLogin {
            name: trial.name,
            login: trial.login,
            kudos: trial.kudos,
            now,
        };
        let user = self.store.log_in(login).await?;
        let alias = Alias {
            name: &user.name,
            account: user.account,
        };
        let roles = roles(trial.is_moderator, trial.is_trusted, alias, development);
        self.accounts.set_roles(user.account, roles).await?;
        let order = KeyOrder {
            label: "test user".to_owned(),
            scopes: Scopes::ALL,
            ..KeyOrder::default()
        };
        let key = self.accounts.create_key(user.account, order).await?;
        Ok(TrialUser {
            account: user.account,
            name: user.name,
            key: key.text,
            roles,
            kudos: user.kudos,
            is_new: user.is_new,
        })
    }
}

/// Moderators are trusted.
fn roles(
    is_moderator: bool,
    is_trusted: bool,
    alias: Alias<'_>,
    development: &Development,
) -> Roles {
    let full = alias.to_string();
    let is_admin = development
        .admins
        .iter()
        .any(|admin| *admin == full || admin == alias.name);
    let held = [
        (true, Roles::USER.with(Roles::WORKER_OWNER)),
        (is_moderator, Roles::MODERATOR.with(Roles::TRUSTED)),
        (is_trusted, Roles::TRUSTED),
        (is_admin, Roles::ADMIN),
    ];
    held.into_iter()
        .filter(|(is, _)| *is)
        .map(|(_, role)| role)
        .collect()
}
