//! Everywhere a value may come from.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The environment variables, read once.
pub type Environment = BTreeMap<String, String>;

/// What a configuration is read from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    pub environment: Environment,
    pub flags: Vec<Flag>,
    /// What relative paths in variables and flags start from.
    pub folder: PathBuf,
}

/// A flag of the command line that stands for a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// As typed: `--offline`.
    pub name: &'static str,
    /// The setting, `section.key`.
    pub setting: &'static str,
    pub value: String,
}

impl Sources {
    /// A file, the environment of this process and its folder.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<Flag>) -> Self {
        // A variable that is no text cannot be one of ours.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            file,
            environment,
            flags,
            folder: std::env::current_dir().unwrap_or_default(),
        }
    }
}
