//! A copy of a database whose files were deleted, by a connection that has them open.

use std::path::Path;
use std::sync::Arc;

use sqlx::AnyConnection;
use tokio::sync::Mutex;
use tracing::error;

use super::file::Companions;
use super::{Location, StorageError, connect, pulse};

/// A connection that has read from the database before anything could happen to its files: one that is opened later, as a
/// pool does at any time, finds no file or a log without its beginning.
#[derive(Clone)]
pub struct Rescuer(Arc<Mutex<AnyConnection>>);

impl Rescuer {
    pub async fn open(location: &Location) -> Result<Self, StorageError> {
        let mut connection = connect(location).await?;
        // The log is opened by the first read.
        pulse::look(&mut connection).await?;
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Copies the database as the connection sees it, which is all that is left of it.
    pub async fn rescue(&self, path: &Path, companions: &Companions) {
        for restored in companions.restore() {
            error!("{restored} was deleted with the database and has been written again");
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match self.copy(path).await {
            Ok(()) => error!(
                "the database was copied to {name} beside its old path: stop the coordinator, rename the copy to the database file, start again"
            ),
            Err(error) => error!(
                "copying the database to {name} beside its old path failed: {error}; restore the database file before the coordinator stops, or all changes since the last backup are lost"
            ),
        }
    }

    /// The copy has its name when all of it is there.
    async fn copy(&self, path: &Path) -> Result<(), StorageError> {
        let part = path.with_added_extension("part");
        super::migrate::prepare_file(&part)?;
        sqlx::query("VACUUM INTO $1")
            .bind(part.to_string_lossy().into_owned())
            .execute(&mut *self.0.lock().await)
            .await?;
        Ok(std::fs::rename(part, path)?)
    }
}
