//! Records of the first pull of an unpinned source: the commit and the hashes.
//!
//! From then on the source is pinned to them, as if the catalog had stated them. Removing the model deletes the record.
//! For a file of another program the first pull reads the hash. Hashes of existing files are recorded as well, because
//! reading takes long.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::source::{FilePath, Repository, Revision, Sha256};

/// The pulled files of one repository.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Record {
    files: BTreeMap<String, Pulled>,
    /// Files with an unfinished pull, to find their parts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    unfinished: BTreeMap<String, Unfinished>,
    /// When a model with these files was last pulled, loaded or used, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    used: BTreeMap<String, i64>,
    /// By path on this machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    read: BTreeMap<PathBuf, Read>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pulled {
    commit: String,
    etag: String,
    size: u64,
    sha256: String,
    #[serde(default, skip_serializing_if = "is_false")]
    was_here: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// A file on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    pub etag: String,
    pub size: u64,
}

/// A hash that was read from a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Read {
    #[serde(flatten)]
    stamp: Stamp,
    sha256: String,
}

/// File attributes that change with every modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    size: u64,
    inode: u64,
    modified_secs: i64,
    modified_nanos: i64,
}

impl Stamp {
    pub fn of(path: &Path) -> io::Result<Self> {
        let metadata = path.metadata()?;
        Ok(Self {
            size: metadata.len(),
            inode: metadata.ino(),
            modified_secs: metadata.mtime(),
            modified_nanos: metadata.mtime_nsec(),
        })
    }
}

/// A file as it was at its pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedFile {
    pub commit: Revision,
    pub etag: String,
    pub size: u64,
    pub sha256: Sha256,
    /// The pull found the file of another program.
    pub was_here: bool,
}

impl Record {
    /// Empty if no record exists or it is unreadable.
    pub fn read(records_dir: &Path, repository: &Repository) -> Self {
        let text = fs::read_to_string(path(records_dir, repository)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn file(&self, path: &FilePath) -> Option<RecordedFile> {
        let pulled = self.files.get(path.as_str())?;
        Some(RecordedFile {
            commit: pulled.commit.parse().ok().filter(Revision::is_commit)?,
            etag: pulled.etag.clone(),
            size: pulled.size,
            sha256: pulled.sha256.parse().ok()?,
            was_here: pulled.was_here,
        })
    }

    /// All files that were pulled.
    pub fn files(&self) -> Vec<FilePath> {
        let paths = self.files.keys();
        paths.filter_map(|path| path.parse().ok()).collect()
    }

    /// A file with an unfinished pull.
    pub fn unfinished(&self, path: &FilePath) -> Option<&Unfinished> {
        self.unfinished.get(path.as_str())
    }

    /// All files with an unfinished pull.
    pub fn unfinished_files(&self) -> Vec<FilePath> {
        let paths = self.unfinished.keys();
        paths.filter_map(|path| path.parse().ok()).collect()
    }

    /// The hash of a file that was read when it was as it is now.
    pub fn hash_read(&self, path: &Path, stamp: Stamp) -> Option<Sha256> {
        let read = self.read.get(path)?;
        (read.stamp == stamp)
            .then(|| read.sha256.parse().ok())
            .flatten()
    }

    /// `None` for files pulled by an earlier version.
    pub fn last_used(&self, path: &FilePath) -> Option<i64> {
        self.used.get(path.as_str()).copied()
    }

    /// The commit of most files in the record.
    pub fn main_commit(&self) -> Option<Revision> {
        let mut counts = BTreeMap::new();
        for pulled in self.files.values() {
            *counts.entry(&pulled.commit).or_insert(0) += 1;
        }
        let (commit, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        commit.parse().ok().filter(Revision::is_commit)
    }

    fn insert(&mut self, path: &FilePath, file: &RecordedFile) {
        let pulled = Pulled {
            commit: file.commit.to_string(),
            etag: file.etag.clone(),
            size: file.size,
            sha256: file.sha256.to_string(),
            was_here: file.was_here,
        };
        self.unfinished.remove(path.as_str());
        self.files.insert(path.to_string(), pulled);
    }
}

/// Adds to the record of a repository.
pub fn add(
    records_dir: &Path,
    repository: &Repository,
    path: &FilePath,
    file: &RecordedFile,
) -> io::Result<()> {
    change(records_dir, repository, |record| record.insert(path, file))
}

/// Notes in the record of a repository that the pull of a file begins.
pub fn begin(
    records_dir: &Path,
    repository: &Repository,
    path: &FilePath,
    file: &Unfinished,
) -> io::Result<()> {
    let known = Record::read(records_dir, repository);
    if known.unfinished(path) == Some(file) {
        return Ok(());
    }
    change(records_dir, repository, |record| {
        record.unfinished.insert(path.to_string(), file.clone());
    })
}

/// Records a file that existed before; files of our pulls stay ours.
pub fn add_found(
    records_dir: &Path,
    repository: &Repository,
    path: &FilePath,
    mut file: RecordedFile,
) -> io::Result<()> {
    let known = Record::read(records_dir, repository).file(path);
    let same = known.as_ref().filter(|known| known.etag == file.etag);
    file.was_here = same.is_none_or(|known| known.was_here);
    if known.as_ref() == Some(&file) {
        return Ok(());
    }
    add(records_dir, repository, path, &file)
}

/// Records the hash read from a file.
pub fn add_read(
    records_dir: &Path,
    repository: &Repository,
    path: &Path,
    stamp: Stamp,
    sha256: &Sha256,
) -> io::Result<()> {
    let read = Read {
        stamp,
        sha256: sha256.to_string(),
    };
    change(records_dir, repository, |record| {
        record.read.insert(path.to_owned(), read);
    })
}

/// Records the use of files that were pulled, together, at a time in milliseconds, and as later than every other use in the
/// repository.
pub fn note_use<'a>(
    records_dir: &Path,
    repository: &Repository,
    paths: impl Iterator<Item = &'a FilePath>,
    now: i64,
) -> io::Result<()> {
    let known = Record::read(records_dir, repository);
    let paths = paths.map(FilePath::as_str);
    let pulled: Vec<&str> = paths
        .filter(|path| known.files.contains_key(*path))
        .collect();
    if pulled.is_empty() {
        return Ok(());
    }
    change(records_dir, repository, |record| {
        let last = record.used.values().max().copied().unwrap_or(0);
        let now = now.max(last.saturating_add(1));
        for path in pulled {
            record.used.insert(path.to_owned(), now);
        }
    })
}

/// Deletes the records of files, and hashes of files that no longer exist.
pub fn forget<'a>(
    records_dir: &Path,
    repository: &Repository,
    paths: impl IntoIterator<Item = &'a FilePath>,
) -> io::Result<()> {
    change(records_dir, repository, |record| {
        for path in paths {
            record.files.remove(path.as_str());
            record.unfinished.remove(path.as_str());
            record.used.remove(path.as_str());
        }
        record.read.retain(|path, _| path.exists());
    })
}

/// Under a lock, since two processes may pull from one repository; and all or nothing.
fn change(
    records_dir: &Path,
    repository: &Repository,
    edit: impl FnOnce(&mut Record),
) -> io::Result<()> {
    fs::create_dir_all(records_dir)?;
    let path = path(records_dir, repository);
    let lock = File::create(path.with_extension("lock"))?;
    match lock.lock() {
        Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
        _ => {}
    }
    let mut record = Record::read(records_dir, repository);
    edit(&mut record);
    let is_empty =
        record.files.is_empty() && record.unfinished.is_empty() && record.read.is_empty();
    if is_empty && !path.exists() {
        return Ok(());
    }
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec_pretty(&record).map_err(io::Error::other)?)?;
    file.sync_all()?;
    fs::rename(new, path)
}

