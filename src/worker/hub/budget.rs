//! The disk budget of downloads. When a pull needs more space, the least recently used files are removed. Files of
//! models in use stay, and so do files that other programs or the owner put into the cache.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::Arc,
};

use chrono::Utc;
use parking_lot::Mutex;

use super::{
    Hub, HubError, Progress, keep, part,
    progress::Event,
    record::{self, Record},
    source::{FilePath, Repository, Revision, Source, SourceFile},
};

const MILLIS: i64 = 1000;

/// Files of models that stay on disk, by the names of the models in the configuration. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct FilesInUse(Arc<Mutex<BTreeMap<String, ModelFiles>>>);

#[derive(Debug)]
struct ModelFiles {
    /// The name that the model is served as.
    name: String,
    sources: Vec<Source>,
}

/// A file from a pull.
struct StoredFile {
    repository: Repository,
    commit: Revision,
    path: FilePath,
    /// Several files may have the same content, which is on disk once.
    blob: PathBuf,
    bytes: u64,
    /// Milliseconds since the epoch.
    used: i64,
    /// Another process pulls files of the same repository.
    is_busy: bool,
}

impl FilesInUse {
    /// The files of a model stay from now on; `name` is its name at coordinators.
    pub fn insert(&self, wanted: &str, name: &str, sources: Vec<Source>) {
        let name = name.to_owned();
        let files = ModelFiles { name, sources };
        self.0.lock().insert(wanted.to_owned(), files);
    }

    /// Keeps the files of these models alone, by their names in the configuration.
    pub fn retain(&self, is_wanted: impl Fn(&str) -> bool) {
        self.0.lock().retain(|wanted, _| is_wanted(wanted));
    }

    /// The files of a model by its name at coordinators.
    pub fn sources(&self, name: &str) -> Vec<Source> {
        let models = self.0.lock();
        let named = models.values().filter(|files| files.name == name);
        named.flat_map(|files| files.sources.clone()).collect()
    }

    fn models(&self) -> Vec<String> {
        self.0.lock().keys().cloned().collect()
    }

    fn files_of(&self, repository: &Repository) -> Vec<FilePath> {
        let models = self.0.lock();
        let sources = models.values().flat_map(|files| &files.sources);
        let sources = sources.filter(|source| source.repository == *repository);
        let files = sources.flat_map(|source| &source.files);
        files.map(|file| file.path.clone()).collect()
    }
}

impl Hub {
    /// Records that the files of a model are in use, if our pulls downloaded them.
    pub fn note_use(&self, sources: &[Source]) -> io::Result<()> {
        let now = Utc::now().timestamp_millis();
        let mut used: BTreeMap<&Repository, Vec<&FilePath>> = BTreeMap::new();
        for source in sources {
            let paths = source.files.iter().map(|file| &file.path);
            used.entry(&source.repository).or_default().extend(paths);
        }
        used.into_iter().try_for_each(|(repository, paths)| {
            record::note_use(
                &self.settings.records_dir,
                repository,
                paths.into_iter(),
                now,
            )
        })
    }

    /// When a file of the source was last used, in seconds since the epoch. `None` for files from other programs.
    pub fn last_used(&self, source: &Source) -> Option<i64> {
        let record = Record::read(&self.settings.records_dir, &source.repository);
        let files = source.files.iter();
        let used = files.filter_map(|file| record.last_used(&file.path)).max();
        used.map(|used| used / MILLIS)
    }

    /// Removes the least recently used files if a pull of this many bytes would exceed the budget. Removes nothing if
    /// that would not be enough.
    pub(super) fn make_room(
        &self,
        pulled: &Source,
        wanted: u64,
        progress: &dyn Progress,
    ) -> Result<(), HubError> {
        let Some(budget) = self.settings.disk else {
            return Ok(());
        };
        let (staying, mut removable): (Vec<_>, Vec<_>) = self
            .downloads()
            .into_iter()
            .partition(|file| self.stays(file, pulled));
        let kept: BTreeSet<PathBuf> = staying.iter().map(|file| file.blob.clone()).collect();
        removable.retain(|file| !kept.contains(&file.blob));
        let staying = distinct_bytes(&staying).saturating_add(self.part_bytes());
        let room = budget.saturating_sub(staying);
        if wanted > room {
            return Err(HubError::OverBudget {
                wanted,
                budget,
                staying,
                models: self.settings.in_use.models(),
            });
        }
        removable.sort_by(|one, other| one.last_use().cmp(&other.last_use()));
        let mut taken = distinct_bytes(&removable);
        for files in removable.chunk_by(|one, other| one.last_use() == other.last_use()) {
            if taken.saturating_add(wanted) <= room {
                break;
            }
            taken = taken.saturating_sub(self.remove_unused(files, progress)?);
        }
        Ok(())
    }

