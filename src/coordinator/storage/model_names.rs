//! Further names of models, which administrators give.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use super::rows::{Stored, all};
use super::values::without_zeros;
use super::write::Change;
use super::{StorageError, Store};

/// A further name and the id of its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    pub name: String,
    pub model: String,
}

/// Limit of further names.
pub const MOST_MODEL_NAMES: i64 = 1000;

/// Gives a name to a model, also one that another model had. The answer is false where there are too many names.
#[derive(Debug)]
struct NewName(ModelName);

#[derive(Debug)]
struct NameRemoval(String);

impl Store {
    pub async fn model_names(&self) -> Result<Vec<ModelName>, StorageError> {
        let names = sqlx::query("SELECT name, model FROM model_names ORDER BY name");
        all(names, &self.readers).await
    }

    /// Whether there was room for the name.
    pub async fn name_model(&self, name: ModelName) -> Result<bool, StorageError> {
        self.change(NewName(name)).await
    }

    /// Whether it existed.
    pub async fn remove_model_name(&self, name: String) -> Result<bool, StorageError> {
        self.change(NameRemoval(name)).await
    }
}

impl Change for NewName {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let name = without_zeros(&self.0.name);
            let count = sqlx::query("SELECT COUNT(*) FROM model_names WHERE name <> $1");
            let count = count.bind(name.clone()).fetch_one(&mut *connection);
            let count: i64 = count.await?.try_get(0)?;
            if count >= MOST_MODEL_NAMES {
                return Ok(false);
            }
            let put = sqlx::query(
                "INSERT INTO model_names (name, model) VALUES ($1, $2) \
                 ON CONFLICT (name) DO UPDATE SET model = excluded.model",
            );
            let put = put.bind(name).bind(without_zeros(&self.0.model));
            put.execute(connection).await?;
            Ok(true)
        })
    }
}

impl Change for NameRemoval {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            let gone = sqlx::query("DELETE FROM model_names WHERE name = $1");
            let gone = gone.bind(without_zeros(&self.0));
            Ok(gone.execute(connection).await?.rows_affected() > 0)
        })
    }
}

impl Stored for ModelName {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            name: row.try_get("name")?,
            model: row.try_get("model")?,
        })
    }
}
