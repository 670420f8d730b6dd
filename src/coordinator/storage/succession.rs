//! Takeover from fenced coordinators: their queues and holds pass to the next one. Data of a living coordinator is not
//! touched.

use futures_util::future::BoxFuture;
use sqlx::{AnyConnection, AssertSqlSafe};

use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug)]
struct Succession {
    owner: i64,
}

/// Tables with an owner, and the condition for rows that the owner still needs. Holds of credits change their owner
/// when lost ones are released.
const OWNED: [(&str, &str); 4] = [
    ("requests", "true"),
    ("responses", "body IS NOT NULL"),
    ("holds", "true"),
    ("key_holds", "true"),
];

impl Store {
    /// Takes over the data of fenced coordinators. Call before reading any of it.
    pub async fn succeed(&self) -> Result<(), StorageError> {
        let owner = self.owner();
        self.change(Succession { owner }).await
    }
}

impl Change for Succession {
    type Answer = ();

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<(), StorageError>> {
        Box::pin(async move {
            for (table, needed) in OWNED {
                let text = format!(
                    "UPDATE {table} SET owner = $1 WHERE owner <> $1 AND {needed} \
                     AND owner NOT IN (SELECT epoch FROM coordinators)"
                );
                let taken = sqlx::query(AssertSqlSafe(text)).bind(self.owner);
                taken.execute(&mut *connection).await?;
            }
            Ok(())
        })
    }
}
