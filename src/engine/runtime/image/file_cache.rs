//! A cache of small files: bounded by size, and invalidated when a file changes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::networks::weights::CheckpointError;

/// Files that were used before, the latest at the end.
#[derive(Debug)]
pub struct FileCache<T> {
    kept: Mutex<Vec<CachedFile<T>>>,
    most_bytes: u64,
}

/// The content of a file, read.
pub trait FileContent: Sized {
    /// Bytes in memory.
    fn bytes(&self) -> u64;
}

#[derive(Debug)]
struct CachedFile<T> {
    version: FileVersion,
    content: Arc<T>,
}

/// A file that was replaced is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileVersion {
    path: PathBuf,
    size_bytes: u64,
    modified: Option<SystemTime>,
}

impl<T: FileContent> FileCache<T> {
    pub fn new(most_bytes: u64) -> Self {
        Self {
            kept: Mutex::default(),
            most_bytes,
        }
    }

    /// The content of a file, which `read` reads where it is not kept.
    pub fn get(
        &self,
        path: &Path,
        read: impl FnOnce() -> Result<T, CheckpointError>,
    ) -> Result<Arc<T>, CheckpointError> {
        let version = FileVersion::read(path).map_err(|source| CheckpointError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let content = match self.take(&version) {
            Some(content) => content,
            None => Arc::new(read()?),
        };
        self.keep(version, &content);
        Ok(content)
    }

    fn take(&self, version: &FileVersion) -> Option<Arc<T>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|it| it.version == *version)?;
        Some(kept.remove(at).content)
    }

    fn keep(&self, version: FileVersion, content: &Arc<T>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // An older version of the file is of no use any more.
        kept.retain(|it| it.version.path != version.path);
        let content = Arc::clone(content);
        kept.push(CachedFile { version, content });
        let bytes = |kept: &[CachedFile<T>]| kept.iter().map(|it| it.content.bytes()).sum::<u64>();
        while kept.len() > 1 && bytes(&kept) > self.most_bytes {
            kept.remove(0);
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.kept.lock().unwrap().len()
    }
}

impl FileVersion {
    fn read(path: &Path) -> io::Result<Self> {
        let metadata = path.metadata()?;
        Ok(Self {
            path: path.to_owned(),
            size_bytes: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Content(u64);

    impl FileContent for Content {
        fn bytes(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn two_hundred_files_stay_within_the_memory_of_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = |index: u64| folder.path().join(format!("{index}.safetensors"));
        for index in 0..200 {
            std::fs::write(path(index), b"x").unwrap();
        }
        let cache = FileCache::new(100);
        let reads = Cell::new(0);
        let get = |index| {
            let content = cache.get(&path(index), || {
                reads.set(reads.get() + 1);
                Ok(Content(10))
            });
            content.unwrap().0
        };
        for index in 0..200 {
            assert_eq!((get(index), get(index)), (10, 10));
        }
        assert_eq!((reads.get(), cache.count()), (200, 10));
        get(199);
        get(190);
        assert_eq!(reads.get(), 200);
        get(0);
        assert_eq!((reads.get(), cache.count()), (201, 10));
        std::fs::write(path(0), b"longer").unwrap();
        get(0);
        assert_eq!((reads.get(), cache.count()), (202, 10));
        assert!(cache.get(&path(200), || Ok(Content(1))).is_err());
    }
}
