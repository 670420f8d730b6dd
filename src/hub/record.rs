//! What was learnt at the first pull of a source that pins nothing: the commit and the hashes.
//!
//! From then on the source is pinned to them, as if the catalog had said so. Removing the model forgets them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::source::{FilePath, Repository, Revision, Sha256};

/// The pulled files of one repository.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Record {
    files: BTreeMap<String, Pulled>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pulled {
    commit: String,
    etag: String,
    size: u64,
    sha256: String,
}

/// A file as it was at its pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedFile {
    pub commit: Revision,
    pub etag: String,
    pub size: u64,
    pub sha256: Sha256,
}

impl Record {
    /// Empty when there is none; a record that cannot be read is as good as none.
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
        })
    }

    /// A commit that files were pulled from; the greatest number of them, when there are several.
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
        };
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

/// Takes files out of the record of a repository.
pub fn forget<'a>(
    records_dir: &Path,
    repository: &Repository,
    paths: impl IntoIterator<Item = &'a FilePath>,
) -> io::Result<()> {
    change(records_dir, repository, |record| {
        for path in paths {
            record.files.remove(path.as_str());
        }
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
    if record.files.is_empty() && !path.exists() {
        return Ok(());
    }
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec_pretty(&record).map_err(io::Error::other)?)?;
    file.sync_all()?;
    fs::rename(new, path)
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
    fn a_broken_record_is_as_good_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let repository: Repository = "org/name".parse().unwrap();
        fs::write(super::path(folder.path(), &repository), "{").unwrap();
        let path: FilePath = "config.json".parse().unwrap();
        assert_eq!(Record::read(folder.path(), &repository).file(&path), None);
    }
}
