//! Status, verification and removal of files on disk.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Hub, HubError,
    cache::{self, CachedRepository},
    digest::{self, Expected},
    listing::list_files,
    part,
    record::{self, Record},
    source::{FilePath, Repository, Revision, Source, SourceFile},
};

/// How much of a source is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub files: usize,
    pub present: usize,
    /// Unusable files of these names with another hash or length.
    pub wrong: usize,
    /// Bytes of the present and the wrong files.
    pub bytes: u64,
    /// The partial files of an interrupted pull.
    pub partial: Option<Partial>,
}

/// Progress of an interrupted pull.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Partial {
    pub here_bytes: u64,
    pub total_bytes: u64,
}

/// The result of verifying a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    Right,
    Wrong {
        found: String,
        wanted: String,
    },
    /// Another length; the content was not read.
    WrongSize {
        found: u64,
        wanted: u64,
    },
    Missing,
    /// A pull of it was interrupted.
    Partial(Partial),
    /// No hash of the file is known.
    Unknown {
        found: String,
    },
}

/// A file on disk, before verification.
struct Lying {
    path: PathBuf,
    /// Whether it is the file that is meant.
    is_meant: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    pub bytes: u64,
    pub files: Vec<FilePath>,
    /// Present, but downloaded by another program. Our pulls no longer pin them.
    pub kept: Vec<FilePath>,
}

impl Hub {
    pub fn state(&self, source: &Source) -> State {
        let files = source.files.iter();
        let lying: Vec<Lying> = files.filter_map(|file| self.lying(source, file)).collect();
        let present = lying.iter().filter(|lying| lying.is_meant).count();
        let size = |lying: &Lying| lying.path.metadata().map_or(0, |metadata| metadata.len());
        State {
            files: source.files.len(),
            present,
            wrong: lying.len() - present,
            bytes: lying.iter().map(size).sum(),
            partial: self.partial(source),
        }
    }

    /// The partial bytes of all files together.
    fn partial(&self, source: &Source) -> Option<Partial> {
        let files = source.files.iter();
        let parts = files.filter_map(|file| self.part_of(source, file));
        parts
            .map(|(_, partial)| partial)
            .reduce(|one, other| Partial {
                here_bytes: one.here_bytes + other.here_bytes,
                total_bytes: one.total_bytes + other.total_bytes,
            })
    }

    /// The blob of an interrupted pull, and its progress.
    fn part_of(&self, source: &Source, file: &SourceFile) -> Option<(String, Partial)> {
        let record = Record::read(&self.settings.records_dir, &source.repository);
        let noted = record
            .unfinished(&file.path)
            .map(|unfinished| (unfinished.etag.clone(), unfinished.size));
        // The hub names the content of large files by their hash.
        let stated = || Some((file.sha256.as_ref()?.to_string(), file.size_bytes?));
        let (etag, size) = noted.or_else(stated)?;
        let blob = self.cached(&source.repository).blob(&etag);
        part::is_left(&blob).then(|| {
            let partial = Partial {
                here_bytes: part::present_bytes(&blob, size),
                total_bytes: size,
            };
            (etag, partial)
        })
    }

    /// The files of a repository with an unfinished pull.
    pub fn unfinished(&self, repository: &Repository) -> Vec<FilePath> {
        let record = Record::read(&self.settings.records_dir, repository);
        let files = record.unfinished_files().into_iter();
        files
            .filter(|file| {
                let blob = record.unfinished(file).map(|file| &file.etag);
                let blob = blob.map(|etag| self.cached(repository).blob(etag));
                blob.is_some_and(|blob| part::is_left(&blob))
            })
            .collect()
    }

    /// All of them, by their repositories.
    pub fn all_unfinished(&self) -> Vec<(Repository, FilePath)> {
        let repositories = record::repositories(&self.settings.records_dir).into_iter();
        repositories
            .flat_map(|repository| {
                let files = self.unfinished(&repository).into_iter();
                files.map(move |file| (repository.clone(), file))
            })
            .collect()
    }

