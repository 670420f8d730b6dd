//! Text to tokens and back: tokenizer, chat template, detokenization, stop strings.
//!
//! Everything here is pure once opened, and safe to use from any thread: prompts are prepared on the callers' threads,
//! and only tokens reach the inference thread.
//!
//! Tokenizers and templates of untrusted files run in a separate process (`isolated/`): a file can make them allocate
//! or recurse until the process ends.

mod clip;
mod detokenize;
mod embedded;
mod gguf;
mod isolated;
mod language;
mod output;
mod prompt;
mod stop;
mod template;
mod tokenizer;
mod unigram;

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use clip::ClipTokenizer;
pub use detokenize::{Begins, Detokenizer, Pieces};
pub use gguf::{Vocabulary, VocabularyKind};
pub use isolated::{Isolation, Limits as IsolationLimits, serve as serve_isolated};
pub use language::{EmbeddedText, Language, Reader, TextSource};
pub use output::{
    CHANNEL_MARKS, DEEPSEEK_CALL, DEEPSEEK_CALLS, DEEPSEEK_END_CALL, DEEPSEEK_SEPARATOR, JsonTypes,
    MISTRAL_ARGUMENTS, Markup, OfferedTool, OutputParser, ParameterTags, Piece, SPELLED_OUT,
    ToolMarkup,
};
pub use prompt::PromptTokenizer;
pub use stop::{MAX_STOP_BYTES, MAX_STOPS, StopStrings};
pub use template::ChatTemplate;
pub use tokenizer::Tokenizer;
pub use unigram::UnigramVocabulary;

/// Why a model's text side cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum TextError {
    #[error("{what} was not found")]
    Missing { what: String },
    #[error("reading {what} failed: {reason}")]
    Unreadable { what: String, reason: String },
    #[error("{what} is invalid: {reason}")]
    Broken { what: String, reason: String },
    #[error("{what}: found {found}; supported: {known}")]
    Unsupported {
        what: String,
        found: String,
        known: String,
    },
    /// The process that reads hostile files for us ended, or could not be started.
    #[error("the text process of {model} failed: {reason}")]
    Isolated { model: String, reason: String },
}

/// A pipe or a device is waited for without end.
fn check_regular(path: &Path) -> io::Result<()> {
    match fs::metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("not a regular file")),
    }
}

/// Reads a whole file, but none that is larger than a file of its kind can be.
fn read_bounded(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    check_regular(path)?;
    let mut bytes = Vec::new();
    // The length is checked while reading: a file may grow, and some report no length.
    File::open(path)?
        .take(most_bytes + 1)
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most_bytes {
        true => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("larger than {most_bytes} bytes"),
        )),
        false => Ok(bytes),
    }
}

impl TextError {
    pub fn broken(what: impl Display, reason: impl Display) -> Self {
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
            isolated @ Self::Isolated { .. } => isolated,
        }
    }
}
