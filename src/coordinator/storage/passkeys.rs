//! Passkeys of service accounts, which a service sends to name its own users.

use sqlx::Row;

use crate::values::Roles;

use super::{StorageError, Store};

const PASSKEYS: &str = "SELECT people.proxy_passkey, accounts.roles FROM people \
                        JOIN accounts ON accounts.id = people.account WHERE people.proxy_passkey IS NOT NULL";

impl Store {
    /// Sealed passkeys of accounts with the service role.
    pub async fn passkeys(&self) -> Result<Vec<String>, StorageError> {
        let rows = sqlx::query(PASSKEYS).fetch_all(&self.readers).await?;
        let mut passkeys = Vec::new();
        for row in rows {
            if Roles::parse(row.try_get(1)?).contains(Roles::SERVICE) {
                passkeys.push(row.try_get(0)?);
            }
        }
        Ok(passkeys)
    }
}
