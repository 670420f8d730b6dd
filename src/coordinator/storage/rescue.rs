//! Copies a database whose files were deleted, through a connection that has them open.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::AnyConnection;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tracing::{error, warn};

use super::file::Companions;
use super::{Location, StorageError, connect, pulse};

/// Limit of tries: a copy may fail temporarily, for example while another connection recovers the log or a disk is
/// full.
const TRIES: u32 = 30;
const AGAIN: Duration = Duration::from_secs(1);

/// A connection that has read the database while its files were in place: a connection opened after they were deleted,
/// as a pool may do at any time, would find no file, or a log without its beginning.
#[derive(Clone)]
pub struct Rescuer(Arc<Mutex<AnyConnection>>);

impl Rescuer {
    pub async fn open(location: &Location) -> Result<Self, StorageError> {
        let mut connection = connect(location).await?;
        // The first read opens the log.
        pulse::look(&mut connection).await?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Copies the database through the open connection, the only access to the deleted files.
    pub async fn rescue(&self, path: &Path, companions: &Companions) {
        for restored in companions.restore() {
            error!("{restored} was deleted with the database and has been written again");
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut tries = 1;
        let copied = loop {
            match self.copy(path).await {
                Err(error) if tries < TRIES => {
                    warn!("copying the database to {name} failed and is tried again: {error}");
                    tries += 1;
                    sleep(AGAIN).await;
                }
                copied => break copied,
            }
        };
        match copied {
            Ok(()) => error!(
                "the database was copied to {name} beside its old path: stop the coordinator, rename the copy to the database file, start again"
            ),
            Err(error) => error!(
                "copying the database to {name} beside its old path failed: {error}; restore the database file before the coordinator stops, or all changes since the last backup are lost"
            ),
        }
    }

    /// Copies under a temporary name, and renames the complete copy.
    async fn copy(&self, path: &Path) -> Result<(), StorageError> {
        let part = path.with_added_extension("part");
        // A part of an earlier copy that failed.
        let _ = std::fs::remove_file(&part);
        super::migrate::prepare_file(&part)?;
        sqlx::query("VACUUM INTO $1")
            .bind(part.to_string_lossy().into_owned())
            .execute(&mut *self.0.lock().await)
            .await?;
        Ok(std::fs::rename(part, path)?)
    }
}
