//! Shared keys of users. The price of a request is held against the budget until the request has ended
//! ([`super::holds`]), and charges are taken from it when a job is settled ([`super::budgets`]); kudos sent to a key
//! are added in the transaction of the posting.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Row};

use crate::kudos::{Posted, Posting};
use crate::values::{NewSharedKey, SharedKey, SharedKeyChange};
use muster_protocol::job::{AccountId, Kudos, SharedKeyId, UnixMillis};
use muster_protocol::legacy::shared_key::JobLimits;

use super::postings::post;
use super::rows::{Stored, all, first};
use super::values::without_zeros;
use super::write::Change;
use super::{StorageError, Store};

/// A posting to the owner of a key, added to the key's use.
#[derive(Debug)]
struct Gift {
    posting: Posting,
    key: SharedKeyId,
    amount: Kudos,
}

#[derive(Debug)]
struct Removal {
    key: SharedKeyId,
    owner: AccountId,
}

/// Selects the columns of a [`SharedKey`], followed by `$rest`. The styles tell whether a key pays for them; its own
/// column for that is from earlier versions.
macro_rules! select_keys {
    ($rest:literal) => {
        concat!(
            "SELECT shared_keys.id, sealed, owner, accounts.name AS owner_name, shared_keys.name, budget, held, utilized, \
             expires_at, max_image_pixels, max_image_steps, max_text_tokens, \
             (SELECT COUNT(*) FROM styles WHERE styles.shared_key = shared_keys.id) AS styles \
             FROM shared_keys JOIN accounts ON accounts.id = shared_keys.owner ",
            $rest
        )
    };
}

impl Store {
    /// False at the owner's limit of shared keys.
    pub async fn create_shared_key(&self, key: NewSharedKey) -> Result<bool, StorageError> {
        self.change(key).await
    }

    pub async fn shared_key(&self, id: SharedKeyId) -> Result<Option<SharedKey>, StorageError> {
        let row = sqlx::query(select_keys!("WHERE shared_keys.id = $1"));
        first(row.bind(id.to_string()), &self.readers).await
    }

    /// Shared keys of an account, oldest first.
    pub async fn shared_keys(&self, owner: AccountId) -> Result<Vec<SharedKey>, StorageError> {
        let rows = sqlx::query(select_keys!(
            "WHERE owner = $1 ORDER BY shared_keys.created_at, shared_keys.id"
        ));
        all(rows.bind(owner.0), &self.readers).await
    }

    /// The existing keys among these ids.
    pub async fn shared_keys_among(
        &self,
        ids: &[SharedKeyId],
    ) -> Result<Vec<SharedKey>, StorageError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let places: Vec<_> = (1..=ids.len()).map(|place| format!("${place}")).collect();
        let text = format!(
            "{}({})",
            select_keys!("WHERE shared_keys.id IN "),
            places.join(", ")
        );
        let rows = sqlx::query(AssertSqlSafe(text));
        let rows = ids.iter().fold(rows, |rows, id| rows.bind(id.to_string()));
        all(rows, &self.readers).await
    }

    /// False if the owner has no such key.
    pub async fn change_shared_key(&self, change: SharedKeyChange) -> Result<bool, StorageError> {
        self.change(change).await
    }

    /// False if the owner has no such key.
    pub async fn remove_shared_key(
        &self,
        key: SharedKeyId,
        owner: AccountId,
    ) -> Result<bool, StorageError> {
        self.change(Removal { key, owner }).await
    }

    /// Moves kudos to the owner of a key, and adds as much to its budget.
    pub async fn post_to_key(
        &self,
        posting: Posting,
        key: SharedKeyId,
        amount: Kudos,
    ) -> Result<Posted, StorageError> {
        self.change(Gift {
            posting,
            key,
            amount,
        })
        .await
    }
}

