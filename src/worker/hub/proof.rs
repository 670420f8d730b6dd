//! Verification: the expected hashes of a file, and their comparison with the file on disk.
//!
//! The hub names large files by their SHA-256, and the blob's name is then proof enough. For other names only the
//! record of the first pull has the SHA-256; without a record the bytes are read. Lengths are always compared; a pull
//! also reads files modified since their hash was last read.

use std::{fs, io, path::Path};

use tokio_util::sync::CancellationToken;

use super::{
    Hub, Pulled, cache,
    digest::{self, Digests, Expected},
    error::HubError,
    progress::{Event, Progress},
    pull::Pull,
    record::{self, Record, RecordedFile, Stamp},
    remote::RemoteFile,
    source::{FilePath, Repository, Sha256, Source, SourceFile},
};

/// Progress and cancellation while files are read.
#[derive(Clone, Copy)]
pub struct Watched<'a> {
    pub progress: &'a dyn Progress,
    pub stop: &'a CancellationToken,
}

impl Hub {
    /// Reads the file if no hash is recorded.
    pub(super) fn has_hash(
        &self,
        source: &Source,
        file: &SourceFile,
        path: &Path,
        wanted: &Sha256,
    ) -> bool {
        let name = cache::blob_name(path).unwrap_or_default();
        match self.known_hash(&source.repository, &file.path, &name) {
            Some(known) => known == *wanted,
            None => {
                let read = self.read_hash(&source.repository, path);
                read.is_ok_and(|read| read == *wanted)
            }
        }
    }

    /// The SHA-256 of a file, read once until the file is modified.
    fn read_hash(&self, repository: &Repository, path: &Path) -> io::Result<Sha256> {
        let stamp = Stamp::of(path)?;
        if let Some(known) = self.hash_read(repository, path, stamp) {
            return Ok(known);
        }
        let sha256 = digest::of_file(path, &mut |_, _| {})?.sha256;
        self.remember_read(repository, path, stamp, &sha256);
        Ok(sha256)
    }

    fn hash_read(&self, repository: &Repository, path: &Path, stamp: Stamp) -> Option<Sha256> {
        let record = Record::read(&self.settings.records_dir, repository);
        record.hash_read(&fs::canonicalize(path).ok()?, stamp)
    }

    /// If recording fails, the file is read again next time.
    pub(super) fn remember_read(
        &self,
        repository: &Repository,
        path: &Path,
        stamp: Stamp,
        sha256: &Sha256,
    ) {
        let records_dir = &self.settings.records_dir;
        let _ = fs::canonicalize(path)
            .and_then(|path| record::add_read(records_dir, repository, &path, stamp, sha256));
    }

    /// The first of the files with a wrong hash. Correct ones are recorded, whichever program downloaded them.
    pub(super) async fn first_spoilt<'a>(
        &self,
        source: &'a Source,
        found: &Pulled,
        watched: Watched<'_>,
    ) -> Result<Option<&'a FilePath>, HubError> {
        let repository = &source.repository;
        for (file, path) in source.files.iter().zip(&found.files) {
            let etag = cache::blob_name(path).unwrap_or_default();
            let known = self.known_hash(repository, &file.path, &etag);
            let expected = Expected::new(&etag, file.sha256.clone().into_iter().chain(known));
            let proven = self.proven(repository, &file.path, path, &expected, watched);
            let Some(sha256) = proven.await? else {
                return Ok(Some(&file.path));
            };
            let size = path.metadata().map_err(HubError::disk(path))?.len();
            let here = RecordedFile {
                commit: found.revision.clone(),
                etag,
                size,
                sha256,
                was_here: true,
            };
            self.remember_found(repository, &file.path, here);
        }
        Ok(None)
    }

    /// If recording fails, the file is checked again next time.
    pub(super) fn remember_found(
        &self,
        repository: &Repository,
        file: &FilePath,
        found: RecordedFile,
    ) {
        let _ = record::add_found(&self.settings.records_dir, repository, file, found);
    }

    /// The SHA-256 of a file that has the expected hashes. Reads the file if it was modified since the last read.
    async fn proven(
        &self,
        repository: &Repository,
        file: &FilePath,
        path: &Path,
        expected: &Expected,
        watched: Watched<'_>,
    ) -> Result<Option<Sha256>, HubError> {
        let stamp = Stamp::of(path).map_err(HubError::disk(path))?;
        // Recorded reads have no SHA-1.
        let read = match expected.sha256.is_empty() {
            true => None,
            false => self.hash_read(repository, path, stamp),
        };
        if let Some(read) = read {
            let is_right = expected.sha256.iter().all(|wanted| *wanted == read);
            return Ok(is_right.then_some(read));
        }
        watched.progress.report(Event::Verifying { file });
        let digests = digests(path, watched.stop).await?;
        self.remember_read(repository, path, stamp, &digests.sha256);
        let is_right = expected.mismatch(&digests).is_none();
        Ok(is_right.then_some(digests.sha256))
    }

    /// How long a file has to be, as the catalog states it or as its pull wrote it down.
    pub(super) fn known_size(
        &self,
        repository: &Repository,
        file: &SourceFile,
        path: &Path,
    ) -> Option<u64> {
        let recorded = || {
            let record = Record::read(&self.settings.records_dir, repository);
            let recorded = record.file(&file.path)?;
            let blob_name = cache::blob_name(path).unwrap_or_default();
            (recorded.etag == blob_name).then_some(recorded.size)
        };
        file.size_bytes.or_else(recorded)
    }

    /// The SHA-256 of a blob from its name, or else from the record of its pull.
    pub(super) fn known_hash(
        &self,
        repository: &Repository,
        file: &FilePath,
        blob_name: &str,
    ) -> Option<Sha256> {
        let recorded = || {
            let record = Record::read(&self.settings.records_dir, repository);
            let recorded = record.file(file)?;
            (recorded.etag == blob_name).then_some(recorded.sha256)
        };
        blob_name.parse().ok().or_else(recorded)
    }
}

