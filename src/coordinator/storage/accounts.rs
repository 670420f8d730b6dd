//! Accounts: who is asked for, paid and charged.

use futures_util::future::BoxFuture;
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;

use crate::coordinator::accounts::Roles;
use crate::protocol::job::{AccountId, UnixMillis};

use super::values::storable;
use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRow {
    pub id: AccountId,
    pub name: String,
    pub roles: Roles,
}

#[derive(Debug)]
struct NewAccount {
    name: String,
    roles: Roles,
    now: UnixMillis,
}

impl Store {
    pub async fn create_account(
        &self,
        name: &str,
        roles: Roles,
        now: UnixMillis,
    ) -> Result<AccountId, StorageError> {
        let name = storable(name);
        self.change(NewAccount { name, roles, now }).await
    }

    /// The oldest account of this name.
    pub async fn account_named(&self, name: &str) -> Result<Option<AccountRow>, StorageError> {
        let rows = sqlx::query(
            "SELECT id, name, roles FROM accounts WHERE name = $1 AND id > 0 ORDER BY id LIMIT 1",
        );
        let row = rows
            .bind(storable(name))
            .fetch_optional(&self.readers)
            .await?;
        Ok(row.as_ref().map(account).transpose()?)
    }

    /// Whether anybody may do everything.
    pub async fn has_admin(&self) -> Result<bool, StorageError> {
        let count = sqlx::query("SELECT COUNT(*) FROM accounts WHERE roles LIKE $1");
        let count = count.bind(format!("%{}%", Roles::ADMIN));
        let count: i64 = count.fetch_one(&self.readers).await?.try_get(0)?;
        Ok(count > 0)
    }
}

impl Change for NewAccount {
    type Answer = AccountId;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<AccountId, StorageError>> {
        Box::pin(async move {
            let row = sqlx::query(
                "INSERT INTO accounts (name, roles, created_at) VALUES ($1, $2, $3) RETURNING id",
            );
            let row = row
                .bind(&*self.name)
                .bind(self.roles.to_string())
                .bind(self.now.0);
            Ok(AccountId(row.fetch_one(connection).await?.try_get(0)?))
        })
    }
}

fn account(row: &AnyRow) -> Result<AccountRow, sqlx::Error> {
    Ok(AccountRow {
        id: AccountId(row.try_get("id")?),
        name: row.try_get("name")?,
        roles: Roles::parse(row.try_get("roles")?),
    })
}
