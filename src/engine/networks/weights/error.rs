//! Why a checkpoint cannot be used, with a variant for each thing a caller would do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The path has no model.
    #[error("{}: {found}; expected {wanted}", .path.display())]
    NotFound {
        path: PathBuf,
        found: String,
        wanted: String,
    },
    /// The system refused access to an existing file.
    #[error("reading {} failed: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    /// A format that we never open.
    #[error("{}: {reason}", .path.display())]
    Refused { path: PathBuf, reason: String },
    /// The file contradicts itself or its own length.
    #[error("{}: {what}: found {found}, expected {wanted}", .path.display())]
    Broken {
        path: PathBuf,
        what: String,
        found: String,
        wanted: String,
    },
    /// The file is valid but needs an unsupported feature.
    #[error("{}: {what}: found {found}; supported: {known}", .path.display())]
    Unsupported {
        path: PathBuf,
        what: String,
        found: String,
        known: String,
    },
    /// The device or its memory failed.
    #[error("{}: copying to the device failed: {source}", .path.display())]
    Device {
        path: PathBuf,
        source: candle_core::Error,
    },
}

impl CheckpointError {
    /// For clients, who must not see the owner's folders: keeps only the file name.
    #[must_use]
    pub fn without_folder(mut self) -> Self {
        let (Self::NotFound { path, .. }
        | Self::Unreadable { path, .. }
        | Self::Refused { path, .. }
        | Self::Broken { path, .. }
        | Self::Unsupported { path, .. }
        | Self::Device { path, .. }) = &mut self;
        if let Some(name) = path.file_name() {
            *path = name.into();
        }
        self
    }
}

/// An error in a file whose path is not known yet.
#[derive(Debug)]
pub enum Flaw {
    Broken {
        what: String,
        found: String,
        wanted: String,
    },
    Unsupported {
        what: String,
        found: String,
        known: String,
    },
    Device(candle_core::Error),
}

impl Flaw {
    pub fn broken(
        what: impl Into<String>,
        found: impl ToString,
        wanted: impl Into<String>,
    ) -> Self {
        Self::Broken {
            what: what.into(),
            found: found.to_string(),
            wanted: wanted.into(),
        }
    }

    pub fn unsupported(
        what: impl Into<String>,
        found: impl ToString,
        known: impl Into<String>,
    ) -> Self {
        Self::Unsupported {
            what: what.into(),
            found: found.to_string(),
            known: known.into(),
        }
    }

    pub fn in_file(self, path: &Path) -> CheckpointError {
        let path = path.to_owned();
        match self {
            Self::Broken {
                what,
                found,
                wanted,
            } => CheckpointError::Broken {
                path,
                what,
                found,
                wanted,
            },
            Self::Unsupported { what, found, known } => CheckpointError::Unsupported {
                path,
                what,
                found,
                known,
            },
            Self::Device(source) => CheckpointError::Device { path, source },
        }
    }
}

/// Settings of a network are small: larger ones would overflow before a tensor is missed.
const MOST_SETTING: usize = 1 << 20;

/// A number of a configuration that sizes are computed from.
pub fn sized(name: &str, value: usize) -> Result<usize, Flaw> {
    match (1..=MOST_SETTING).contains(&value) {
        true => Ok(value),
        false => Err(Flaw::broken(name, value, format!("1 to {MOST_SETTING}"))),
    }
}

/// The deepest networks that people publish have some hundred layers.
const MOST_LAYERS: usize = 1024;

/// Checks a number of layers, before anything is allocated per layer.
pub fn layered(name: &str, value: usize) -> Result<usize, Flaw> {
    match (1..=MOST_LAYERS).contains(&value) {
        true => Ok(value),
        false => Err(Flaw::broken(name, value, format!("1 to {MOST_LAYERS}"))),
    }
}

impl From<candle_core::Error> for Flaw {
    fn from(error: candle_core::Error) -> Self {
        Self::Device(error)
    }
}
