//! Many rows in one statement.
//!
//! Statements are kept by their number of rows, which is one of a few sizes: a connection prepares few of them, and any
//! number of rows takes one or two. What a statement costs is mostly the way there and back, and hardly its rows.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe};

use super::StorageError;
use super::rows::{Stored, all};
use super::values::Values;

/// Rows in one statement.
const SIZES: [usize; 12] = [64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1];

/// An insertion of many rows.
pub struct Table {
    pub head: &'static str,
    pub columns: usize,
    pub tail: &'static str,
}

/// The texts of the statements in use.
#[derive(Debug, Default)]
pub struct Statements {
    texts: HashMap<(&'static str, &'static str, usize), Arc<str>>,
}

/// Inserts the rows, as many as possible in one statement; how many were new.
pub async fn insert<T>(
    table: &Table,
    mut rows: &[T],
    bind: fn(&T, &mut Values),
    connection: &mut AnyConnection,
    statements: &mut Statements,
) -> Result<u64, StorageError> {
    let mut inserted = 0;
    while !rows.is_empty() {
        let (now, later) = rows.split_at(rows_in_one(rows.len()));
        let query = statements.insertion(table, now, bind);
        inserted += query.execute(&mut *connection).await?.rows_affected();
        rows = later;
    }
    Ok(inserted)
}

/// As [`insert`], for a table whose statement returns what has become of the rows.
pub async fn insert_returning<T, R: Stored>(
    table: &Table,
    mut rows: &[T],
    bind: fn(&T, &mut Values),
    connection: &mut AnyConnection,
    statements: &mut Statements,
) -> Result<Vec<R>, StorageError> {
    let mut returned = Vec::with_capacity(rows.len());
    while !rows.is_empty() {
        let (now, later) = rows.split_at(rows_in_one(rows.len()));
        let query = statements.insertion(table, now, bind);
        returned.extend(all::<R>(query, &mut *connection).await?);
        rows = later;
    }
    Ok(returned)
}

/// The largest size that is not more than there are.
fn rows_in_one(rows: usize) -> usize {
    let fitting = SIZES.into_iter().find(|size| *size <= rows);
    fitting.unwrap_or(rows)
}

impl Statements {
    fn insertion<T>(
        &mut self,
        table: &Table,
        rows: &[T],
        bind: fn(&T, &mut Values),
    ) -> Query<'static, Any, AnyArguments> {
        let mut values = Values::for_rows(rows.len(), table.columns);
        rows.iter().for_each(|row| bind(row, &mut values));
        let text = AssertSqlSafe(self.text(table, rows.len()));
        sqlx::query_with(text, values.arguments)
    }

    fn text(&mut self, table: &Table, rows: usize) -> Arc<str> {
        let text = self.texts.entry((table.head, table.tail, rows));
        text.or_insert_with(|| table.insertion(rows).into()).clone()
    }
}

impl Table {
    /// `INSERT … VALUES ($1, $2), ($3, $4) …`.
    fn insertion(&self, rows: usize) -> String {
        let row = |row: usize| {
            let numbers =
                (1..=self.columns).map(|column| format!("${}", row * self.columns + column));
            format!("({})", numbers.collect::<Vec<_>>().join(", "))
        };
        let rows: Vec<_> = (0..rows).map(row).collect();
        format!("{}{}{}", self.head, rows.join(", "), self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::{Statements, Table, rows_in_one};

    #[test]
    fn as_many_rows_as_there_are_of_a_few_sizes() {
        let sizes: Vec<_> = [1, 2, 3, 5, 63, 64, 200].map(rows_in_one).into();
        assert_eq!(sizes, [1, 2, 3, 4, 48, 64, 64]);
    }

    #[test]
    fn few_rows_take_few_statements() {
        let statements = |rows: usize| {
            let left = |rows: &usize| Some(rows - rows_in_one(*rows)).filter(|left| *left > 0);
            std::iter::successors(Some(rows), left).count()
        };
        assert_eq!((1..=64).map(statements).max(), Some(3));
        assert!((1..=16).all(|rows| statements(rows) <= 2));
    }

    #[test]
    fn tables_with_one_head_keep_their_own_tails() {
        let mut statements = Statements::default();
        let mut text = |tail| {
            let table = Table {
                head: "INSERT INTO numbers (one) VALUES ",
                columns: 1,
                tail,
            };
            statements.text(&table, 1)
        };
        assert!(text("").ends_with("($1)"));
        assert!(text(" RETURNING one").ends_with("($1) RETURNING one"));
    }

    #[test]
    fn every_row_has_its_own_numbers() {
        let table = Table {
            head: "INSERT INTO numbers (one, other) VALUES ",
            columns: 2,
            tail: " ON CONFLICT DO NOTHING",
        };
        let text = table.insertion(2);
        assert!(
            text.contains("VALUES ($1, $2), ($3, $4) ON CONFLICT"),
            "{text}"
        );
    }
}
