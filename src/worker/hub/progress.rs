//! What a pull tells whoever watches it.

use std::time::Duration;

use super::source::{FilePath, Repository};

/// Somebody who watches. Called from within the pull, so it must not block.
pub trait Progress: Send + Sync {
    fn report(&self, event: Event<'_>);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// So much is to come, and so much was here already.
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
    /// These bytes are written down and will not be asked for again.
    Received {
        file: &'a FilePath,
        bytes: u64,
    },
    /// What was here of the file is worth nothing.
    Restarted {
        file: &'a FilePath,
        why: &'a str,
    },
    /// The server failed or asked for patience.
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
    /// Files that were not used for the longest time have left, for the room of others.
    Removed {
        repository: &'a Repository,
        files: &'a [FilePath],
        bytes: u64,
        /// In seconds since the epoch.
        last_used: i64,
    },
}

/// Nobody watches.
pub struct Unwatched;

impl Progress for Unwatched {
    fn report(&self, _: Event<'_>) {}
}
