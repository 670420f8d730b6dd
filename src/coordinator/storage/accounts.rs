//! Accounts, their balances and roles.

use std::collections::HashSet;

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::values::{Alias, Login, Means, Roles, Scopes};
use muster_protocol::job::{AccountId, UnixMillis};

use super::keys::touch_keys;
use super::people::{NewPerson, create_person};
use super::rows::{Stored, all, first};
use super::values::storable;
use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRow {
    pub id: AccountId,
    /// Operators' name of the account; `None` for accounts of older versions.
    pub login: Option<String>,
    /// Display name.
    pub name: String,
    pub roles: Roles,
    pub means: Means,
    /// Overrides the configured limit of waiting jobs.
    pub concurrency: Option<i64>,
}

/// Outcome of a change of roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleChange {
    Done,
    /// The account is the only administrator: nothing was changed.
    LastAdmin,
}

#[derive(Debug)]
struct NewRoles {
    account: AccountId,
    roles: Roles,
}

#[derive(Debug)]
struct NewAccount {
    name: String,
    login: Option<Login>,
    roles: Roles,
    now: UnixMillis,
}

/// Selects the columns of an [`AccountRow`], followed by `$rest`. Excludes the house and the anonymous account.
macro_rules! select_accounts {
    ($rest:literal) => {
        concat!(
            "SELECT id, accounts.login AS account_login, name, roles, COALESCE(kudos, 0) AS kudos, \
             COALESCE(kudos - held - COALESCE(floor, 0), 0) AS spare, concurrency FROM accounts \
             LEFT JOIN balances ON balances.account = accounts.id \
             LEFT JOIN people ON people.account = accounts.id WHERE id > 0 ",
            $rest
        )
    };
}

/// Whether an account was deleted: late writes for it are dropped.
pub async fn is_deleted(
    account: AccountId,
    connection: &mut AnyConnection,
) -> Result<bool, StorageError> {
    let deleted = sqlx::query("SELECT 1 FROM accounts WHERE id = $1 AND roles LIKE $2");
    let deleted = deleted.bind(account.0);
    let deleted = deleted.bind(format!("%{}%", Roles::DELETED));
    Ok(deleted.fetch_optional(connection).await?.is_some())
}

impl Store {
    pub async fn create_account(
        &self,
        name: &str,
        roles: Roles,
        now: UnixMillis,
    ) -> Result<AccountId, StorageError> {
        let new = NewAccount {
            name: storable(name),
            login: None,
            roles,
            now,
        };
        // Only a login can be taken.
        let made = self.change(new).await?;
        made.ok_or_else(|| StorageError::Refused("the account was not created".to_owned()))
    }

    /// An account whose first name is its login; `None` if the login is taken.
    pub async fn create_account_with_login(
        &self,
        login: &Login,
        roles: Roles,
        now: UnixMillis,
    ) -> Result<Option<AccountId>, StorageError> {
        self.change(NewAccount {
            name: login.to_string(),
            login: Some(login.clone()),
            roles,
            now,
        })
        .await
    }

    pub async fn account_with_login(
        &self,
        login: &str,
    ) -> Result<Option<AccountRow>, StorageError> {
        let row = sqlx::query(select_accounts!("AND accounts.login = $1"));
        first(row.bind(storable(login)), &self.readers).await
    }

    /// Accounts with this display name, ignoring case, oldest first; at most 20.
    pub async fn accounts_called(&self, name: &str) -> Result<Vec<AccountRow>, StorageError> {
        let rows = sqlx::query(select_accounts!(
            "AND lower(name) = lower($1) ORDER BY id LIMIT 20"
        ));
        all(rows.bind(storable(name)), &self.readers).await
    }

    /// Accounts with all of these roles, oldest first.
    pub async fn accounts_of_rank(&self, roles: Roles) -> Result<Vec<AccountRow>, StorageError> {
        let rows = sqlx::query(select_accounts!("AND roles LIKE $1 ORDER BY id"));
        let rows: Vec<AccountRow> = all(rows.bind(format!("%{roles}%")), &self.readers).await?;
        let has = |account: &AccountRow| account.roles.contains(roles);
        Ok(rows.into_iter().filter(has).collect())
    }

