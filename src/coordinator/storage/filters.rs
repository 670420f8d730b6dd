//! Prompt filters of moderators. Every change increments the counter `filters`.

use futures_util::future::BoxFuture;
use sqlx::any::AnyRow;
use sqlx::{Any, AnyConnection, Executor, Row};

use muster_protocol::job::{AccountId, UnixMillis};

use super::revisions::{self, Topic};
use super::rows::{Stored, all, first};
use super::values::without_zeros;
use super::write::Change;
use super::{StorageError, Store};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterRow {
    pub id: i64,
    pub regex: String,
    /// Type of the filter: its action on a match.
    pub kind: i64,
    pub description: Option<String>,
    pub replacement: String,
    /// The last editor.
    pub editor: AccountId,
    pub editor_name: String,
}

/// A new filter.
#[derive(Debug, Clone)]
pub struct NewFilter {
    pub regex: String,
    pub kind: i64,
    pub description: Option<String>,
    pub replacement: String,
    pub editor: AccountId,
    pub now: UnixMillis,
}

/// Changes of a filter; `None` leaves a field unchanged.
#[derive(Debug, Clone)]
pub struct FilterChange {
    pub id: i64,
    pub regex: Option<String>,
    pub kind: Option<i64>,
    pub description: Option<String>,
    pub replacement: Option<String>,
    pub editor: AccountId,
    pub now: UnixMillis,
}

/// Outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterChanged {
    Done(FilterRow),
    Unknown,
    /// Another filter has the same pattern and type.
    Twin(i64),
}

/// Outcome of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterMade {
    New(FilterRow),
    /// A filter with this pattern and type exists and is unchanged.
    Known(FilterRow),
    Full,
}

#[derive(Debug)]
struct FilterRemoval {
    id: i64,
}

/// Limit of filters.
pub const MOST_FILTERS: i64 = 1000;

/// Selects the columns of a [`FilterRow`], followed by `$rest`.
macro_rules! select_filters {
    ($rest:literal) => {
        concat!(
            "SELECT filters.id, regex, kind, description, replacement, editor, \
             COALESCE(accounts.name, '') AS editor_name \
             FROM filters LEFT JOIN accounts ON accounts.id = filters.editor ",
            $rest
        )
    };
}

impl Store {
    /// The oldest first.
    pub async fn filters(&self) -> Result<Vec<FilterRow>, StorageError> {
        all(
            sqlx::query(select_filters!("ORDER BY filters.id")),
            &self.readers,
        )
        .await
    }

    pub async fn filter(&self, id: i64) -> Result<Option<FilterRow>, StorageError> {
        find(id, &self.readers).await
    }

    pub async fn make_filter(&self, filter: NewFilter) -> Result<FilterMade, StorageError> {
        self.change(filter).await
    }

    pub async fn change_filter(&self, change: FilterChange) -> Result<FilterChanged, StorageError> {
        self.change(change).await
    }

    /// Whether it existed.
    pub async fn remove_filter(&self, id: i64) -> Result<bool, StorageError> {
        self.change(FilterRemoval { id }).await
    }
}

impl Change for NewFilter {
    type Answer = FilterMade;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<FilterMade, StorageError>> {
        Box::pin(async move {
            if let Some(id) = twin(&self.regex, self.kind, connection).await? {
                let known = find(id, &mut *connection).await?;
                return known.map(FilterMade::Known).ok_or_else(gone);
            }
            let count = sqlx::query("SELECT COUNT(*) FROM filters");
            let count: i64 = count.fetch_one(&mut *connection).await?.try_get(0)?;
            if count >= MOST_FILTERS {
                return Ok(FilterMade::Full);
            }
            revisions::next(Topic::Filters, connection).await?;
            let row = sqlx::query(
                "INSERT INTO filters (regex, kind, description, replacement, editor, changed_at) \
                 VALUES ($1, $2, $3, $4, $5, $6) RETURNING id",
            );
            let row = row
                .bind(without_zeros(&self.regex))
                .bind(self.kind)
                .bind(self.description.as_deref().map(without_zeros))
                .bind(without_zeros(&self.replacement))
                .bind(self.editor.0)
                .bind(self.now.0);
            let id: i64 = row.fetch_one(&mut *connection).await?.try_get(0)?;
            let made = find(id, connection).await?;
            made.map(FilterMade::New).ok_or_else(gone)
        })
    }
}

impl Change for FilterChange {
    type Answer = FilterChanged;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<FilterChanged, StorageError>> {
        Box::pin(async move {
            let Some(row) = find(self.id, &mut *connection).await? else {
                return Ok(FilterChanged::Unknown);
            };
            let pattern = self.regex.as_deref().unwrap_or(&row.regex);
            let kind = self.kind.unwrap_or(row.kind);
            let twin = twin(pattern, kind, connection).await?;
            if let Some(twin) = twin.filter(|twin| *twin != self.id) {
                return Ok(FilterChanged::Twin(twin));
            }
            revisions::next(Topic::Filters, connection).await?;
            let change = sqlx::query(
                "UPDATE filters SET regex = $1, kind = $2, description = $3, replacement = $4, \
                 editor = $5, changed_at = $6 WHERE id = $7",
            );
            let change = change
                .bind(without_zeros(pattern))
                .bind(kind)
                .bind(
                    self.description
                        .as_deref()
                        .or(row.description.as_deref())
                        .map(without_zeros),
                )
                .bind(without_zeros(
                    self.replacement.as_deref().unwrap_or(&row.replacement),
                ))
                .bind(self.editor.0)
                .bind(self.now.0)
                .bind(self.id);
            change.execute(&mut *connection).await?;
            let changed = find(self.id, connection).await?;
            changed.map(FilterChanged::Done).ok_or_else(gone)
        })
    }
}

impl Change for FilterRemoval {
    type Answer = bool;

    fn apply<'a>(
        &'a self,
        connection: &'a mut AnyConnection,
    ) -> BoxFuture<'a, Result<bool, StorageError>> {
        Box::pin(async move {
            revisions::next(Topic::Filters, connection).await?;
            let gone = sqlx::query("DELETE FROM filters WHERE id = $1").bind(self.id);
            Ok(gone.execute(connection).await?.rows_affected() > 0)
        })
    }
}

async fn find(
    id: i64,
    source: impl Executor<'_, Database = Any>,
) -> Result<Option<FilterRow>, StorageError> {
    let row = sqlx::query(select_filters!("WHERE filters.id = $1"));
    first(row.bind(id), source).await
}

/// The filter with this pattern and type.
async fn twin(
    pattern: &str,
    kind: i64,
    connection: &mut AnyConnection,
) -> Result<Option<i64>, StorageError> {
    let twin = sqlx::query("SELECT id FROM filters WHERE regex = $1 AND kind = $2");
    let twin = twin.bind(without_zeros(pattern)).bind(kind);
    let twin = twin.fetch_optional(connection).await?;
    Ok(twin.map(|row| row.try_get(0)).transpose()?)
}

fn gone() -> StorageError {
    StorageError::Broken("a filter is missing right after it was written".to_owned())
}

impl Stored for FilterRow {
    fn load(row: &AnyRow) -> Result<Self, StorageError> {
        Ok(Self {
            id: row.try_get("id")?,
            regex: row.try_get("regex")?,
            kind: row.try_get("kind")?,
            description: row.try_get("description")?,
            replacement: row.try_get("replacement")?,
            editor: AccountId(row.try_get("editor")?),
            editor_name: row.try_get("editor_name")?,
        })
    }
}
