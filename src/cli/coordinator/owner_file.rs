//! The configuration file of `worker up` without `--config`: it holds the rules that the owner's page changes, in the data
//! folder.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tracing::warn;

use crate::cli::Root;

const FILE: &str = "owner.toml";
const HEADING: &str = "\
# Rules of `worker up` without --config, which the owner's page changes. With --config they are those of that file.
[owner]
";

/// The same options with the file of the data folder, unless `--config` names another one.
pub fn with_owner_file(root: &Root, data_dir: &Path) -> Root {
    let mut root = root.clone();
    if root.config.is_none() {
        root.config = kept(data_dir);
    }
    root
}

/// `None` if the file cannot be written: the page then cannot change rules.
fn kept(data_dir: &Path) -> Option<PathBuf> {
    let file = data_dir.join(FILE);
    let written = std::fs::create_dir_all(data_dir).and_then(|()| {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)?;
        file.write_all(HEADING.as_bytes())
    });
    match written {
        Ok(()) => Some(file),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Some(file),
        Err(error) => {
            let file = file.display();
            warn!("writing {file} failed, the owner's page cannot change rules: {error}");
            None
        }
    }
}
