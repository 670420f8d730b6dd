//! The Hugging Face cache on disk: `models--org--name/{blobs,refs,snapshots}`.
//!
//! Content is stored once, under the hub's name of it; snapshots of commits link to it. Locks are those of the hub's
//! own tools, so that concurrent pulls never write the same blob.

use std::{
    fs::{self, DirEntry, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
};

use hf_hub::{Cache, CacheRepo, Repo, RepoType};

use super::source::{FilePath, Repository, Revision};

/// A repository in the cache.
pub struct CachedRepository {
    root: PathBuf,
    locks: PathBuf,
    repo: CacheRepo,
    repository: Repository,
    cache: Cache,
}

impl CachedRepository {
    pub fn new(cache_dir: &Path, repository: &Repository) -> Self {
        let cache = Cache::new(cache_dir.to_owned());
        let repo = Repo::model(repository.to_string());
        let folder = repo.folder_name();
        Self {
            root: cache_dir.join(&folder),
            locks: cache_dir.join(".locks").join(&folder),
            repo: cache.repo(repo),
            repository: repository.clone(),
            cache,
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn blobs(&self) -> PathBuf {
        self.root.join("blobs")
    }

    pub fn blob(&self, etag: &str) -> PathBuf {
        self.blobs().join(etag)
    }

    /// The commit of a revision at the last query of the hub.
    pub fn commit_of(&self, revision: &Revision) -> Option<Revision> {
        if revision.is_commit() {
            return Some(revision.clone());
        }
        let path = self.root.join("refs").join(revision.as_str());
        let commit: Revision = fs::read_to_string(path).ok()?.trim().parse().ok()?;
        commit.is_commit().then_some(commit)
    }

    /// The path of a commit's file, if its content is on disk.
    pub fn file(&self, commit: &Revision, file: &FilePath) -> Option<PathBuf> {
        let path = self.link(commit, file);
        path.is_file().then_some(path)
    }

    /// Links an existing blob as a file of a commit.
    pub fn add_link(&self, commit: &Revision, file: &FilePath, etag: &str) -> io::Result<PathBuf> {
        let link = self.link(commit, file);
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder)?;
        }
        // Up two folders from snapshots/<commit>/, and one more per folder inside the repository.
        let up = "../".repeat(2 + file.as_str().matches('/').count());
        let target = PathBuf::from(format!("{up}blobs/{etag}"));
        match fs::read_link(&link) {
            Ok(found) if found == target => return Ok(link),
            _ if link.symlink_metadata().is_ok() => fs::remove_file(&link)?,
            _ => {}
        }
        match std::os::unix::fs::symlink(target, &link) {
            // Another process made the same link in between.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(link),
            other => other.map(|()| link),
        }
    }

    /// Records the commit of a branch or tag, like the hub's tools.
    pub fn add_ref(&self, revision: &Revision, commit: &Revision) -> io::Result<()> {
        if revision.is_commit() {
            return Ok(());
        }
        let repo = Repo::with_revision(
            self.repository.to_string(),
            RepoType::Model,
            revision.to_string(),
        );
        self.cache.repo(repo).create_ref(commit.as_str())
    }

    /// Tries to lock the blob against other processes.
    pub fn try_lock(&self, etag: &str) -> io::Result<Option<BlobLock>> {
        // The Python tools lock in `.locks`, the Rust ones next to the blob.
        let paths = [
            self.locks.join(format!("{etag}.lock")),
            self.blobs().join(format!("{etag}.lock")),
        ];
        let mut held = Vec::new();
        for path in paths {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut options = OpenOptions::new();
            let file = options
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            match file.try_lock() {
                Ok(()) => held.push(file),
                Err(TryLockError::WouldBlock) => return Ok(None),
                // Some network file systems know no locks; the hash still holds.
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Ok(Some(BlobLock { _held: held }))
    }

    /// The path of a file's link in a snapshot, even if it does not exist.
    pub fn link(&self, commit: &Revision, file: &FilePath) -> PathBuf {
        self.repo.pointer_path(commit.as_str()).join(file.as_str())
    }

    /// The commits with downloaded files, newest first.
    pub fn commits(&self) -> Vec<Revision> {
        let items = fs::read_dir(self.root.join("snapshots"));
        let commit = |item: DirEntry| {
            let commit: Revision = item.file_name().to_str()?.parse().ok()?;
            let modified = item.metadata().and_then(|metadata| metadata.modified());
            commit.is_commit().then(|| (modified.ok(), commit))
        };
        let items = items.into_iter().flatten().flatten();
        let mut commits: Vec<_> = items.filter_map(commit).collect();
        commits.sort_by(|(one, _), (other, _)| other.cmp(one));
        commits.into_iter().map(|(_, commit)| commit).collect()
    }

    pub fn snapshot(&self, commit: &Revision) -> PathBuf {
        self.repo.pointer_path(commit.as_str())
    }
}

/// The name by content of the blob that a file links to.
pub fn blob_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// Held until dropped or until the process ends.
pub struct BlobLock {
    _held: Vec<File>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_linked_is_found_by_the_hubs_own_crate() {
        let folder = tempfile::tempdir().unwrap();
        let cached = CachedRepository::new(folder.path(), &parsed("org/name"));
        let commit: Revision = parsed(&"a".repeat(40));
        fs::create_dir_all(cached.blobs()).unwrap();
        fs::write(cached.blob("etag"), "bytes").unwrap();
        cached
            .add_link(&commit, &parsed("deep/config.json"), "etag")
            .unwrap();
        cached
            .add_link(&commit, &parsed("deep/config.json"), "etag")
            .unwrap();
        cached.add_ref(&Revision::main(), &commit).unwrap();

        let theirs = Cache::new(folder.path().to_owned()).model("org/name".to_owned());
        let path = theirs.get("deep/config.json").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "bytes");
        assert_eq!(cached.commit_of(&Revision::main()), Some(commit.clone()));
        assert!(cached.file(&commit, &parsed("config.json")).is_none());
    }

    #[test]
    fn one_blob_is_brought_by_one_process() {
        let folder = tempfile::tempdir().unwrap();
        let cached = CachedRepository::new(folder.path(), &parsed("org/name"));
        let held = cached.try_lock("etag").unwrap();
        assert!(held.is_some());
        assert!(cached.try_lock("etag").unwrap().is_none());
        assert!(cached.try_lock("other").unwrap().is_some());
        drop(held);
        assert!(cached.try_lock("etag").unwrap().is_some());
    }
}