    /// The account of a user; `None` for the house and the anonymous account.
    pub async fn account(&self, id: AccountId) -> Result<Option<AccountRow>, StorageError> {
        let row = sqlx::query(select_accounts!("AND id = $1"));
        first(row.bind(id.0), &self.readers).await
    }

    /// All accounts of users, oldest first.
    pub async fn accounts(&self) -> Result<Vec<AccountRow>, StorageError> {
        all(sqlx::query(select_accounts!("ORDER BY id")), &self.readers).await
    }

    /// Accounts with all these roles.
    pub async fn accounts_with(&self, roles: Roles) -> Result<HashSet<AccountId>, StorageError> {
        let rows = sqlx::query("SELECT id FROM accounts WHERE roles LIKE $1");
        let rows = rows
            .bind(format!("%{roles}%"))
            .fetch_all(&self.readers)
            .await?;
        let ids = rows.iter().map(|row| row.try_get(0).map(AccountId));
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// Replaces an account's roles. Other processes learn of it like of a changed key.
    pub async fn set_roles(
        &self,
        account: AccountId,
        roles: Roles,
    ) -> Result<RoleChange, StorageError> {
        self.change(NewRoles { account, roles }).await
    }

    /// Whether an administrator was ever given a key with every scope. An administrator without a key does not count:
    /// its creator may have been killed before creating the key.
    pub async fn has_admin_key(&self) -> Result<bool, StorageError> {
        let count = sqlx::query(
            "SELECT COUNT(*) FROM keys JOIN accounts ON accounts.id = keys.account \
             WHERE roles LIKE $1 AND scopes LIKE $2",
        );
        let count = count
            .bind(format!("%{}%", Roles::ADMIN))
            .bind(format!("%{}%", Scopes::ACCOUNT_MANAGE));
        let count: i64 = count.fetch_one(&self.readers).await?.try_get(0)?;
        Ok(count > 0)
    }
}

impl Change for NewAccount {
    type Answer = Option<AccountId>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Option<AccountId>, StorageError>> {
        Box::pin(async move {
            if let Some(login) = &self.login {
                let taken = sqlx::query("SELECT 1 FROM accounts WHERE login = $1");
                let taken = taken.bind(login.as_str());
                if taken.fetch_optional(&mut *connection).await?.is_some() {
                    return Ok(None);
                }
            }
            let new = NewPerson {
                name: &self.name,
                login: self.login.as_ref().map(Login::as_str),
                roles: self.roles,
                known_as: None,
                now: self.now,
            };
            create_person(new, connection).await.map(Some)
        })
    }
}

impl Change for NewRoles {
    type Answer = RoleChange;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<RoleChange, StorageError>> {
        Box::pin(async move {
            if !self.roles.contains(Roles::ADMIN) && self.is_last_admin(connection).await? {
                return Ok(RoleChange::LastAdmin);
            }
            touch_keys(self.account, connection).await?;
            let roles = sqlx::query("UPDATE accounts SET roles = $1 WHERE id = $2");
            let roles = roles.bind(self.roles.to_string()).bind(self.account.0);
            roles.execute(connection).await?;
            Ok(RoleChange::Done)
        })
    }
}

impl NewRoles {
    async fn is_last_admin(&self, connection: &mut AnyConnection) -> Result<bool, StorageError> {
        let admins = sqlx::query("SELECT id FROM accounts WHERE roles LIKE $1 LIMIT 2");
        let admins = admins.bind(format!("%{}%", Roles::ADMIN));
        let admins = admins.fetch_all(connection).await?;
        match admins.as_slice() {
            [only] => Ok(only.try_get::<i64, _>("id")? == self.account.0),
            _ => Ok(false),
        }
    }
}

impl AccountRow {
    pub fn alias(&self) -> Alias<'_> {
        Alias {
            name: &self.name,
            account: self.id,
        }
    }

    /// Whether `name` is the account's login or display name.
    pub fn answers_to(&self, name: &str) -> bool {
        let is_login = |login: &str| login.eq_ignore_ascii_case(name);
        self.name == name || self.login.as_deref().is_some_and(is_login)
    }
}

impl Stored for AccountRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            id: AccountId(row.try_get("id")?),
            login: row.try_get("account_login")?,
            name: row.try_get("name")?,
            roles: Roles::parse(row.try_get("roles")?),
            means: Means::load(row)?,
            concurrency: row.try_get("concurrency")?,
        })
    }
}
