//! Errors of a configuration.

use std::fmt;
use std::path::PathBuf;

/// An error and its place: `worker.toml:4` or `MUSTER_ENGINE_THREADS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub place: String,
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// The reason why no configuration could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {file}: {cause}", file = .file.display())]
    Unreadable {
        file: PathBuf,
        cause: std::io::Error,
    },
    /// All of them, in the order of the file.
    #[error("{}", list(.0))]
    Wrong(Vec<Problem>),
}

fn list(problems: &[Problem]) -> String {
    match problems {
        [only] => only.to_string(),
        many => {
            let lines: String = many
                .iter()
                .map(|problem| format!("\n  {problem}"))
                .collect();
            format!("the configuration has {} errors:{lines}", many.len())
        }
    }
}
