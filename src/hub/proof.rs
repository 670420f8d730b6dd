//! What is known of a file's bytes: which hash it has to have, and whether what is here has it.
//!
//! The hub names large files by their SHA-256, and the blob's name is then proof enough. Of other names only the record
//! of the first pull tells the SHA-256, and where there is none the bytes have to be read.

use std::{fs, io, path::Path};

use super::{
    Hub, cache,
    digest::{self, Digests, Expected},
    error::HubError,
    progress::Event,
    pull::Pull,
    record::{self, Record, Stamp},
    remote::RemoteFile,
    source::{FilePath, Repository, Sha256, Source, SourceFile},
};

impl Hub {
    /// Reads the file where nobody ever said what its hash is.
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

    /// The SHA-256 of a file's bytes, which are read once for as long as nobody writes them.
    fn read_hash(&self, repository: &Repository, path: &Path) -> io::Result<Sha256> {
        let records_dir = &self.settings.records_dir;
        let path = fs::canonicalize(path)?;
        let stamp = Stamp::of(&path)?;
        if let Some(known) = Record::read(records_dir, repository).hash_read(&path, stamp) {
            return Ok(known);
        }
        let sha256 = digest::of_file(&path, &mut |_, _| {})?.sha256;
        // Where nothing can be recorded it is read again.
        let _ = record::add_read(records_dir, repository, &path, stamp, &sha256);
        Ok(sha256)
    }

    /// The SHA-256 of a blob as its name tells it or, where that is another one, as its pull wrote it down.
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
    /// The hashes that the catalog, the first pull and the hub itself say. They must agree before a byte comes, and
    /// also when none is to come.
    pub fn expected(&self, wanted: &SourceFile, remote: &RemoteFile) -> Result<Expected, HubError> {
        let stated = wanted.sha256.clone().into_iter();
        let expected = Expected::new(&remote.etag, stated.chain(self.known(remote)));
        match expected.contradiction() {
            Some((found, wanted)) => Err(self.other_hash(remote, found, wanted)),
            None => Ok(expected),
        }
    }

    /// Whether the blob is here, its hash being no other than [`Self::expected`]. It is read where the catalog states
    /// one and neither the blob's name nor the record of its pull tells what it has.
    pub async fn is_here(
        &self,
        wanted: &SourceFile,
        remote: &RemoteFile,
        blob: &Path,
    ) -> Result<bool, HubError> {
        let has_size = blob
            .metadata()
            .is_ok_and(|metadata| metadata.len() == remote.size);
        let stated = match &wanted.sha256 {
            Some(stated) if has_size && self.known(remote).is_none() => stated,
            _ => return Ok(has_size),
        };
        self.line
            .progress
            .report(Event::Verifying { file: &remote.path });
        let digests = self.digests(blob).await?;
        if digests.sha256 == *stated {
            return Ok(true);
        }
        if digests.git_sha1.eq_ignore_ascii_case(&remote.etag) {
            return Err(self.other_hash(remote, digests.sha256, stated));
        }
        self.line.progress.report(Event::Restarted {
            file: &remote.path,
            why: "what was here of it is spoilt",
        });
        Ok(false)
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
        let read = tokio::task::spawn_blocking({
            let path = path.to_owned();
            move || digest::of_file(&path, &mut |_, _| {})
        });
        // Nobody waits for the reader when it is stopped; what it reads stays.
        let digests = tokio::select! {
            biased;
            () = self.line.stop.cancelled() => return Err(HubError::Stopped),
            digests = read => digests,
        };
        digests
            .unwrap_or_else(|error| Err(error.into()))
            .map_err(HubError::disk(path))
    }
}
