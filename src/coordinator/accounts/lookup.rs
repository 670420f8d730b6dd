//! Lookup of accounts by operators: by login, `name#id` or `#id`. A display name alone identifies no account, as any
//! user may choose any name.

use crate::clock::wall_clock;
use crate::storage::{AccountRow, StorageError};
use crate::values::{Alias, Login, Roles};
use muster_protocol::job::AccountId;

use super::{Accounts, NewKey};

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    Found(Box<AccountRow>),
    /// No account has this login, number or name.
    Missing,
    /// `name` is only a display name of these accounts, or one of them has the number but another name.
    Refused(Vec<AccountRow>),
}

/// Why there is no administrator to use.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoAdministrator {
    #[error("several accounts have the role admin ({0}), and none has the login admin")]
    Several(String),
    #[error("no account has the role admin, and the login admin belongs to {0}")]
    LoginTaken(String),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Accounts {
    pub async fn find(&self, named: &str) -> Result<Lookup, StorageError> {
        let store = &self.inner.store;
        if let Some(alias) = Alias::parse(named) {
            return self.find_number(alias).await;
        }
        let login = named.to_ascii_lowercase();
        if let Some(found) = store.account_with_login(&login).await? {
            return Ok(Lookup::Found(Box::new(found)));
        }
        let called_so = store.accounts_called(named).await?;
        Ok(match called_so.is_empty() {
            true => Lookup::Missing,
            false => Lookup::Refused(called_so),
        })
    }

    /// A name before the number must match, since a number is easily mistyped.
    async fn find_number(&self, alias: Alias<'_>) -> Result<Lookup, StorageError> {
        let found = self.inner.store.account(alias.account).await?;
        Ok(match found {
            None => Lookup::Missing,
            Some(found) if alias.name.is_empty() || found.answers_to(alias.name) => {
                Lookup::Found(Box::new(found))
            }
            Some(found) => Lookup::Refused(vec![found]),
        })
    }

    /// A new account, whose first display name is its login; `None` if the login is taken.
    pub async fn create_with_login(
        &self,
        login: &Login,
        roles: Roles,
    ) -> Result<Option<AccountId>, StorageError> {
        let store = &self.inner.store;
        let made = store.create_account_with_login(login, roles, wall_clock());
        let account = made.await?;
        if let Some(account) = account {
            self.inner.note_roles(account, roles);
        }
        Ok(account)
    }

    /// The administrator: by role, never by display name. Among several, the one with the login `admin`.
    pub async fn administrator(&self) -> Result<Option<AccountRow>, NoAdministrator> {
        let mut admins = self.inner.store.accounts_of_rank(Roles::ADMIN).await?;
        let admin = Login::admin();
        let is_it = |account: &AccountRow| account.login.as_deref() == Some(admin.as_str());
        if let Some(first) = admins.iter().position(is_it) {
            return Ok(Some(admins.swap_remove(first)));
        }
        match admins.len() {
            0 | 1 => Ok(admins.pop()),
            _ => Err(NoAdministrator::Several(listed(&admins))),
        }
    }

    /// The administrator, created if missing.
    pub async fn administrator_or_new(&self) -> Result<AccountId, NoAdministrator> {
        if let Some(found) = self.administrator().await? {
            return Ok(found.id);
        }
        let admin = Login::admin();
        if let Some(made) = self.create_with_login(&admin, Roles::ADMINISTRATOR).await? {
            return Ok(made);
        }
        // Another process may have created it meanwhile.
        if let Some(found) = self.administrator().await? {
            return Ok(found.id);
        }
        let holder = self.inner.store.account_with_login(admin.as_str()).await?;
        Err(NoAdministrator::LoginTaken(listed(holder.as_slice())))
    }

    /// Creates an administrator's key with every scope, and its account if needed, unless there is one already.
    pub async fn first_start(&self) -> Result<Option<NewKey>, NoAdministrator> {
        if self.inner.store.has_admin_key().await? {
            return Ok(None);
        }
        self.admin_key("first start").await.map(Some)
    }
}

/// For error messages: `name#id` of each.
pub fn listed(accounts: &[AccountRow]) -> String {
    let names: Vec<_> = accounts.iter().map(|row| row.alias().to_string()).collect();
    names.join(", ")
}
