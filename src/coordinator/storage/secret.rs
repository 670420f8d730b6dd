//! The check value of the server secret, which itself is not stored here, and unencrypted data of earlier versions:
//! shared keys, stored wherever one was used, and passkeys.

use std::collections::HashMap;
use std::fmt;

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, AssertSqlSafe, Executor, Row};

use crate::values::{Seal, Sealed};
use muster_protocol::job::SharedKeyText;

use super::dialect::Dialect;
use super::write::Change;
use super::{StorageError, Store};

/// The database's state of the server secret.
#[derive(Default)]
pub struct SecretState {
    pub check: Option<String>,
    /// The secret itself, if an earlier version stored it here.
    pub in_database: Option<String>,
}

/// The first stored check value is kept.
#[derive(Debug)]
struct Adoption {
    check: String,
}

#[derive(Debug)]
struct Removal;

#[derive(Debug)]
struct Sealing {
    seal: Seal,
}

impl Store {
    pub async fn secret_state(&self) -> Result<SecretState, StorageError> {
        Ok(SecretState {
            check: self.setting("secret_check").await?,
            in_database: self.setting("secret").await?,
        })
    }

    async fn setting(&self, name: &str) -> Result<Option<String>, StorageError> {
        let row = sqlx::query("SELECT value FROM settings WHERE name = $1").bind(name.to_owned());
        let row = row.fetch_optional(&self.readers).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Returns the check value in use: this one, if there was none before.
    pub async fn adopt_secret(&self, check: String) -> Result<String, StorageError> {
        match self.setting("secret_check").await? {
            Some(known) => Ok(known),
            None => self.change(Adoption { check }).await,
        }
    }

    pub async fn forget_secret(&self) -> Result<(), StorageError> {
        self.change(Removal).await
    }

    /// Seals plain secrets of earlier versions.
    pub async fn seal_rows(&self, seal: Seal) -> Result<(), StorageError> {
        let keys = sqlx::query("SELECT 1 FROM shared_keys WHERE sealed IS NULL LIMIT 1");
        let passkeys = sqlx::query(OPEN_PASSKEYS);
        let is_open = keys.fetch_optional(&self.readers).await?.is_some()
            || passkeys.fetch_optional(&self.readers).await?.is_some();
        match is_open {
            true => self.change(Sealing { seal }).await,
            false => Ok(()),
        }
    }
}

const OPEN_PASSKEYS: &str = "SELECT account, proxy_passkey FROM people \
                             WHERE proxy_passkey IS NOT NULL AND proxy_passkey NOT LIKE 'v1.%'";

/// Columns that hold a shared key.
const COLUMNS: [(&str, &str); 2] = [("styles", "shared_key"), ("key_holds", "shared_key")];
/// Texts that may contain a shared key, with their pattern.
const TEXTS: [(&str, &str, &str); 3] = [
    ("requests", "body", "%\"shared_key\":\"%"),
    ("postings", "about", "% by %-%-%-%-%"),
    ("postings", "terms", "% by %-%-%-%-%"),
];

impl Change for Adoption {
    type Answer = String;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<String, StorageError>> {
        Box::pin(async move {
            let first = sqlx::query(
                "INSERT INTO settings (name, value) VALUES ('secret_check', $1) ON CONFLICT (name) DO NOTHING",
            );
            let first = first.bind(&*self.check);
            first.execute(&mut *connection).await?;
            let kept = sqlx::query("SELECT value FROM settings WHERE name = 'secret_check'");
            Ok(kept.fetch_one(connection).await?.try_get(0)?)
        })
    }
}

impl Change for Removal {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            overwrite_what_goes(connection, true).await?;
            let gone = sqlx::query("DELETE FROM settings WHERE name = 'secret'");
            gone.execute(&mut *connection).await?;
            overwrite_what_goes(connection, false).await
        })
    }
}

impl Change for Sealing {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            overwrite_what_goes(connection, true).await?;
            self.seal_passkeys(connection).await?;
            self.seal_keys(connection).await?;
            overwrite_what_goes(connection, false).await
        })
    }
}

impl Sealing {
    async fn seal_passkeys(&self, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let rows = sqlx::query(OPEN_PASSKEYS)
            .fetch_all(&mut *connection)
            .await?;
        for row in rows {
            let passkey: String = row.try_get(1)?;
            let sealed = sqlx::query("UPDATE people SET proxy_passkey = $1 WHERE account = $2");
            let sealed = sealed
                .bind(self.seal.close(Sealed::Passkey, &passkey))
                .bind(row.try_get::<i64, _>(0)?);
            sealed.execute(&mut *connection).await?;
        }
        Ok(())
    }

    async fn seal_keys(&self, connection: &mut AnyConnection) -> Result<(), StorageError> {
        let rows = sqlx::query("SELECT id FROM shared_keys WHERE sealed IS NULL");
        let mut numbers = HashMap::new();
        for row in rows.fetch_all(&mut *connection).await? {
            let id: String = row.try_get(0)?;
            let Some(key) = SharedKeyText::parse(&id) else {
                continue;
            };
            let number = self.seal.number_of(key).to_string();
            let sealed = sqlx::query("UPDATE shared_keys SET id = $1, sealed = $2 WHERE id = $3");
            let sealed = sealed
                .bind(number.clone())
                .bind(self.seal.close_key(key))
                .bind(id.clone());
            sealed.execute(&mut *connection).await?;
            for (table, column) in COLUMNS {
                let named = format!("UPDATE {table} SET {column} = $1 WHERE {column} = $2");
                let named = sqlx::query(AssertSqlSafe(named));
                let named = named.bind(number.clone()).bind(id.clone());
                named.execute(&mut *connection).await?;
            }
            numbers.insert(id, number);
        }
        if !numbers.is_empty() {
            for place in TEXTS {
                rename_in_texts(place, &numbers, connection).await?;
            }
        }
        Ok(())
    }
}

/// Replaces shared keys in texts by their ids.
async fn rename_in_texts(
    (table, column, like): (&str, &str, &str),
    numbers: &HashMap<String, String>,
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let rows = format!("SELECT id, {column} FROM {table} WHERE {column} LIKE $1");
    let rows = sqlx::query(AssertSqlSafe(rows)).bind(like.to_owned());
    for row in rows.fetch_all(&mut *connection).await? {
        let (id, text): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let named = numbers.iter().filter(|(key, _)| text.contains(*key));
        let renamed = named.fold(text.clone(), |text, (key, number)| {
            text.replace(key, number)
        });
        if renamed != text {
            let update = format!("UPDATE {table} SET {column} = $1 WHERE id = $2");
            let update = sqlx::query(AssertSqlSafe(update)).bind(renamed).bind(id);
            update.execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// SQLite leaves deleted data in the free parts of its pages unless this is on.
async fn overwrite_what_goes(
    connection: &mut AnyConnection,
    overwrites: bool,
) -> Result<(), StorageError> {
    if Dialect::spoken_by(connection) == Dialect::Sqlite {
        let pragma = match overwrites {
            true => "PRAGMA secure_delete = ON",
            false => "PRAGMA secure_delete = OFF",
        };
        connection.execute(pragma).await?;
    }
    Ok(())
}

impl fmt::Debug for SecretState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretState(hidden)")
    }
}
