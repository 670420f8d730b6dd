//! Between people's text and a model's tokens: tokenizer, chat template, decoding, stop strings.
//!
//! Everything here is pure once opened, and safe to use from any thread: prompts are prepared where requests
//! come from, and only tokens reach the inference thread.

mod detokenize;
mod embedded;
mod gguf;
mod language;
mod output;
mod stop;
mod template;
mod tokenizer;

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::Path;

pub use detokenize::{Begins, Detokenizer, Pieces};
pub use gguf::{Vocabulary, VocabularyKind};
pub use language::{EmbeddedText, Language, TextSource};
pub use output::{Markup, OutputParser, Piece, ToolMarkup};
pub use stop::{MAX_STOP_BYTES, MAX_STOPS, StopStrings};
pub use template::ChatTemplate;
pub use tokenizer::Tokenizer;

/// Why a model's text side cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TextError {
    #[error("{what} was not found")]
    Missing { what: String },
    #[error("{what} cannot be read: {reason}")]
    Unreadable { what: String, reason: String },
    #[error("{what} is broken: {reason}")]
    Broken { what: String, reason: String },
    #[error("{what}: found {found}, and this program knows {known}")]
    Unsupported {
        what: String,
        found: String,
        known: String,
    },
}

/// A pipe or a device is waited for without end.
fn check_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

impl TextError {
    fn broken(what: impl Display, reason: impl Display) -> Self {
        Self::Broken {
            what: what.to_string(),
            reason: reason.to_string(),
        }
    }

    fn unreadable(path: &Path, error: &io::Error) -> Self {
        let what = path.display().to_string();
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing { what },
            _ => Self::Unreadable {
                what,
                reason: error.to_string(),
            },
        }
    }

    fn in_file(self, path: &Path) -> Self {
        let place = |what: String| format!("{}: {what}", path.display());
        match self {
            Self::Missing { what } => Self::Missing { what: place(what) },
            Self::Unreadable { what, reason } => Self::Unreadable {
                what: place(what),
                reason,
            },
            Self::Broken { what, reason } => Self::Broken {
                what: place(what),
                reason,
            },
            Self::Unsupported { what, found, known } => Self::Unsupported {
                what: place(what),
                found,
                known,
            },
        }
    }
}