/// The repositories with records.
pub fn repositories(records_dir: &Path) -> Vec<Repository> {
    let items = fs::read_dir(records_dir).into_iter().flatten().flatten();
    let names = items.filter_map(|item| item.file_name().into_string().ok());
    // The hub gives no name with two hyphens in a row.
    let repository = |name: String| {
        let (organization, name) = name.strip_suffix(".json")?.split_once("--")?;
        format!("{organization}/{name}").parse().ok()
    };
    let mut found: Vec<Repository> = names.filter_map(repository).collect();
    found.sort();
    found
}

fn path(records_dir: &Path, repository: &Repository) -> PathBuf {
    records_dir.join(format!("{}.json", repository.as_str().replace('/', "--")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_known_until_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let repository: Repository = "org/name".parse().unwrap();
        let path: FilePath = "config.json".parse().unwrap();
        let file = RecordedFile {
            commit: "a".repeat(40).parse().unwrap(),
            etag: "etag".to_owned(),
            size: 7,
            sha256: "b".repeat(64).parse().unwrap(),
            was_here: false,
        };
        assert_eq!(Record::read(folder.path(), &repository).file(&path), None);
        add(folder.path(), &repository, &path, &file).unwrap();
        assert_eq!(
            Record::read(folder.path(), &repository).file(&path),
            Some(file)
        );
        forget(folder.path(), &repository, [&path]).unwrap();
        assert_eq!(Record::read(folder.path(), &repository).file(&path), None);
    }

    #[test]
    fn a_later_use_is_later_within_the_same_millisecond_and_when_the_clock_was_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let repository: Repository = "org/name".parse().unwrap();
        let names: [FilePath; 4] =
            ["a.gguf", "b.gguf", "c.gguf", "d.gguf"].map(|name| name.parse().unwrap());
        let file = RecordedFile {
            commit: "a".repeat(40).parse().unwrap(),
            etag: "etag".to_owned(),
            size: 7,
            sha256: "b".repeat(64).parse().unwrap(),
            was_here: false,
        };
        for path in &names {
            add(folder.path(), &repository, path, &file).unwrap();
        }
        let note = |paths: &[FilePath], now| {
            note_use(folder.path(), &repository, paths.iter(), now).unwrap();
        };
        note(&names[..2], 5000);
        note(&names[2..3], 5000);
        note(&names[3..], 4000);
        let record = Record::read(folder.path(), &repository);
        let used = names.each_ref().map(|path| record.last_used(path));
        assert_eq!(used, [5000, 5000, 5001, 5002].map(Some));
    }

    #[test]
    fn a_broken_record_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let repository: Repository = "org/name".parse().unwrap();
        fs::write(super::path(folder.path(), &repository), "{").unwrap();
        let path: FilePath = "config.json".parse().unwrap();
        assert_eq!(Record::read(folder.path(), &repository).file(&path), None);
    }
}
