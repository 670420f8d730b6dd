//! The file of a SQLite database: whether the open file still has its name. A deleted or replaced file is still written
//! by the connections that have it open, and is lost with the last of them.

use std::collections::HashSet;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, MutexGuard};
use tracing::{error, warn};

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

    /// Whether the disk has too little room for new requests. The reserve is for running ones.
    pub fn is_disk_full(&self) -> bool {
        let folder = self.0.first().and_then(|file| file.path.parent());
        // A relative name of one part lies in the current folder.
        let folder = folder.map(|folder| match folder == Path::new("") {
            true => Path::new("."),
            false => folder,
        });
        let disk = folder.map(rustix::fs::statvfs);
        // Some network filesystems do not say how large they are.
        let is_full = |disk: rustix::fs::StatVfs| {
            disk.f_blocks > 0 && disk.f_bavail.saturating_mul(disk.f_frsize) < RESERVE
        };
        disk.is_some_and(|disk| disk.is_ok_and(is_full))
    }

    /// A file name beside the database for a copy of it.
    pub fn rescue_path(&self, now_secs: i64) -> Option<PathBuf> {
        let database = &self.0.first()?.path;
        let name = rescue_prefix(database)?;
        Some(database.with_file_name(format!("{name}{now_secs}")))
    }
}

/// Bytes that stay free for running requests: the answers of some hundred.
const RESERVE: u64 = 8 << 20;

/// Files that belong to the database and may be deleted with it, such as the server secret.
#[derive(Clone, Default)]
pub struct Companions(Arc<Mutex<Vec<(PathBuf, String)>>>);

impl Companions {
    pub fn add(&self, path: PathBuf, text: String) {
        self.lock().push((path, text));
    }

    /// Writes missing files again. Returns their names.
    pub fn restore(&self) -> Vec<String> {
        let missing = self.lock();
        let missing = missing.iter().filter(|(path, _)| !path.exists());
        let restored = missing.filter(|(path, text)| match write_private(path, text) {
            Ok(()) => true,
            Err(error) => {
                let name = name_of(path);
                error!("writing {name} again failed: {error}; restore it from a backup");
                false
            }
        });
        restored.map(|(path, _)| name_of(path)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(PathBuf, String)>> {
        self.0.lock()
    }
}

impl fmt::Debug for Companions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Companions")
    }
}

/// A new file that other users cannot read.
pub fn write_private(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut open = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    writeln!(open, "{text}")?;
    open.sync_all()
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
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

/// Moves a log away that belongs to another database of this name, such as one that was deleted: SQLite would write it over
/// the file. A database whose header says that it has no log has none.
pub fn set_foreign_log_aside(path: &Path) -> io::Result<()> {
    // Closing a file ends the locks that this process has on it: its own connections may have some from the second time on.
    static OPENED: LazyLock<Mutex<HashSet<FileId>>> = LazyLock::new(Mutex::default);
    let mut opened = OPENED.lock();
    let log = log_of(path);
    if !opened.insert(FileId::of(path)?) || !log.exists() || has_log(path)? {
        return Ok(());
    }
    let aside = log.with_added_extension("foreign");
    warn!(
        "{} is not the log of this database, moving it to {}",
        name_of(&log),
        name_of(&aside)
    );
    std::fs::rename(&log, aside)
}

/// By the read version of the file format, <https://www.sqlite.org/fileformat2.html>. An empty file has none.
fn has_log(path: &Path) -> io::Result<bool> {
    const READ_VERSION: usize = 19;
    let mut header = [0; READ_VERSION + 1];
    match std::fs::File::open(path)?.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
        read => read.map(|()| header[READ_VERSION] != 1),
    }
}

/// Beside the file itself, not beside a link to it.
fn log_of(path: &Path) -> PathBuf {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut name = real.into_os_string();
    name.push("-wal");
    name.into()
}
