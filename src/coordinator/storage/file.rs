//! The file of an SQLite store: whether the one that is open still has its name. A file that was deleted or replaced
//! goes on being written by the connections that have it open, and is lost with the last of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file_id::{FileId, is_gone};

use super::StorageError;
use super::location::Location;

/// The database and its write-ahead log as they were opened. Clones speak of the same files; on a server there are none.
#[derive(Debug, Clone, Default)]
pub struct OpenFiles(Arc<[OpenFile]>);

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    id: FileId,
}

impl OpenFiles {
    /// To be called when a connection has read something: from then on there is a log, and it stays the same one while
    /// connections are open.
    pub fn of(location: &Location) -> Result<Self, StorageError> {
        let Location::Sqlite(path) = location else {
            return Ok(Self::default());
        };
        let database = OpenFile {
            path: path.clone(),
            id: FileId::of(path)?,
        };
        let log = log_of(path);
        let log = FileId::of(&log).ok().map(|id| OpenFile { path: log, id });
        Ok(Self([Some(database), log].into_iter().flatten().collect()))
    }

    /// Fails where one of the files no longer has its name. Whether the disk answers is not asked here.
    pub fn check(&self) -> Result<(), StorageError> {
        let is_same = |file: &OpenFile| match FileId::of(&file.path) {
            Ok(id) => id == file.id,
            Err(error) => !is_gone(&error),
        };
        match self.0.iter().all(is_same) {
            true => Ok(()),
            false => Err(StorageError::FileGone),
        }
    }

    /// A name beside the database for a copy of it.
    pub fn rescue_path(&self, now_secs: i64) -> Option<PathBuf> {
        let database = &self.0.first()?.path;
        let name = rescue_prefix(database)?;
        Some(database.with_file_name(format!("{name}{now_secs}")))
    }
}

/// The name of the latest whole copy of a database that was lost here.
pub fn rescued(path: &Path) -> Option<String> {
    let prefix = rescue_prefix(path)?;
    let entries = path.parent()?.read_dir().ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let copies = names.filter_map(|name| {
        // A copy that was not finished has a longer name.
        let time: u64 = name.strip_prefix(&prefix)?.parse().ok()?;
        Some((time, name))
    });
    copies.max().map(|(_, name)| name)
}

fn rescue_prefix(database: &Path) -> Option<String> {
    let name = database.file_name()?.to_string_lossy();
    Some(format!("{name}.rescued-"))
}

/// Beside the file itself, not beside a link to it.
fn log_of(path: &Path) -> PathBuf {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = real.into_os_string();
    name.push("-wal");
    name.into()
}
