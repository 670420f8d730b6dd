//! Downloads files: resumable, verified, and shared with other programs.
//!
//! A [`Source`] names files of a repository. [`Hub::pull`] downloads missing ones to the Hugging Face cache, shared
//! with the hub's own tools; [`Hub::locate`] finds files without network access. Parallel ranges are written to a part
//! with a journal, so that an interrupted pull can resume at any point, and a file gets its name only after its hash
//! was verified. Files that could run code are never downloaded.

mod budget;
mod cache;
mod choose;
mod client;
mod digest;
mod disk;
mod download;
mod error;
mod extents;
mod keep;
mod listing;
mod pace;
mod part;
mod progress;
mod proof;
mod pull;
mod record;
mod remote;
mod retry;
mod settings;
mod source;

use std::path::PathBuf;

use cache::CachedRepository;
use client::Client;
use proof::Watched;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

pub use budget::FilesInUse;
pub use disk::{check_room, free_bytes};
pub use error::HubError;
pub use keep::{Checked, Partial, Removed, State};
pub use progress::{Event, Progress, Unwatched};
pub use settings::{HubSettings, Patience};
pub use source::{BadName, FilePath, Repository, Revision, Sha256, Source, SourceFile};

/// The hub and its cache.
pub struct Hub {
    settings: HubSettings,
    // Created with the first request, so that files on disk are found on a machine without certificates.
    client: OnceCell<Client>,
}

/// Paths of pulled files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// The commit they belong to.
    pub revision: Revision,
    /// The paths, in the order of the source.
    pub files: Vec<PathBuf>,
}

impl Hub {
    pub fn new(settings: HubSettings) -> Self {
        Self {
            settings,
            client: OnceCell::new(),
        }
    }

    pub fn settings(&self) -> &HubSettings {
        &self.settings
    }

    /// The paths of all files of a source, if they are on disk. Without network access.
    pub fn locate(&self, source: &Source) -> Option<Pulled> {
        self.commits(source).into_iter().find_map(|revision| {
            let files = source.files.iter();
            let files = files.map(|file| self.file_of(source, &revision, file));
            let files = files.collect::<Option<_>>()?;
            Some(Pulled { revision, files })
        })
    }

    /// Downloads the missing files of a source.
    pub async fn pull(
        &self,
        source: &Source,
        progress: &dyn Progress,
        stop: &CancellationToken,
    ) -> Result<Pulled, HubError> {
        let pulled = self.brought(source, progress, stop).await?;
        // A pull that cannot be noted as a use counts as old, and nothing worse.
        let _ = self.note_use(std::slice::from_ref(source));
        Ok(pulled)
    }

    async fn brought(
        &self,
        source: &Source,
        progress: &dyn Progress,
        stop: &CancellationToken,
    ) -> Result<Pulled, HubError> {
        if let Some(found) = self.located(source, stop).await? {
            let watched = Watched { progress, stop };
            match self.first_spoilt(source, &found, watched).await? {
                Some(file) if self.settings.offline => {
                    return Err(self
                        .offline_without(format!("an undamaged {file} of {}", source.repository)));
                }
                Some(_) => {}
                None => return Ok(found),
            }
        }
        let pull = pull::Pull {
            hub: self,
            source,
            cached: self.cached(&source.repository),
            line: self.line(source, progress, stop).await?,
        };
        pull.run().await
    }

    /// [`Self::locate`] on a separate thread, because it may have to hash large files.
    async fn located(
        &self,
        source: &Source,
        stop: &CancellationToken,
    ) -> Result<Option<Pulled>, HubError> {
        let (hub, source) = (Self::new(self.settings.clone()), source.clone());
        let found = tokio::task::spawn_blocking(move || hub.locate(&source));
        // When stopped, the reading thread is not awaited.
        tokio::select! {
            () = stop.cancelled() => Err(HubError::Stopped),
            found = found => {
                found.map_err(|error| HubError::disk(&self.settings.cache_dir)(error.into()))
            }
        }
    }