impl Pull<'_> {
    /// The hashes from the catalog, the first pull and the hub, which must agree before any download and even if none
    /// is needed.
    pub fn expected(&self, wanted: &SourceFile, remote: &RemoteFile) -> Result<Expected, HubError> {
        let stated = wanted.sha256.clone().into_iter();
        let expected = Expected::new(&remote.etag, stated.chain(self.known(remote)));
        match expected.contradiction() {
            Some((found, wanted)) => Err(self.other_hash(remote, found, wanted)),
            None => Ok(expected),
        }
    }

    /// The SHA-256 of the blob, if it is on disk and has the hashes of [`Self::expected`].
    pub async fn is_here(
        &self,
        wanted: &SourceFile,
        expected: &Expected,
        remote: &RemoteFile,
        blob: &Path,
    ) -> Result<Option<Sha256>, HubError> {
        let found = blob.metadata().map(|metadata| metadata.len());
        if !found.is_ok_and(|found| found == remote.size) {
            return Ok(None);
        }
        let here = match &wanted.sha256 {
            Some(stated) if self.known(remote).is_none() => {
                self.as_stated(stated, remote, blob).await?
            }
            _ => {
                let repository = &self.source.repository;
                let hub = self.hub;
                hub.proven(repository, &remote.path, blob, expected, self.watched())
                    .await?
            }
        };
        if here.is_none() {
            self.line.progress.report(Event::Restarted {
                file: &remote.path,
                why: "the file on disk is damaged",
            });
        }
        Ok(here)
    }

    /// Reads the blob if the catalog states a hash that neither its name nor the record of its pull can confirm.
    async fn as_stated(
        &self,
        stated: &Sha256,
        remote: &RemoteFile,
        blob: &Path,
    ) -> Result<Option<Sha256>, HubError> {
        self.line
            .progress
            .report(Event::Verifying { file: &remote.path });
        let digests = self.digests(blob).await?;
        let is_right = digests.sha256 == *stated;
        if !is_right && digests.git_sha1.eq_ignore_ascii_case(&remote.etag) {
            return Err(self.other_hash(remote, digests.sha256, stated));
        }
        Ok(is_right.then_some(digests.sha256))
    }

    fn watched(&self) -> Watched<'_> {
        Watched {
            progress: self.line.progress,
            stop: self.line.stop,
        }
    }

    fn known(&self, remote: &RemoteFile) -> Option<Sha256> {
        let repository = &self.source.repository;
        self.hub.known_hash(repository, &remote.path, &remote.etag)
    }

    fn other_hash(
        &self,
        remote: &RemoteFile,
        found: impl ToString,
        wanted: impl ToString,
    ) -> HubError {
        let record = Record::read(&self.hub.settings.records_dir, &self.source.repository);
        HubError::OtherHash {
            file: remote.path.clone(),
            found: found.to_string(),
            wanted: wanted.to_string(),
            is_pinned: self.source.revision.is_none() && record.file(&remote.path).is_some(),
        }
    }

    pub async fn digests(&self, path: &Path) -> Result<Digests, HubError> {
        digests(path, self.line.stop).await
    }
}

async fn digests(path: &Path, stop: &CancellationToken) -> Result<Digests, HubError> {
    let read = tokio::task::spawn_blocking({
        let path = path.to_owned();
        move || digest::of_file(&path, &mut |_, _| {})
    });
    // When stopped, the reading thread is not awaited; its result is kept.
    let digests = tokio::select! {
        biased;
        () = stop.cancelled() => return Err(HubError::Stopped),
        digests = read => digests,
    };
    digests
        .unwrap_or_else(|error| Err(error.into()))
        .map_err(HubError::disk(path))
}
