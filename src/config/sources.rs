//! Everywhere a value may come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The environment variables, read once.
pub type Environment = BTreeMap<String, String>;

/// The sources of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    pub file: Option<PathBuf>,
    pub environment: Environment,
    pub flags: Vec<Flag>,
    /// The folder for relative paths in variables and flags.
    pub folder: PathBuf,
}

/// A command-line flag for a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// As typed: `--offline`.
    pub name: &'static str,
    /// The setting, `section.key`.
    pub setting: &'static str,
    pub value: String,
}

const HOME: &str = "HOME";
/// The home folder of users without one.
const SERVICES: &str = "/var/lib/muster";

/// The home folder in the user database.
fn home_of_user() -> String {
    let home = std::env::home_dir().filter(|home| home.is_dir() && home != Path::new("/"));
    let home = home.and_then(|home| home.into_os_string().into_string().ok());
    home.unwrap_or_else(|| SERVICES.to_owned())
}

impl Sources {
    /// A file, the environment of this process and its folder. Services may run without HOME: then the user database
    /// has their home folder, or else a common one is used.
    pub fn of_process(file: Option<PathBuf>, flags: Vec<Flag>) -> Self {
        // A variable that is no text cannot be one of ours.
        let mut environment: Environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        if environment.get(HOME).is_none_or(String::is_empty) {
            environment.insert(HOME.to_owned(), home_of_user());
        }
        Self {
            file,
            environment,
            flags,
            folder: std::env::current_dir().unwrap_or_default(),
        }
    }
}
