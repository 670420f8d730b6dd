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

/// The database and its write-ahead log, as opened. Clones share them; empty for a server.
#[derive(Debug, Clone, Default)]
pub struct OpenFiles(Arc<[OpenFile]>);

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    id: FileId,
}

impl OpenFiles {
    /// Must be called after a connection's first read: from then on the log exists, and stays the same file while
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

    /// Fails if one of the files was deleted or replaced. Other errors of the disk are ignored here.
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

    /// Whether the disk has too little space for new requests. Running ones may use the reserve.
    pub fn is_disk_full(&self) -> bool {
        let folder = self.0.first().and_then(|file| file.path.parent());
        // A relative path of one part is in the current folder.
        let folder = folder.map(|folder| match folder == Path::new("") {
            true => Path::new("."),
            false => folder,
        });
        let disk = folder.map(rustix::fs::statvfs);
        // Some network filesystems do not report their size.
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

/// Bytes reserved for running requests: enough for the outputs of several hundred.
const RESERVE: u64 = 8 << 20;

/// Files of the database that may be deleted together with it, such as the server secret.
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

/// Creates a file with permissions for its owner only.
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

/// The file name of the latest complete copy of a lost database.
pub fn rescued(path: &Path) -> Option<String> {
    let prefix = rescue_prefix(path)?;
    let entries = path.parent()?.read_dir().ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let copies = names.filter_map(|name| {
        // Incomplete copies have a longer name.
        let time: u64 = name.strip_prefix(&prefix)?.parse().ok()?;
        Some((time, name))
    });
    copies.max().map(|(_, name)| name)
}

fn rescue_prefix(database: &Path) -> Option<String> {
    let name = database.file_name()?.to_string_lossy();
    Some(format!("{name}.rescued-"))
}

/// Renames a log of another database with this name, for example a deleted one: SQLite would apply it to the file. A
/// database whose header is not in WAL mode has no log of its own.
pub fn set_foreign_log_aside(path: &Path) -> io::Result<()> {
    // Closing a file releases this process's locks on it, which its own connections may hold from the second time on.
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

/// By the read version of the file format, <https://www.sqlite.org/fileformat2.html>. An empty file has no header, and
/// may have a log.
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
