//! Pulls all files of a source: query metadata, check disk space, download, verify, link.

use std::path::{Path, PathBuf};

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::{Duration, sleep};

use super::{
    Hub, Pulled,
    cache::{BlobLock, CachedRepository},
    digest::{Digests, Expected},
    disk,
    download::Download,
    error::HubError,
    part::Part,
    progress::Event,
    record::{self, RecordedFile, Stamp, Unfinished},
    remote::{Line, RemoteFile},
    retry::Trouble,
    source::{Revision, Sha256, Source, SourceFile},
};

/// Concurrent queries of names and lengths.
const QUESTIONS_AT_ONCE: usize = 4;

/// How often a file may change on the hub while it is on its way.
const MOST_CHANGES: u32 = 3;

/// How often a lock that another process holds is tried.
const LOCK_PAUSE: Duration = Duration::from_millis(200);

pub struct Pull<'a> {
    pub hub: &'a Hub,
    pub source: &'a Source,
    pub cached: CachedRepository,
    pub line: Line<'a>,
}

impl Pull<'_> {
    pub async fn run(&self) -> Result<Pulled, HubError> {
        // Before any download, because recording a file pins the source.
        let revision = self.hub.pinned(self.source).unwrap_or_else(Revision::main);
        let remote = self.ask(&revision).await?;
        self.check_sizes(&remote)?;
        self.look_for_room(&remote)?;
        let mut files = Vec::with_capacity(remote.len());
        for (wanted, remote) in self.source.files.iter().zip(&remote) {
            files.push(self.bring(wanted, remote.clone()).await?);
        }
        let commit = remote
            .first()
            .map_or_else(Revision::main, |file| file.commit.clone());
        let added = self.cached.add_ref(&revision, &commit);
        added.map_err(HubError::disk(self.cached.root()))?;
        Ok(Pulled {
            revision: commit,
            files,
        })
    }

    /// The current metadata of all files. The first reply determines the commit of the others.
    async fn ask(&self, revision: &Revision) -> Result<Vec<RemoteFile>, HubError> {
        let repository = &self.source.repository;
        let Some((first, rest)) = self.source.files.split_first() else {
            return Ok(Vec::new());
        };
        let first = self.line.file(repository, revision, &first.path).await?;
        let commit = &first.commit;
        // The compiler does not find a stream `Send` that keeps this closure.
        let questions = rest.iter();
        let questions = questions.map(|file| self.line.file(repository, commit, &file.path));
        let questions: Vec<_> = questions.collect();
        let rest: Vec<RemoteFile> = stream::iter(questions)
            .buffered(QUESTIONS_AT_ONCE)
            .try_collect()
            .await?;
        Ok([first].into_iter().chain(rest).collect())
    }

    fn check_sizes(&self, remote: &[RemoteFile]) -> Result<(), HubError> {
        for (wanted, remote) in self.source.files.iter().zip(remote) {
            check_size(wanted, remote)?;
        }
        Ok(())
    }

    fn look_for_room(&self, remote: &[RemoteFile]) -> Result<(), HubError> {
        let total = remote
            .iter()
            .map(|file| file.size)
            .fold(0, u64::saturating_add);
        let present: u64 = remote
            .iter()
            .map(|file| self.present_bytes(file))
            .fold(0, u64::saturating_add);
        let wanted = total.saturating_sub(present);
        self.line.progress.report(Event::Planned {
            files: remote.len(),
            wanted_bytes: wanted,
            present_bytes: present,
        });
        if wanted > 0 {
            let progress = self.line.progress;
            self.hub.make_room(self.source, wanted, progress)?;
        }
        disk::check_room(self.cached.root(), wanted)
    }

    fn present_bytes(&self, file: &RemoteFile) -> u64 {
        let blob = self.cached.blob(&file.etag);
        match blob.metadata() {
            Ok(metadata) if metadata.len() == file.size => file.size,
            _ => super::part::present_bytes(&blob, file.size),
        }
    }

    /// Pulls a file, with a limited number of restarts if it changes meanwhile.
    async fn bring(&self, wanted: &SourceFile, first: RemoteFile) -> Result<PathBuf, HubError> {
        let mut remote = first;
        for _ in 0..MOST_CHANGES {
            match self.fetch(wanted, &remote).await {
                Err(Trouble::Changed) => {
                    self.line.progress.report(Event::Restarted {
                        file: &wanted.path,
                        why: "the file changed on the hub",
                    });
                    super::part::remove_leftovers(&self.cached.blob(&remote.etag));
                    let repository = &self.source.repository;
                    remote = self
                        .line
                        .file(repository, &remote.commit, &wanted.path)
                        .await?;
                    check_size(wanted, &remote)?;
                }
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(other) => {
                    return Err(HubError::BadAnswer {
                        host: self.line.client.host(),
                        what: format!("{other:?} for {}", wanted.path),
                    });
                }
                Ok(path) => return Ok(path),
            }
        }
        Err(HubError::KeepsChanging {
            file: wanted.path.clone(),
        })
    }

    /// The blob of a file, from disk or from the hub, and the link that makes it a file.
    async fn fetch(&self, wanted: &SourceFile, remote: &RemoteFile) -> Result<PathBuf, Trouble> {
        let blob = self.cached.blob(&remote.etag);
        let folder = self.cached.blobs();
        tokio::fs::create_dir_all(&folder)
            .await
            .map_err(|cause| self.cannot_create(&folder, remote, cause))?;
        let _lock = self.lock(remote).await?;
        let expected = self.expected(wanted, remote)?;
        match self.is_here(wanted, &expected, remote, &blob).await? {
            Some(sha256) => {
                let found = recorded(remote, sha256, true);
                let repository = &self.source.repository;
                self.hub.remember_found(repository, &remote.path, found);
            }
            None => {
                let digests = self.download(&expected, remote, &blob).await?;
                self.record(remote, digests, &blob)?;
            }
        }
        self.line
            .progress
            .report(Event::Finished { file: &wanted.path });
        let link = self
            .cached
            .add_link(&remote.commit, &wanted.path, &remote.etag);
        link.map_err(|cause| self.cannot_create(&folder, remote, cause).into())
    }

    async fn lock(&self, remote: &RemoteFile) -> Result<BlobLock, HubError> {
        let mut told = false;
        loop {
            let held = self.cached.try_lock(&remote.etag);
            if let Some(lock) = held.map_err(HubError::disk(self.cached.root()))? {
                return Ok(lock);
            }
            if !told {
                self.line
                    .progress
                    .report(Event::Locked { file: &remote.path });
                told = true;
            }
            tokio::select! {
                () = self.line.stop.cancelled() => return Err(HubError::Stopped),
                () = sleep(LOCK_PAUSE) => {}
            }
        }
    }

    async fn download(
        &self,
        expected: &Expected,
        remote: &RemoteFile,
        blob: &Path,
    ) -> Result<Digests, Trouble> {
        let open = || {
            Part::open(blob, remote.size).map_err(|cause| self.cannot_create(blob, remote, cause))
        };
        let unfinished = Unfinished {
            etag: remote.etag.clone(),
            size: remote.size,
        };
        let records_dir = &self.hub.settings.records_dir;
        record::begin(
            records_dir,
            &self.source.repository,
            &remote.path,
            &unfinished,
        )
        .map_err(HubError::disk(records_dir))?;
        let mut part = open()?;
        loop {
            let resumed = part.present_bytes();
            self.line.progress.report(Event::Started {
                file: &remote.path,
                size_bytes: remote.size,
                present_bytes: resumed,
            });
            self.fill(&part, remote).await?;
            self.line
                .progress
                .report(Event::Verifying { file: &remote.path });
            let digests = self.digests(part.path()).await?;
            let Some((found, wanted)) = expected.mismatch(&digests) else {
                let finished = part.finish(blob.to_owned()).await;
                finished.map_err(|cause| self.cannot_create(blob, remote, cause))?;
                return Ok(digests);
            };
            part.discard().map_err(HubError::disk(blob))?;
            if resumed == 0 {
                return Err(HubError::WrongHash {
                    file: remote.path.clone(),
                    found,
                    wanted,
                }
                .into());
            }
            // A part of an earlier pull may be damaged, for example by a power failure.
            self.line.progress.report(Event::Restarted {
                file: &remote.path,
                why: "the partial file of an earlier pull is damaged",
            });
            part = open()?;
        }
    }

    async fn fill(&self, part: &Part, remote: &RemoteFile) -> Result<(), Trouble> {
        Download {
            line: self.line,
            file: remote,
            part,
            connections: self.hub.settings.connections,
            piece_bytes: self.hub.settings.piece_bytes,
        }
        .run()
        .await
    }

    fn record(&self, remote: &RemoteFile, digests: Digests, blob: &Path) -> Result<(), HubError> {
        let repository = &self.source.repository;
        let stamp = Stamp::of(blob).map_err(HubError::disk(blob))?;
        let file = recorded(remote, digests.sha256, false);
        let records_dir = &self.hub.settings.records_dir;
        record::add(records_dir, repository, &remote.path, &file)
            .map_err(HubError::disk(records_dir))?;
        self.hub
            .remember_read(repository, blob, stamp, &file.sha256);
        Ok(())
    }

    fn cannot_create(&self, path: &Path, remote: &RemoteFile, cause: std::io::Error) -> HubError {
        HubError::CannotWrite {
            path: path.to_owned(),
            cause,
            wanted: remote.size.saturating_sub(self.present_bytes(remote)),
            free: disk::free_bytes(path).ok(),
        }
    }
}

fn recorded(remote: &RemoteFile, sha256: Sha256, was_here: bool) -> RecordedFile {
    RecordedFile {
        commit: remote.commit.clone(),
        etag: remote.etag.clone(),
        size: remote.size,
        sha256,
        was_here,
    }
}

fn check_size(wanted: &SourceFile, remote: &RemoteFile) -> Result<(), HubError> {
    match wanted.size_bytes {
        Some(size) if size != remote.size => Err(HubError::WrongSize {
            file: wanted.path.clone(),
            found: remote.size,
            wanted: size,
        }),
        _ => Ok(()),
    }
}
