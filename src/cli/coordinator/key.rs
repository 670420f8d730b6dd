//! The key of `worker up`: created at its first start, stored beside the database, readable by its owner only.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::cli::Failure;
use crate::coordinator::Coordinator;

const FILE: &str = "up.key";

/// The key of the last start while it is good, else a new one.
pub async fn of_this_machine(
    data_dir: &Path,
    coordinator: &Coordinator,
) -> Result<String, Failure> {
    let file = data_dir.join(FILE);
    if let Some(first) = coordinator.first_key() {
        keep(&file, first)?;
        return Ok(first.to_owned());
    }
    if let Some(kept) = read(&file)?
        && coordinator.accounts().authenticate(&kept).await.is_ok()
    {
        return Ok(kept);
    }
    let key = coordinator.new_admin_key("worker up").await?;
    keep(&file, key.text.expose())?;
    Ok(key.text.expose().to_owned())
}

/// The key of a `worker up` that runs.
pub fn kept(data_dir: &Path) -> Result<Option<String>, Failure> {
    read(&data_dir.join(FILE))
}

fn read(file: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::reading(file, &error)),
    }
}

/// Written whole or not at all, and never readable by others in between.
fn keep(file: &PathBuf, key: &str) -> Result<(), Failure> {
    let fresh = file.with_extension("key.new");
    let write = || {
        let _ = fs::remove_file(&fresh);
        let mut open = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        writeln!(open, "{key}")?;
        open.sync_all()?;
        fs::rename(&fresh, file)
    };
    write().map_err(|error: io::Error| Failure::writing(file, &error))
}
