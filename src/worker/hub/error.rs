//! Errors of pulls, with the found and the expected values.

use std::{io, path::PathBuf, time::Duration};

use super::source::{BadName, FilePath, Repository};

#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("removing {file} failed: another process is pulling it; stop that first")]
    InUse { file: FilePath },
    #[error("offline, but {what} is not in {}", .cache_dir.display())]
    Offline { what: String, cache_dir: PathBuf },
    #[error("{what} was not found on {host}{}", in_brackets(.said))]
    NotFound {
        what: String,
        host: String,
        said: Option<String>,
    },
    /// 401 and 403: gated, private, or misspelt, which the hub does not distinguish for unauthenticated users.
    #[error("{host} denied access to {what} {}{}", if *.had_token { "with this token: accept the model's terms on its page, or check the token's permissions" } else { "without a token: check the name, or accept the model's terms on its page and set HF_TOKEN" }, in_brackets(.said))]
    Denied {
        what: String,
        host: String,
        had_token: bool,
        said: Option<String>,
    },
    #[error("{host} limits the request rate; try again in {} s", .wait.as_secs())]
    TooManyRequests { host: String, wait: Duration },
    #[error("fetching {what} from {host} failed: {cause} (attempts: {attempts})")]
    Unreachable {
        what: String,
        host: String,
        cause: String,
        attempts: u32,
    },
    #[error("unexpected response from {host}: {what}")]
    BadAnswer { host: String, what: String },
    #[error("{file} kept changing on the hub during the download; try again later")]
    KeepsChanging { file: FilePath },
    #[error(
        "{file}: checksum mismatch: found {found}, expected {wanted}; the download was deleted"
    )]
    WrongHash {
        file: FilePath,
        found: String,
        wanted: String,
    },
    /// The hashes of the catalog and the hub differ, whether the file is on disk or not.
    #[error("{file} on the hub is another file: checksum {found}, expected {wanted}")]
    OtherHash {
        file: FilePath,
        found: String,
        wanted: String,
        /// An earlier pull has pinned the commit.
        is_pinned: bool,
    },
    #[error("{file} on the hub is another file: {found} bytes, expected {wanted}")]
    WrongSize {
        file: FilePath,
        found: u64,
        wanted: u64,
    },
    #[error(
        "not enough disk space in {}: {wanted} bytes needed, {free} free, {} missing", .folder.display(), .wanted.saturating_sub(*.free)
    )]
    NoRoom {
        folder: PathBuf,
        wanted: u64,
        free: u64,
    },
    #[error(
        "hub.disk allows {budget} bytes of downloads: {wanted} bytes needed, {staying} bytes stay on disk{}; raise hub.disk, \
         or remove models with `worker models rm`", in_use(.models)
    )]
    OverBudget {
        wanted: u64,
        budget: u64,
        /// Bytes of files that do not leave.
        staying: u64,
        models: Vec<String>,
    },
    #[error("writing {} failed: {}; {wanted} bytes left to download, {} free; the next pull resumes", .path.display(), in_words(.cause), free_words(.free))]
    CannotWrite {
        path: PathBuf,
        cause: io::Error,
        wanted: u64,
        free: Option<u64>,
    },
    #[error("{}: {}", .path.display(), in_words(.cause))]
    Disk { path: PathBuf, cause: io::Error },
    #[error("{0}")]
    BadName(#[from] BadName),
    #[error("{repository} has several models: {}; choose one with {repository}:FILE", list(.files))]
    WhichFile {
        repository: Repository,
        files: Vec<String>,
    },
    #[error(
        "{repository} has no supported files (.safetensors with config.json and tokenizer.json, or .gguf)"
    )]
    NothingUsable { repository: Repository },
    #[error("stopped; partial files are kept and the next pull resumes")]
    Stopped,
}

impl HubError {
    pub(super) fn disk(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Disk { path, cause }
    }
}

fn list(files: &[String]) -> String {
    match files.len() {
        0..=12 => files.join(", "),
        more => format!("{} and {} more", files[..12].join(", "), more - 12),
    }
}

fn in_use(models: &[String]) -> String {
    match models {
        [] => String::new(),
        models => format!(" (models in use: {})", list(models)),
    }
}

fn in_brackets(words: &Option<String>) -> String {
    words
        .as_ref()
        .map(|words| format!(" ({words})"))
        .unwrap_or_default()
}

/// An operating system's error without its number and its capital.
fn in_words(cause: &io::Error) -> String {
    let text = cause.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

fn free_words(free: &Option<u64>) -> String {
    free.map_or_else(|| "unknown".to_owned(), |free| free.to_string())
}