    /// Removes files of one repository that were last used together. Says how many bytes are free now.
    fn remove_unused(
        &self,
        files: &[StoredFile],
        progress: &dyn Progress,
    ) -> Result<u64, HubError> {
        let Some(first) = files.first() else {
            return Ok(0);
        };
        let paths = files.iter().map(|file| file.path.clone());
        let source = Source {
            repository: first.repository.clone(),
            revision: Some(first.commit.clone()),
            files: paths.map(SourceFile::from).collect(),
        };
        let in_use = self.settings.in_use.files_of(&first.repository);
        let removed = self.remove(&source, &in_use, false)?;
        progress.report(Event::Removed {
            repository: &first.repository,
            files: &removed.files,
            bytes: removed.bytes,
            last_used: first.used / MILLIS,
        });
        Ok(removed.bytes)
    }

    /// Whether a file is needed: by a model in use, by the pull itself, or by a pull of another process.
    fn stays(&self, file: &StoredFile, pulled: &Source) -> bool {
        let is_pulled = pulled.repository == file.repository
            && pulled.files.iter().any(|wanted| wanted.path == file.path);
        let in_use = self.settings.in_use.files_of(&file.repository);
        is_pulled || file.is_busy || in_use.contains(&file.path)
    }

    /// All downloaded files that still exist.
    fn downloads(&self) -> Vec<StoredFile> {
        let records_dir = &self.settings.records_dir;
        let mut downloads = Vec::new();
        for repository in record::repositories(records_dir) {
            let record = Record::read(records_dir, &repository);
            let cached = self.cached(&repository);
            let is_busy = record.unfinished_files().iter().any(|file| {
                let unfinished = record.unfinished(file);
                unfinished.is_some_and(|file| matches!(cached.try_lock(&file.etag), Ok(None)))
            });
            for path in record.files() {
                let Some(recorded) = record.file(&path) else {
                    continue;
                };
                let Some(link) = cached.file(&recorded.commit, &path) else {
                    continue;
                };
                let (Ok(blob), Ok(metadata)) = (fs::canonicalize(&link), link.metadata()) else {
                    continue;
                };
                if !keep::is_ours(&record, &path, &link) {
                    continue;
                }
                downloads.push(StoredFile {
                    repository: repository.clone(),
                    commit: recorded.commit,
                    used: record
                        .last_used(&path)
                        .unwrap_or_else(|| metadata.mtime().saturating_mul(MILLIS)),
                    path,
                    blob,
                    bytes: metadata.len(),
                    is_busy,
                });
            }
        }
        downloads
    }

    /// Bytes of interrupted and running pulls.
    fn part_bytes(&self) -> u64 {
        let unfinished = self.all_unfinished().into_iter();
        let bytes = unfinished.map(|(repository, path)| {
            let record = Record::read(&self.settings.records_dir, &repository);
            let Some(file) = record.unfinished(&path) else {
                return 0;
            };
            let cached = self.cached(&repository);
            match cached.try_lock(&file.etag) {
                Ok(None) => file.size,
                _ => part::present_bytes(&cached.blob(&file.etag), file.size),
            }
        });
        bytes.sum()
    }
}

impl StoredFile {
    /// Files of one model have the same.
    fn last_use(&self) -> (i64, &Repository, &str) {
        (self.used, &self.repository, self.commit.as_str())
    }
}

fn distinct_bytes(downloads: &[StoredFile]) -> u64 {
    let files = downloads.iter();
    let blobs: BTreeSet<_> = files.map(|file| (&file.blob, file.bytes)).collect();
    blobs.into_iter().map(|(_, bytes)| bytes).sum()
}