    /// The files of a model in a repository: selected by its path or a part of it, or the only one. Offline, only files
    /// on disk.
    pub async fn choose(
        &self,
        repository: &Repository,
        wanted: Option<&str>,
        progress: &dyn Progress,
        stop: &CancellationToken,
    ) -> Result<Source, HubError> {
        let nothing = Source {
            repository: repository.clone(),
            revision: None,
            files: Vec::new(),
        };
        let (commit, listing) = match self.on_disk(repository) {
            Some(here) if self.settings.offline => here,
            _ => {
                let line = self.line(&nothing, progress, stop).await?;
                line.listing(repository, &Revision::main()).await?
            }
        };
        let files = choose::choose(repository, &listing, wanted)?;
        Ok(Source {
            revision: Some(commit),
            files: files.into_iter().map(SourceFile::from).collect(),
            ..nothing
        })
    }

    async fn line<'a>(
        &'a self,
        source: &Source,
        progress: &'a dyn Progress,
        stop: &'a CancellationToken,
    ) -> Result<remote::Line<'a>, HubError> {
        if self.settings.offline {
            return Err(self.offline(source));
        }
        let client = self
            .client
            .get_or_try_init(async || Client::new(&self.settings));
        Ok(remote::Line {
            client: client.await?,
            patience: self.settings.patience,
            progress,
            stop,
        })
    }

    fn offline(&self, source: &Source) -> HubError {
        let missing: Vec<&str> = source
            .files
            .iter()
            .filter(|file| self.present(source, file).is_none())
            .map(|file| file.path.as_str())
            .collect();
        let what = match missing.as_slice() {
            [] => "the file list".to_owned(),
            names => names.join(", "),
        };
        self.offline_without(format!("{what} of {}", source.repository))
    }

    fn offline_without(&self, what: String) -> HubError {
        HubError::Offline {
            what,
            cache_dir: self.settings.cache_dir.clone(),
        }
    }

    fn cached(&self, repository: &Repository) -> CachedRepository {
        CachedRepository::new(&self.settings.cache_dir, repository)
    }

    /// The commit that a source is pinned to: by itself, or by its first pull.
    fn pinned(&self, source: &Source) -> Option<Revision> {
        source.revision.clone().or_else(|| {
            let record = record::Record::read(&self.settings.records_dir, &source.repository);
            let recorded = source.files.iter().find_map(|file| record.file(&file.path));
            recorded.map(|file| file.commit)
        })
    }

    /// The acceptable commits, best first.
    fn commits(&self, source: &Source) -> Vec<Revision> {
        let cached = self.cached(&source.repository);
        let asked = self.pinned(source).into_iter().chain([Revision::main()]);
        let mut commits: Vec<_> = asked
            .filter_map(|revision| cached.commit_of(&revision))
            .collect();
        commits.dedup();
        commits
    }

    /// A file of one of those commits, if it is on disk and valid. A stated hash decides alone, so that other commits
    /// than the pinned one are accepted: other programs download the newest commit.
    fn file_of(&self, source: &Source, commit: &Revision, file: &SourceFile) -> Option<PathBuf> {
        let path = self.sized_file_of(source, commit, file)?;
        let is_meant = match &file.sha256 {
            Some(wanted) => self.has_hash(source, file, &path, wanted),
            None => self.is_asked(source, commit),
        };
        is_meant.then_some(path)
    }

    /// The file of one of those commits, if its size matches.
    fn sized_file_of(
        &self,
        source: &Source,
        commit: &Revision,
        file: &SourceFile,
    ) -> Option<PathBuf> {
        let path = self.cached(&source.repository).file(commit, &file.path)?;
        let found = path.metadata().ok()?.len();
        let wanted = self.known_size(&source.repository, file, &path);
        wanted.is_none_or(|wanted| wanted == found).then_some(path)
    }

    /// Whether a commit is the pinned one, or any will do.
    fn is_asked(&self, source: &Source, commit: &Revision) -> bool {
        let cached = self.cached(&source.repository);
        let pinned = source.revision.as_ref();
        pinned.is_none_or(|pinned| cached.commit_of(pinned).as_ref() == Some(commit))
    }
}
