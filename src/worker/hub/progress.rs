//! Progress events of a pull.

use std::time::Duration;

use super::source::{FilePath, Repository};

/// An observer of progress. Called within the pull, so it must not block.
pub trait Progress: Send + Sync {
    fn report(&self, event: Event<'_>);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The bytes to download, and those already on disk.
    Planned {
        files: usize,
        wanted_bytes: u64,
        present_bytes: u64,
    },
    Started {
        file: &'a FilePath,
        size_bytes: u64,
        present_bytes: u64,
    },
    /// These bytes are on disk and will not be requested again.
    Received {
        file: &'a FilePath,
        bytes: u64,
    },
    /// The received bytes of the file are invalid.
    Restarted {
        file: &'a FilePath,
        why: &'a str,
    },
    /// The server failed or limits the rate.
    Waiting {
        what: &'a str,
        why: &'a str,
        wait: Duration,
    },
    /// Another process is bringing the same file.
    Locked {
        file: &'a FilePath,
    },
    Verifying {
        file: &'a FilePath,
    },
    Finished {
        file: &'a FilePath,
    },
    /// The least recently used files were removed to make space.
    Removed {
        repository: &'a Repository,
        files: &'a [FilePath],
        bytes: u64,
        /// In seconds since the epoch.
        last_used: i64,
    },
}

/// Ignores progress.
pub struct Unwatched;

impl Progress for Unwatched {
    fn report(&self, _: Event<'_>) {}
}