impl Change for NewSharedKey {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let new = sqlx::query(
                "INSERT INTO shared_keys (id, sealed, owner, name, budget, utilized, expires_at, max_image_pixels, \
                 max_image_steps, max_text_tokens, created_at) \
                 SELECT $1, $11, $2, $3, $4, 0, $5, $6, $7, $8, $9 \
                 WHERE (SELECT COUNT(*) FROM shared_keys WHERE owner = $2) < $10",
            );
            let new = new
                .bind(self.id.to_string())
                .bind(self.owner.0)
                .bind(self.name.as_deref().map(without_zeros))
                .bind(self.budget.map(|kudos| kudos.0))
                .bind(self.expires_at.map(|at| at.0))
                .bind(self.limits.image_pixels)
                .bind(self.limits.image_steps)
                .bind(self.limits.text_tokens)
                .bind(self.now.0)
                .bind(self.most)
                .bind(&*self.sealed);
            Ok(new.execute(connection).await?.rows_affected() > 0)
        })
    }
}

impl Change for SharedKeyChange {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let changed = sqlx::query(
                "UPDATE shared_keys SET name = COALESCE($1, name), \
                 budget = CASE WHEN $2 = 1 THEN $3 ELSE budget END, \
                 expires_at = CASE WHEN $4 = 1 THEN $5 ELSE expires_at END, \
                 max_image_pixels = COALESCE($6, max_image_pixels), \
                 max_image_steps = COALESCE($7, max_image_steps), \
                 max_text_tokens = COALESCE($8, max_text_tokens) \
                 WHERE id = $9 AND owner = $10",
            );
            let changed = changed
                .bind(self.name.as_deref().map(without_zeros))
                .bind(i64::from(self.budget.is_some()))
                .bind(self.budget.flatten().map(|kudos| kudos.0))
                .bind(i64::from(self.expires_at.is_some()))
                .bind(self.expires_at.flatten().map(|at| at.0))
                .bind(self.image_pixels)
                .bind(self.image_steps)
                .bind(self.text_tokens)
                .bind(self.id.to_string())
                .bind(self.owner.0);
            Ok(changed.execute(connection).await?.rows_affected() > 0)
        })
    }
}

impl Change for Removal {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let key = self.key.to_string();
            let removed = sqlx::query("DELETE FROM shared_keys WHERE id = $1 AND owner = $2");
            let removed = removed.bind(&*key).bind(self.owner.0);
            let removed = removed.execute(&mut *connection).await?.rows_affected() > 0;
            if removed {
                let styles =
                    sqlx::query("UPDATE styles SET shared_key = NULL WHERE shared_key = $1");
                styles.bind(&*key).execute(connection).await?;
            }
            Ok(removed)
        })
    }
}

impl Change for Gift {
    type Answer = Posted;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Posted, StorageError>> {
        Box::pin(async move {
            let posted = post(&self.posting, connection).await?;
            if posted == Posted::Done {
                let more = sqlx::query("UPDATE shared_keys SET budget = budget + $1 WHERE id = $2");
                let more = more.bind(self.amount.0).bind(self.key.to_string());
                more.execute(connection).await?;
            }
            Ok(posted)
        })
    }
}

pub fn shared_key_id(stored: String) -> Result<SharedKeyId, StorageError> {
    let id = stored.parse().map(SharedKeyId);
    id.map_err(|_| StorageError::Broken(format!("a shared key has the invalid id {stored:?}")))
}

impl Stored for SharedKey {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        let number = |name| row.try_get::<Option<i64>, _>(name);
        Ok(Self {
            id: shared_key_id(row.try_get("id")?)?,
            sealed: row.try_get("sealed")?,
            owner: AccountId(row.try_get("owner")?),
            owner_name: row.try_get("owner_name")?,
            name: row.try_get("name")?,
            budget: number("budget")?.map(Kudos),
            held: Kudos(row.try_get("held")?),
            utilized: Kudos(row.try_get("utilized")?),
            expires_at: number("expires_at")?.map(UnixMillis),
            has_styles: row.try_get::<i64, _>("styles")? > 0,
            limits: JobLimits {
                image_pixels: row.try_get("max_image_pixels")?,
                image_steps: row.try_get("max_image_steps")?,
                text_tokens: row.try_get("max_text_tokens")?,
            },
        })
    }
}
