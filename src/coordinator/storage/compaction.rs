//! Removal of deleted texts from the files of an SQLite database. `secure_delete` overwrites freed space, but not data
//! that moves when a page is rebuilt, and the write-ahead log holds earlier pages until it is overwritten. So the log
//! is checkpointed regularly, and the deletion of an account rewrites the file as well.

use sqlx::{AnyConnection, Executor, Row};
use tracing::warn;

use super::StorageError;
use super::dialect::Dialect;

/// Larger files are not rewritten, since that blocks all writes; a file of this size takes some twenty seconds.
const LARGEST_REWRITTEN: i64 = 2 << 30;

pub struct Compactor<'a> {
    connection: &'a mut AnyConnection,
    dialect: Dialect,
}

impl<'a> Compactor<'a> {
    pub fn of(connection: &'a mut AnyConnection) -> Self {
        let dialect = Dialect::spoken_by(connection);
        Self {
            connection,
            dialect,
        }
    }

    /// Moves the log into the file. Hardly waits for readers of an earlier state, since it blocks all writes: the next
    /// call
    /// moves the rest.
    pub async fn empty_log(&mut self) -> Result<(), StorageError> {
        if self.dialect == Dialect::Sqlite {
            self.connection.execute("PRAGMA busy_timeout = 100").await?;
            let emptied = self.checkpoint().await;
            self.connection
                .execute("PRAGMA busy_timeout = 5000")
                .await?;
            emptied?;
        }
        Ok(())
    }

    async fn checkpoint(&mut self) -> Result<(), StorageError> {
        let emptied = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.connection.execute(emptied).await?;
        Ok(())
    }

    /// Rewrites the file so that no deleted text is left in it.
    pub async fn compact(&mut self) -> Result<(), StorageError> {
        if self.dialect == Dialect::Postgres {
            return Ok(());
        }
        match self.bytes().await? {
            ..=LARGEST_REWRITTEN => {
                self.connection.execute("VACUUM").await?;
            }
            bytes => warn!(
                "the database of {} GiB was not rewritten after a deletion: parts of deleted texts may remain in free space; \
                 run VACUUM with sqlite3 while the coordinator is stopped",
                bytes >> 30
            ),
        }
        self.checkpoint().await
    }

    async fn bytes(&mut self) -> Result<i64, StorageError> {
        let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        let row = sqlx::query(size).fetch_one(&mut *self.connection).await?;
        Ok(row.try_get(0)?)
    }
}