    /// Removes the part of an interrupted pull, unless one is running.
    fn remove_part(
        &self,
        source: &Source,
        file: &SourceFile,
        removed: &mut Removed,
    ) -> Result<(), HubError> {
        let Some((etag, _)) = self.part_of(source, file) else {
            return Ok(());
        };
        let cached = self.cached(&source.repository);
        let blob = cached.blob(&etag);
        let lock = cached.try_lock(&etag).map_err(HubError::disk(&blob))?;
        if lock.is_none() {
            return Err(HubError::InUse {
                file: file.path.clone(),
            });
        }
        removed.bytes += part::remove_leftovers(&blob);
        fs::remove_file(blob.with_file_name(format!("{etag}.lock"))).ok();
        removed.files.push(file.path.clone());
        Ok(())
    }

    /// Compares a file with every known hash. Reads the whole file, and reports progress.
    pub fn verify(
        &self,
        source: &Source,
        file: &SourceFile,
        watched: &mut dyn FnMut(u64, u64),
    ) -> Result<Checked, HubError> {
        let Some(Lying { path, .. }) = self.lying(source, file) else {
            let part = self.part_of(source, file);
            return Ok(part.map_or(Checked::Missing, |(_, partial)| Checked::Partial(partial)));
        };
        let found = path.metadata().map_err(HubError::disk(&path))?.len();
        if let Some(wanted) = self.known_size(&source.repository, file, &path)
            && wanted != found
        {
            return Ok(Checked::WrongSize { found, wanted });
        }
        let etag = cache::blob_name(&path).unwrap_or_default();
        let known = self.known_hash(&source.repository, &file.path, &etag);
        let expected = Expected::new(&etag, file.sha256.clone().into_iter().chain(known));
        let digests = digest::of_file(&path, watched).map_err(HubError::disk(&path))?;
        Ok(match expected.mismatch(&digests) {
            Some((found, wanted)) => Checked::Wrong { found, wanted },
            None if expected.is_known() => Checked::Right,
            None => Checked::Unknown {
                found: digests.sha256.to_string(),
            },
        })
    }

    /// Removes the files of a source except those in use: those of our pulls, or with `all` also those of other
    /// programs. Companions of weights stay while other weights need them.
    pub fn remove(
        &self,
        source: &Source,
        in_use: &[FilePath],
        all: bool,
    ) -> Result<Removed, HubError> {
        let cached = self.cached(&source.repository);
        let record = Record::read(&self.settings.records_dir, &source.repository);
        let mut removed = Removed::default();
        let is_weights = |file: &&SourceFile| file.path.is_weights();
        let files = source.files.iter();
        let files = files.filter(|file| !in_use.contains(&file.path));
        let (weights, others): (Vec<_>, Vec<_>) = files.partition(is_weights);
        let are_companions = !weights.is_empty();
        for file in weights.into_iter().chain(others) {
            let Some(Lying { path, .. }) = self.lying(source, file) else {
                self.remove_part(source, file, &mut removed)?;
                continue;
            };
            let is_companion = are_companions && !file.path.is_weights();
            if is_companion && self.is_needed(source, in_use, &path) {
                continue;
            }
            if !all && !is_ours(&record, &file.path, &path) {
                removed.kept.push(file.path.clone());
                continue;
            }
            removed.bytes += remove_file(&cached, &path).map_err(HubError::disk(&path))?;
            removed.files.push(file.path.clone());
        }
        for commit in self.commits(source) {
            remove_if_empty(&cached, &commit);
        }
        for folder in ["blobs", ""] {
            fs::remove_dir(cached.root().join(folder)).ok();
        }
        let records_dir = &self.settings.records_dir;
        let forgotten = removed.files.iter().chain(&removed.kept);
        record::forget(records_dir, &source.repository, forgotten)
            .map_err(HubError::disk(records_dir))?;
        Ok(removed)
    }

