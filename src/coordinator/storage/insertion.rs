//! Many rows in one statement.
//!
//! Statements are kept by their number of rows, which is a power of two, so that a connection prepares few of them.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::any::AnyArguments;
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe};

use super::StorageError;
use super::rows::{Stored, all};
use super::values::Values;

/// The most rows in one statement.
const ROWS: usize = 64;

/// An insertion of many rows.
pub struct Table {
    pub head: &'static str,
    pub columns: usize,
    pub tail: &'static str,
}

/// The texts of the statements in use.
#[derive(Debug, Default)]
pub struct Statements {
    texts: HashMap<(&'static str, usize), Arc<str>>,
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

/// The largest power of two that is not more than there are.
fn rows_in_one(rows: usize) -> usize {
    1 << rows.min(ROWS).ilog2()
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
        let text = self.texts.entry((table.head, rows));
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
    use super::{Table, rows_in_one};

    #[test]
    fn a_statement_has_a_power_of_two_of_rows() {
        let sizes: Vec<_> = [1, 2, 3, 63, 64, 200].map(rows_in_one).into();
        assert_eq!(sizes, [1, 2, 2, 32, 64, 64]);
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
