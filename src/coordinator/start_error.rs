//! Why a coordinator did not start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::accounts::{NoAdministrator, OpenError, SecretError};
use super::http::serve::TlsError;
use super::media::MediaError;
use super::storage::{Location, StorageError};

/// For the operator.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("listening on {address} failed: {cause}")]
    Listen {
        address: SocketAddr,
        cause: io::Error,
    },
    #[error("{0} is in use by another coordinator")]
    InUse(Location),
    #[error("writing {} failed: {cause}", .file.display())]
    Unwritable { file: PathBuf, cause: io::Error },
    #[error(
        "refusing to listen on {0}: other machines can reach this address and no valid API key exists"
    )]
    Unguarded(SocketAddr),
    #[error(
        "refusing to listen on {0}: other machines can reach this address and development mode lets every caller act as any account"
    )]
    Exposed(SocketAddr),
    #[error(
        "the clock of this machine is {} s {} that of {database}, at most 1 s is allowed in a cluster: let a time service such as chrony set both",
        .ahead_millis.unsigned_abs() as f64 / 1000.0,
        if *.ahead_millis > 0 { "ahead of" } else { "behind" }
    )]
    Clock {
        ahead_millis: i64,
        database: Location,
    },
    #[error("choosing the administrator failed: {0}")]
    NoAdministrator(NoAdministrator),
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Media(#[from] MediaError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Secret(error) => error.into(),
            OpenError::Storage(error) => error.into(),
        }
    }
}

impl From<NoAdministrator> for StartError {
    fn from(error: NoAdministrator) -> Self {
        match error {
            NoAdministrator::Storage(error) => error.into(),
            other => Self::NoAdministrator(other),
        }
    }
}