    /// Whether the snapshot has weights that need their companion files. Weights in use are not counted: their users
    /// keep all required files.
    fn is_needed(&self, source: &Source, in_use: &[FilePath], path: &Path) -> bool {
        let cached = self.cached(&source.repository);
        let commits = self.commits(source).into_iter();
        let mut snapshots = commits.map(|commit| cached.snapshot(&commit));
        let Some(snapshot) = snapshots.find(|snapshot| path.starts_with(snapshot)) else {
            return false;
        };
        let mut left = Vec::new();
        list_files(&snapshot, "", &mut left);
        let needs_others = |file: &FilePath| file.is_weights() && !file.is_gguf();
        left.iter()
            .any(|file| needs_others(file) && !in_use.contains(file))
    }

    /// The path of a file in the best commit that has it.
    pub fn present(&self, source: &Source, file: &SourceFile) -> Option<PathBuf> {
        let commits = self.commits(source);
        commits
            .iter()
            .find_map(|commit| self.file_of(source, commit, file))
    }

    /// The file that is meant or, without it, the one in its place that has another hash or length.
    fn lying(&self, source: &Source, file: &SourceFile) -> Option<Lying> {
        if let Some(path) = self.present(source, file) {
            return Some(Lying {
                path,
                is_meant: true,
            });
        }
        let cached = self.cached(&source.repository);
        let commits = self.commits(source);
        let mut asked = commits
            .iter()
            .filter(|commit| self.is_asked(source, commit));
        asked.find_map(|commit| {
            Some(Lying {
                path: cached.file(commit, &file.path)?,
                is_meant: false,
            })
        })
    }
}

/// The link, and the blob when nothing else links to it. Says how many bytes are free now.
fn remove_file(cached: &CachedRepository, path: &Path) -> io::Result<u64> {
    let size = path.metadata()?.len();
    let blob = fs::canonicalize(path)?;
    let is_link = path.symlink_metadata()?.is_symlink();
    fs::remove_file(path)?;
    if !is_link {
        return Ok(size);
    }
    if is_linked(&cached.root().join("snapshots"), &blob)? {
        return Ok(0);
    }
    fs::remove_file(&blob)?;
    fs::remove_file(blob.with_extension("lock")).ok();
    Ok(size + part::remove_leftovers(&blob))
}

/// Whether any file below a folder leads to this blob.
fn is_linked(folder: &Path, blob: &Path) -> io::Result<bool> {
    for item in fs::read_dir(folder)? {
        let path = item?.path();
        let found = match path.symlink_metadata()?.is_dir() {
            true => is_linked(&path, blob)?,
            false => fs::canonicalize(&path).is_ok_and(|target| target == blob),
        };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes empty folders of a snapshot, then of the repository. `remove_dir` refuses other ones.
fn remove_if_empty(cached: &CachedRepository, commit: &Revision) {
    let snapshot = cached.snapshot(commit);
    remove_empty_folders(&snapshot);
    if snapshot.exists() {
        return;
    }
    remove_refs_to(&cached.root().join("refs"), commit);
    for folder in ["snapshots", "refs", "blobs", ""] {
        fs::remove_dir(cached.root().join(folder)).ok();
    }
}

fn remove_empty_folders(folder: &Path) {
    for item in fs::read_dir(folder).into_iter().flatten().flatten() {
        if item.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty_folders(&item.path());
        }
    }
    fs::remove_dir(folder).ok();
}

/// Removes branches whose commit has no files any more.
fn remove_refs_to(refs: &Path, commit: &Revision) {
    for item in fs::read_dir(refs).into_iter().flatten().flatten() {
        let path = item.path();
        if fs::read_to_string(&path).is_ok_and(|text| text.trim() == commit.as_str()) {
            fs::remove_file(path).ok();
        }
    }
}

/// Whether our pull downloaded a file, and no other program has replaced it since.
pub(super) fn is_ours(record: &Record, file: &FilePath, path: &Path) -> bool {
    record.file(file).is_some_and(|recorded| {
        let is_it = cache::blob_name(path).is_none_or(|blob| blob == recorded.etag);
        is_it && !recorded.was_here
    })
}
