//! Settings of downloads and retries.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use url::Url;

use super::budget::FilesInUse;

/// Settings of downloads. Never printed with the token.
#[derive(Clone)]
pub struct HubSettings {
    pub endpoint: Url,
    pub token: Option<String>,
    /// The folder with `models--organization--name` in it, shared with other programs.
    pub cache_dir: PathBuf,
    /// The folder of the records of first pulls.
    pub records_dir: PathBuf,
    /// Disables network access.
    pub offline: bool,
    /// Ranges of one file on their way at the same time.
    pub connections: usize,
    /// Bytes a second of all downloads together.
    pub bandwidth: Option<u64>,
    /// Bytes of all downloads on disk together.
    pub disk: Option<u64>,
    /// Files that stay where others leave for a new download.
    pub in_use: FilesInUse,
    /// The longest range of a request.
    pub piece_bytes: u64,
    pub patience: Patience,
}

/// How long a server may disappoint us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Limit of failures in a row without progress.
    pub attempts: u32,
    /// Before the first new attempt; doubled with every further one.
    pub first_wait: Duration,
    pub longest_wait: Duration,
    /// The longest delay of a server that is accepted.
    pub longest_ban: Duration,
    /// Time without data until a connection counts as broken.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 8,
            first_wait: Duration::from_millis(500),
            longest_wait: Duration::from_secs(30),
            longest_ban: Duration::from_secs(300),
            silence: Duration::from_secs(60),
        }
    }
}

impl HubSettings {
    /// The usual settings for a hub, the cache of the Hugging Face tools and our data folder; with the token of those
    /// tools, if they have one.
    pub fn new(endpoint: Url, cache_dir: PathBuf, data_dir: &Path) -> Self {
        Self {
            endpoint,
            token: hf_hub::Cache::new(cache_dir.clone()).token(),
            cache_dir,
            records_dir: data_dir.join("pulls"),
            offline: false,
            connections: 8,
            bandwidth: None,
            disk: None,
            in_use: FilesInUse::default(),
            piece_bytes: 32 * 1024 * 1024,
            patience: Patience::default(),
        }
    }
}

impl fmt::Debug for HubSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubSettings")
            .field("endpoint", &self.endpoint.as_str())
            .field("token", &self.token.as_ref().map(|_| "(hidden)"))
            .field("cache_dir", &self.cache_dir)
            .field("offline", &self.offline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_that_the_tools_keep_beside_their_cache_is_used_and_never_printed() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("token"), "from-file\n").unwrap();
        let endpoint = || "https://huggingface.co".parse().unwrap();
        let settings = HubSettings::new(endpoint(), home.path().join("hub"), home.path());
        assert_eq!(settings.token.as_deref(), Some("from-file"));
        assert!(!format!("{settings:?}").contains("from-file"));
        let without = HubSettings::new(endpoint(), home.path().join("other/hub"), home.path());
        assert_eq!(without.token, None);
    }
}
