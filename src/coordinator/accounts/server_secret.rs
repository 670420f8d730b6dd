//! The server secret, from which the digests of keys and the seals of shared keys and passkeys are derived. Stored
//! outside the database, which has only a check value of it, so a stolen database contains no usable key.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use tracing::{info, warn};

use crate::storage::{Location, SecretState, StorageError, Store, write_private};

use crate::values::Seal;
use crate::values::key::{self, Hasher};

/// Location of the secret.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// A file, created at the first start.
    File(PathBuf),
    /// The secret as configured by the operator.
    Given(String),
}

/// Why the server secret is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("reading the server secret from {} failed: {cause}", .file.display())]
    Unreadable { file: PathBuf, cause: String },
    #[error("writing the server secret to {} failed: {cause}", .file.display())]
    Unwritable { file: PathBuf, cause: String },
    #[error("the server secret has {0} characters, at least {SHORTEST} are required")]
    TooShort(usize),
    #[error(
        "{} is missing: the database needs the server secret of this file; restore the file, or name a copy in \
         serve.secret", .0.display()
    )]
    Missing(PathBuf),
    #[error(
        "the server secret in {0} does not match the database: restore the secret that the keys were created with"
    )]
    Other(SecretSource),
    #[error(
        "the database still holds the server secret of an earlier version, and {0} holds another one: move {0} away, \
         or start once without serve.secret, which writes the secret to a file"
    )]
    StillInDatabase(SecretSource),
}

/// Why the accounts cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

const SHORTEST: usize = 32;
const CHECKED: &str = "check of the server secret";
const IN_CLUSTER: &str = "requests between coordinators";
/// Name of the file in the data folder if the database is on a server.
const FILE: &str = "coordinator.secret";

impl SecretSource {
    /// The default file: beside the database file, else in the data folder.
    pub fn usual(location: &Location, data_dir: &Path) -> Self {
        Self::File(match location {
            Location::Sqlite(path) => {
                // Resolves links.
                let real = path.canonicalize().unwrap_or_else(|_| path.clone());
                let mut name = real.into_os_string();
                name.push(".secret");
                name.into()
            }
            Location::Postgres(_) => data_dir.join(FILE),
        })
    }

    fn text(&self, state: &SecretState) -> Result<String, SecretError> {
        let text = match self {
            Self::Given(text) => text.clone(),
            Self::File(file) => match read(file)? {
                Some(text) => text,
                None if state.check.is_some() && state.in_database.is_none() => {
                    return Err(SecretError::Missing(file.clone()));
                }
                None => make(file, state.in_database.clone())?,
            },
        };
        // A secret of an earlier version may be shorter.
        match text.len() < SHORTEST {
            true => Err(SecretError::TooShort(text.len())),
            false => Ok(text),
        }
    }
}

/// Loads the secret, or creates one for a new database; moves an earlier version's secret out of the database, and
/// seals plain secrets there.
pub async fn open(source: &SecretSource, store: &Store) -> Result<Hasher, OpenError> {
    let state = store.secret_state().await?;
    let text = source.text(&state)?;
    if state.in_database.as_ref().is_some_and(|kept| *kept != text) {
        return Err(SecretError::StillInDatabase(source.clone()).into());
    }
    let hasher = Hasher::new(&text);
    let check = hasher.digest(CHECKED).to_string();
    let known = store.adopt_secret(check.clone()).await?;
    if known != check {
        return Err(SecretError::Other(source.clone()).into());
    }
    if let SecretSource::File(file) = source {
        store.keep_file(file.clone(), text);
    }
    store.seal_rows(Seal::new(&hasher)).await?;
    if state.in_database.is_some() {
        store.forget_secret().await?;
        info!(
            "the server secret was moved from the database to {source}; delete database copies made by earlier \
             versions, which still hold it"
        );
    }
    Ok(hasher)
}

/// The shared secret of a cluster's coordinators. `check` is the check value in the database, if there is one yet.
pub fn cluster_secret(
    source: &SecretSource,
    check: Option<String>,
) -> Result<[u8; 32], SecretError> {
    let state = SecretState {
        check,
        in_database: None,
    };
    let hasher = Hasher::new(&source.text(&state)?);
    match state.check {
        Some(check) if check != hasher.digest(CHECKED).to_string() => {
            Err(SecretError::Other(source.clone()))
        }
        _ => Ok(hasher.digest(IN_CLUSTER).bytes()),
    }
}

fn read(file: &Path) -> Result<Option<String>, SecretError> {
    match fs::read_to_string(file) {
        Ok(text) => {
            warn_if_open(file);
            Ok(Some(text.trim().to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(SecretError::Unreadable {
            file: file.to_owned(),
            cause: cause.to_string(),
        }),
    }
}

fn warn_if_open(file: &Path) {
    let mode = fs::metadata(file).map(|metadata| metadata.permissions().mode());
    if mode.is_ok_and(|mode| mode & 0o077 != 0) {
        let file = file.display();
        warn!("other users of this machine can read the server secret: run chmod 600 {file}");
    }
}

/// Creates the file atomically and private; if another process was faster, its file counts.
fn make(file: &Path, text: Option<String>) -> Result<String, SecretError> {
    let text = text.unwrap_or_else(key::random_secret);
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(format!(".{}", key::random_public_id()));
    let fresh = PathBuf::from(fresh);
    let made = write(&fresh, &text).and_then(|()| fs::hard_link(&fresh, file));
    let _ = fs::remove_file(&fresh);
    match made {
        Ok(()) => Ok(text),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            read(file)?.ok_or_else(|| SecretError::Missing(file.to_owned()))
        }
        Err(cause) => Err(SecretError::Unwritable {
            file: file.to_owned(),
            cause: cause.to_string(),
        }),
    }
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    write_private(file, text)
}

/// Shows the place of the secret, not the secret.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(f),
            Self::Given(_) => f.write_str("serve.secret"),
        }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
