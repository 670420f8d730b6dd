//! Creation, changes and deletion of styles.

use futures_util::future::BoxFuture;
use serde_json::Value;
use sqlx::{AnyConnection, AssertSqlSafe};
use uuid::Uuid;

use crate::values::styles::{Params, Recipe, RecipeChange};
use muster_protocol::job::{AccountId, SharedKeyId, UnixMillis};
use muster_protocol::legacy::words::Word;

use super::super::named::{NotNamed, insert, unless_taken, update};
use super::super::values::{storable, without_zeros};
use super::super::write::Change;
use super::super::{StorageError, Store};

#[derive(Debug, Clone)]
pub struct NewStyle {
    pub id: Uuid,
    pub owner: AccountId,
    pub recipe: Recipe,
    /// Must belong to the style's owner.
    pub shared_key: Option<SharedKeyId>,
    pub created_at: UnixMillis,
}

#[derive(Debug)]
struct Changed {
    id: Uuid,
    change: RecipeChange,
    shared_key: Option<SharedKeyId>,
}

#[derive(Debug)]
struct Deleted(Uuid);

impl Store {
    pub async fn create_style(
        &self,
        style: NewStyle,
    ) -> Result<Result<(), NotNamed>, StorageError> {
        self.change(style).await
    }

    pub async fn change_style(
        &self,
        id: Uuid,
        change: RecipeChange,
        shared_key: Option<SharedKeyId>,
    ) -> Result<Result<(), NotNamed>, StorageError> {
        let changed = Changed {
            id,
            change,
            shared_key,
        };
        self.change(changed).await
    }

    /// Also removes it from its collections. False if it does not exist.
    pub async fn delete_style(&self, id: Uuid) -> Result<bool, StorageError> {
        self.change(Deleted(id)).await
    }
}

impl Change for NewStyle {
    type Answer = Result<(), NotNamed>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Self::Answer, StorageError>> {
        Box::pin(async move {
            let recipe = &self.recipe;
            if !has_key(self.shared_key, Owner::Is(self.owner), connection).await? {
                return Ok(Err(NotNamed::NoKey));
            }
            let row = sqlx::query(
                "INSERT INTO styles (id, owner, making, name, info, prompt, params, public, nsfw, tags, models, \
                 examples, shared_key, use_count, created_at) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, '[]', $12, 0, $13) \
                 ON CONFLICT (owner, name) DO NOTHING",
            );
            let row = row.bind(self.id.to_string()).bind(self.owner.0);
            let row = row.bind(recipe.making().word());
            let row = row.bind(without_zeros(&recipe.name));
            let row = row.bind(recipe.info.as_deref().map(without_zeros));
            let row = row.bind(without_zeros(&recipe.prompt));
            let row = row.bind(recipe.params.json());
            let row = row
                .bind(i64::from(recipe.public))
                .bind(i64::from(recipe.nsfw));
            let row = row.bind(list(&recipe.tags)).bind(list(&recipe.models));
            let row = row.bind(self.shared_key.map(|key| key.to_string()));
            let row = row.bind(self.created_at.0);
            if let Err(not) = insert(row, connection).await? {
                return Ok(Err(not));
            }
            write_words(self.id, "tag", &recipe.tags, connection).await?;
            write_words(self.id, "model", &recipe.models, connection).await?;
            Ok(Ok(()))
        })
    }
}

impl Change for Changed {
    type Answer = Result<(), NotNamed>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Self::Answer, StorageError>> {
        Box::pin(async move {
            let change = &self.change;
            if !has_key(self.shared_key, Owner::Has(self.id), connection).await? {
                return Ok(Err(NotNamed::NoKey));
            }
            let text = format!(
                "UPDATE styles SET name = COALESCE($2, name), info = COALESCE($3, info), \
                 prompt = COALESCE($4, prompt), params = COALESCE($5, params), \
                 public = COALESCE($6, public), nsfw = COALESCE($7, nsfw), tags = COALESCE($8, tags), \
                 models = COALESCE($9, models), shared_key = COALESCE($10, shared_key) \
                 {}",
                unless_taken("styles")
            );
            let row = sqlx::query(AssertSqlSafe(text)).bind(self.id.to_string());
            let row = row.bind(change.name.as_deref().map(without_zeros));
            let row = row.bind(change.info.as_deref().map(without_zeros));
            let row = row.bind(change.prompt.as_deref().map(without_zeros));
            let row = row.bind(change.params.as_ref().map(Params::json));
            let row = row.bind(change.public.map(i64::from));
            let row = row.bind(change.nsfw.map(i64::from));
            let row = row.bind(change.tags.as_deref().map(list));
            let row = row.bind(change.models.as_deref().map(list));
            let row = row.bind(self.shared_key.map(|key| key.to_string()));
            if let Err(not) = update(row, "styles", self.id, connection).await? {
                return Ok(Err(not));
            }
            if let Some(tags) = &change.tags {
                write_words(self.id, "tag", tags, connection).await?;
            }
            if let Some(models) = &change.models {
                write_words(self.id, "model", models, connection).await?;
            }
            Ok(Ok(()))
        })
    }
}

impl Change for Deleted {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let id = self.0.to_string();
            for text in [
                "DELETE FROM style_words WHERE style = $1",
                "DELETE FROM collection_styles WHERE style = $1",
            ] {
                sqlx::query(text)
                    .bind(&*id)
                    .execute(&mut *connection)
                    .await?;
            }
            let style = sqlx::query("DELETE FROM styles WHERE id = $1").bind(&*id);
            Ok(style.execute(connection).await?.rows_affected() > 0)
        })
    }
}

/// The required owner of a shared key.
#[derive(Debug, Clone, Copy)]
enum Owner {
    Is(AccountId),
    /// The owner of this style.
    Has(Uuid),
}

/// Whether the key exists and belongs to the owner; true without a key.
async fn has_key(
    key: Option<SharedKeyId>,
    owner: Owner,
    connection: &mut AnyConnection,
) -> Result<bool, StorageError> {
    let Some(key) = key else {
        return Ok(true);
    };
    let found = sqlx::query(
        "SELECT 1 FROM shared_keys WHERE id = $1 \
         AND (owner = $2 OR owner = (SELECT owner FROM styles WHERE id = $3))",
    );
    let (account, style) = match owner {
        Owner::Is(account) => (account.0, String::new()),
        Owner::Has(style) => (0, style.to_string()),
    };
    let found = found.bind(key.to_string()).bind(account).bind(style);
    Ok(found.fetch_optional(connection).await?.is_some())
}

/// Replaces the words.
async fn write_words(
    style: Uuid,
    what: &str,
    words: &[String],
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let old = sqlx::query("DELETE FROM style_words WHERE style = $1 AND what = $2");
    let old = old.bind(style.to_string()).bind(what.to_owned());
    old.execute(&mut *connection).await?;
    for word in words {
        let new = sqlx::query(
            "INSERT INTO style_words (style, what, word) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        );
        let new = new.bind(style.to_string()).bind(what.to_owned());
        new.bind(storable(word)).execute(&mut *connection).await?;
    }
    Ok(())
}

fn list(words: &[String]) -> String {
    Value::from(words).to_string()
}
