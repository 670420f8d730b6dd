//! From rows to values.

use sqlx::any::{AnyArguments, AnyRow};
use sqlx::query::Query;
use sqlx::{Any, Executor};

use super::StorageError;

/// A type that is loaded from a row.
pub trait Stored: Sized {
    fn load(row: &AnyRow) -> Result<Self, StorageError>;
}

/// The first row, if there is one.
pub async fn first<T: Stored>(
    query: Query<'_, Any, AnyArguments>,
    source: impl Executor<'_, Database = Any>,
) -> Result<Option<T>, StorageError> {
    let row = query.fetch_optional(source).await?;
    row.as_ref().map(T::load).transpose()
}

pub async fn all<T: Stored>(
    query: Query<'_, Any, AnyArguments>,
    source: impl Executor<'_, Database = Any>,
) -> Result<Vec<T>, StorageError> {
    let rows = query.fetch_all(source).await?;
    rows.iter().map(T::load).collect()
}
