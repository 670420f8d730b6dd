//! Records with an id, an owner, and a name unique to its owner: styles and collections. A taken name is an answer, not
//! an error.

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe};
use uuid::Uuid;

use super::StorageError;

/// Why a write failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNamed {
    /// The owner has another record of this name.
    Taken,
    /// The record was deleted.
    Gone,
    /// The shared key that is to pay for it does not exist, or belongs to another user.
    NoKey,
}

/// Runs an insert of one row, which must skip conflicts itself.
pub async fn insert(
    row: Query<'_, Any, AnyArguments>,
    connection: &mut AnyConnection,
) -> Result<Result<(), NotNamed>, StorageError> {
    Ok(match row.execute(connection).await?.rows_affected() {
        0 => Err(NotNamed::Taken),
        _ => Ok(()),
    })
}

/// The condition of an update by id: `$1`, unless the owner has another record named `$2`.
pub fn unless_taken(table: &str) -> String {
    format!(
        "WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM {table} AS other \
         WHERE other.owner = {table}.owner AND other.name = $2 AND other.id <> $1)"
    )
}

/// For an update with [`unless_taken`].
pub async fn update(
    row: Query<'_, Any, AnyArguments>,
    table: &str,
    id: Uuid,
    connection: &mut AnyConnection,
) -> Result<Result<(), NotNamed>, StorageError> {
    if row.execute(&mut *connection).await?.rows_affected() > 0 {
        return Ok(Ok(()));
    }
    let found = AssertSqlSafe(format!("SELECT 1 FROM {table} WHERE id = $1"));
    let found = sqlx::query(found).bind(id.to_string());
    let found = found.fetch_optional(connection).await?;
    Ok(Err(found.map_or(NotNamed::Gone, |_| NotNamed::Taken)))
}
