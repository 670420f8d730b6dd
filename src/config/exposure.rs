//! Secrets in files that every user of the machine can read.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file with secrets in it that others can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    pub file: PathBuf,
    /// The settings whose secrets the file contains.
    pub settings: Vec<String>,
}

impl Exposure {
    pub fn remedy(&self) -> String {
        format!("run `chmod 600 {}`", self.file.display())
    }
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, settings) = (self.file.display(), self.settings.join(", "));
        write!(
            f,
            "{file} holds {settings} and every user of this machine can read it"
        )
    }
}

pub fn is_readable_by_all(file: &Path) -> bool {
    let metadata = file.metadata();
    metadata.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o004 != 0)
}
