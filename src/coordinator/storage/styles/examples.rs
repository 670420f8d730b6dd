//! Changes of a style's examples, one at a time. `styles` checks which are allowed.

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, Row};
use uuid::Uuid;

use crate::values::styles::{ExampleChange, NotChanged};

use super::super::values::without_zeros;
use super::super::write::Change;
use super::super::{StorageError, Store};
use super::{read_examples, written_examples};

#[derive(Debug)]
struct Changed {
    style: Uuid,
    change: ExampleChange,
}

impl Store {
    pub async fn change_examples(
        &self,
        style: Uuid,
        change: ExampleChange,
    ) -> Result<Result<(), NotChanged>, StorageError> {
        self.change(Changed { style, change }).await
    }
}

impl Change for Changed {
    type Answer = Result<(), NotChanged>;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<Self::Answer, StorageError>> {
        Box::pin(async move {
            let id = self.style.to_string();
            let row = sqlx::query("SELECT examples FROM styles WHERE id = $1").bind(&*id);
            let Some(row) = row.fetch_optional(&mut *connection).await? else {
                return Ok(Err(NotChanged::NoStyle));
            };
            let before: String = row.try_get(0)?;
            let after = match self.change.apply(read_examples(&before)?) {
                Ok(examples) => without_zeros(&written_examples(&examples)),
                Err(not) => return Ok(Err(not)),
            };
            let row = sqlx::query("UPDATE styles SET examples = $1 WHERE id = $2");
            row.bind(after).bind(&*id).execute(connection).await?;
            Ok(Ok(()))
        })
    }
}
