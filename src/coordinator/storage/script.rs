//! Statements over many rows, and many statements in one call.
//!
//! The rows of a statement are one value, a JSON array of arrays: its text is the same however many there are, and is
//! prepared once. The round trip costs far more than the rows, so the statements of a script, none of which needs
//! another's result, are sent together: to SQLite as one text and to PostgreSQL as the parts of one statement.

use std::fmt::Write;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe};

use super::StorageError;
use super::dialect::Dialect;
use super::election::Fence;
use super::rows::{Stored, all};
use super::values::Values;

/// Usual size of a script, in bytes.
const USUAL_TEXT: usize = 4096;

/// A statement for many rows.
#[derive(Debug)]
pub struct Table {
    pub verb: Verb,
    /// Columns of a row, in the order of its values.
    pub columns: &'static [Column],
    /// The rest of the statement: conflict handling, a join or a condition.
    pub tail: &'static str,
}

/// The statement that uses the rows.
#[derive(Debug)]
pub enum Verb {
    /// Inserts the rows into this table.
    Insert(&'static str),
    /// `TABLE SET …`, where the rows are called `news`.
    Update(&'static str),
    /// Selects these columns of the rows, called `news`, and of the tables that the tail joins.
    Select(&'static str),
}

#[derive(Debug, Clone, Copy)]
pub enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// Statements of one call: SQLite runs them in this order, PostgreSQL the last first. Only the last may return rows.
#[derive(Debug, Default)]
pub struct Script {
    /// Starts a transaction before the statements.
    begins: Option<Fence>,
    parts: Vec<(&'static Table, Values)>,
}

/// Inserts the rows in one statement.
pub async fn insert<T>(
    table: &'static Table,
    rows: &[T],
    bind: fn(&T, &mut Values),
    connection: &mut AnyConnection,
) -> Result<(), StorageError> {
    let mut script = Script::default();
    script.add(table, rows, bind);
    script.run(connection).await
}

/// Selects rows.
pub async fn select<T, R: Stored>(
    table: &'static Table,
    rows: &[T],
    bind: fn(&T, &mut Values),
    connection: &mut AnyConnection,
) -> Result<Vec<R>, StorageError> {
    let mut script = Script::default();
    script.add(table, rows, bind);
    script.returning(connection).await
}

impl Script {
    /// The first statements of a transaction, which is started even without any rows.
    pub fn in_new_transaction(fence: Fence) -> Self {
        Self {
            begins: Some(fence),
            parts: Vec::new(),
        }
    }

    /// Adds a statement, unless there are no rows.
    pub fn add<T>(&mut self, table: &'static Table, rows: &[T], bind: fn(&T, &mut Values)) {
        if !rows.is_empty() {
            self.parts.push((table, Values::of(rows, bind)));
        }
    }

    pub async fn run(self, connection: &mut AnyConnection) -> Result<(), StorageError> {
        if let Some(query) = self.query(connection).await? {
            query.execute(connection).await?;
        }
        Ok(())
    }

    /// Runs the script and returns the rows of the last statement.
    pub async fn returning<R: Stored>(
        self,
        connection: &mut AnyConnection,
    ) -> Result<Vec<R>, StorageError> {
        match self.query(connection).await? {
            Some(query) => all(query, connection).await,
            None => Ok(Vec::new()),
        }
    }

    /// All statements as one query. Starts the transaction separately if the query cannot.
    async fn query(
        self,
        connection: &mut AnyConnection,
    ) -> Result<Option<Query<'static, Any, AnyArguments>>, StorageError> {
        let dialect = Dialect::spoken_by(connection);
        let begins_with_it = dialect == Dialect::Sqlite && !self.parts.is_empty();
        if let Some(fence) = self.begins
            && !begins_with_it
        {
            fence.begin(connection).await?;
        }
        if self.parts.is_empty() {
            return Ok(None);
        }
        let begin = (self.begins.is_some() && begins_with_it).then(|| dialect.begin());
        let text = text(begin, self.parts.iter().map(|(table, _)| *table), dialect);
        let query = sqlx::query(AssertSqlSafe(text));
        let values = self.parts.into_iter().map(|(_, values)| values.json());
        Ok(Some(values.fold(query, Query::bind)))
    }
}

/// Each table's rows are one parameter.
fn text(
    begin: Option<&str>,
    tables: impl ExactSizeIterator<Item = &'static Table>,
    dialect: Dialect,
) -> String {
    let last = tables.len();
    let mut text = String::with_capacity(USUAL_TEXT);
    if let Some(begin) = begin {
        text.push_str(begin);
        text.push_str("; ");
    }
    for (place, table) in (1..).zip(tables) {
        let is_part = dialect == Dialect::Postgres && place < last;
        text.push_str(match (dialect, place) {
            (Dialect::Postgres, 1) if is_part => "WITH ",
            (_, 1) => "",
            (Dialect::Sqlite, _) => "; ",
            (Dialect::Postgres, _) if is_part => ", ",
            (Dialect::Postgres, _) => " ",
        });
        if is_part {
            // Writing to a string cannot fail.
            let _ = write!(text, "part{place} AS (");
        }
        table.write(place, dialect, &mut text);
        if is_part {
            text.push(')');
        }
    }
    text
}

impl Table {
    fn write(&self, place: usize, dialect: Dialect, text: &mut String) {
        match self.verb {
            Verb::Insert(table) => {
                let _ = write!(text, "{} {table} (", dialect.insert_into());
                for (at, column) in self.columns.iter().enumerate() {
                    text.push_str(if at == 0 { "" } else { ", " });
                    text.push_str(column.name());
                }
                text.push_str(") ");
                dialect.write_rows(self.columns, place, text);
            }
            Verb::Update(what) => {
                let _ = write!(text, "UPDATE {what} FROM (");
                self.write_news(place, dialect, text);
            }
            Verb::Select(what) => {
                let _ = write!(text, "SELECT {what} FROM (");
                self.write_news(place, dialect, text);
            }
        }
        text.push(' ');
        text.push_str(self.tail);
    }

    fn write_news(&self, place: usize, dialect: Dialect, text: &mut String) {
        dialect.write_rows(self.columns, place, text);
        text.push_str(") AS news");
    }
}

impl Column {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Text(name) | Self::Number(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, Dialect, Table, Verb, text};

    const THINGS: Table = Table {
        verb: Verb::Insert("things"),
        columns: &[Column::Text("name"), Column::Number("size")],
        tail: "ON CONFLICT DO NOTHING",
    };
    const FOUND: Table = Table {
        verb: Verb::Select("things.size"),
        columns: &[Column::Text("name")],
        tail: "JOIN things ON things.name = news.name",
    };
    const SIZES: Table = Table {
        verb: Verb::Update("things SET size = news.size"),
        columns: &[Column::Number("size")],
        tail: "WHERE true",
    };

    #[test]
    fn to_sqlite_statements_go_one_after_the_other() {
        assert_eq!(
            text(
                Some("BEGIN"),
                [&THINGS, &SIZES].into_iter(),
                Dialect::Sqlite
            ),
            "BEGIN; INSERT OR FAIL INTO things (name, size) SELECT value ->> 0 AS name, value ->> 1 AS size \
             FROM json_each($1) WHERE true ON CONFLICT DO NOTHING; \
             UPDATE things SET size = news.size FROM (SELECT value ->> 0 AS size \
             FROM json_each($2) WHERE true) AS news WHERE true"
        );
    }

    #[test]
    fn rows_are_selected_by() {
        assert_eq!(
            text(None, [&FOUND].into_iter(), Dialect::Sqlite),
            "SELECT things.size FROM (SELECT value ->> 0 AS name FROM json_each($1) WHERE true) AS news \
             JOIN things ON things.name = news.name"
        );
    }

    #[test]
    fn to_postgres_all_are_one_statement() {
        let text = text(
            None,
            [&SIZES, &SIZES, &THINGS].into_iter(),
            Dialect::Postgres,
        );
        assert_eq!(
            text,
            "WITH part1 AS (UPDATE things SET size = news.size FROM (SELECT CAST(value ->> 0 AS BIGINT) AS size \
             FROM jsonb_array_elements($1::jsonb) AS rows (value) WHERE true) AS news WHERE true), \
             part2 AS (UPDATE things SET size = news.size FROM (SELECT CAST(value ->> 0 AS BIGINT) AS size \
             FROM jsonb_array_elements($2::jsonb) AS rows (value) WHERE true) AS news WHERE true) \
             INSERT INTO things (name, size) SELECT value ->> 0 AS name, CAST(value ->> 1 AS BIGINT) AS size \
             FROM jsonb_array_elements($3::jsonb) AS rows (value) WHERE true ON CONFLICT DO NOTHING"
        );
    }
}
