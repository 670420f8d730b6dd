//! Errors of the store, one variant for each remedy.

use std::io;

/// `Clone`, because the error of a commit goes to all its writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    #[error("{0}")]
    Misnamed(String),
    #[error(
        "the database has schema {found}, this version supports up to {known}: use a newer version of the program"
    )]
    Newer { found: i64, known: i64 },
    #[error("another program has locked the database for more than {0} seconds")]
    Locked(u64),
    #[error("the database or its folder is read-only")]
    ReadOnly,
    #[error("the disk of the database is full")]
    Full,
    #[error(
        "the database file was deleted or replaced while in use: writes are refused until the file is restored"
    )]
    FileGone,
    #[error(
        "the database file is missing, and {0} beside it holds a copy: rename the copy to the database file, or move it away to start with an empty database"
    )]
    Rescued(String),
    #[error("invalid data in the database: {0}")]
    Broken(String),
    /// The server is down, or the file cannot be opened.
    #[error("the database is unreachable: {0}")]
    Unreachable(String),
    /// An invalid statement or value: a retry does not help, and other writes of the batch are unaffected.
    #[error("the database rejected a statement: {0}")]
    Refused(String),
    #[error("the database is closed")]
    Closed,
    #[error(
        "the lease of the database could not be renewed in time: waiting for the database, nothing needs to be done if it comes back"
    )]
    Paused,
    #[error(
        "another coordinator has taken over the database: this one writes nothing more and ends"
    )]
    Fenced,
}

/// How long SQLite waits for another program's transaction.
const LOCK_WAIT_SECS: u64 = 5;

impl StorageError {
    /// Whether the error is one of a single write, not of the connection or the disk.
    pub(super) fn is_of_one_write(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether retries cannot help.
    pub(super) fn needs_operator(&self) -> bool {
        matches!(
            self,
            Self::Newer { .. } | Self::Misnamed(_) | Self::Broken(_) | Self::Rescued(_)
        )
    }
}

impl From<sqlx::Error> for StorageError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => {
                let code = error.code().unwrap_or_default();
                match code.parse::<u32>() {
                    // Codes of PostgreSQL have five characters, sometimes all digits.
                    Ok(code_number) if code.len() < 5 => of_sqlite(code_number, error.message()),
                    _ => of_postgres(&code, error.message()),
                }
            }
            sqlx::Error::Io(error) => Self::Unreachable(error.kind().to_string()),
            sqlx::Error::PoolTimedOut => Self::Unreachable("no response in time".to_owned()),
            sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => Self::Closed,
            sqlx::Error::Tls(error) => Self::Unreachable(format!("TLS: {error}")),
            sqlx::Error::Protocol(what) => Self::Unreachable(what),
            other => Self::Refused(other.to_string()),
        }
    }
}

impl From<io::Error> for StorageError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            kind => Self::Unreachable(kind.to_string()),
        }
    }
}

/// The error of a primary result code, <https://www.sqlite.org/rescode.html>.
fn of_sqlite(code: u32, message: &str) -> StorageError {
    match code & 0xff {
        5 | 6 => StorageError::Locked(LOCK_WAIT_SECS),
        8 => StorageError::ReadOnly,
        13 => StorageError::Full,
        11 => StorageError::Broken("the file is damaged".to_owned()),
        26 => StorageError::Broken("the file is not a SQLite database".to_owned()),
        7 | 9 | 10 | 14 => StorageError::Unreachable(message.to_owned()),
        _ => StorageError::Refused(message.to_owned()),
    }
}

/// The error of an SQLSTATE class, <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn of_postgres(code: &str, message: &str) -> StorageError {
    match code.get(..2).unwrap_or_default() {
        // Lost or refused connections, a shutdown of the server, deadlocks.
        "08" | "28" | "3D" | "57" | "40" => StorageError::Unreachable(message.to_owned()),
        // The process was suspended for a while, so the server has ended the transaction.
        "25" if code == "25P03" => StorageError::Unreachable(message.to_owned()),
        "25" => StorageError::ReadOnly,
        "53" if code == "53100" => StorageError::Full,
        "53" | "58" => StorageError::Unreachable(message.to_owned()),
        "XX" => StorageError::Broken(message.to_owned()),
        _ => StorageError::Refused(message.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{StorageError, of_postgres, of_sqlite};

    #[test]
    fn an_outage_is_told_from_a_bad_write() {
        assert!(of_sqlite(2067, "UNIQUE").is_of_one_write());
        assert!(of_postgres("23505", "unique").is_of_one_write());
        assert_eq!(of_sqlite(13, ""), StorageError::Full);
        assert_eq!(of_sqlite(517, ""), StorageError::Locked(5));
        assert_eq!(of_postgres("53100", ""), StorageError::Full);
        assert!(!of_postgres("57P01", "shutting down").is_of_one_write());
    }
}
