//! Room on the disk.

use std::{io, path::Path};

use super::error::HubError;

/// Bytes that this user may still write to the file system of a path, or of its nearest folder that exists.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let existing = path.ancestors().find(|folder| folder.exists());
    let stat = rustix::fs::statvfs(existing.unwrap_or(Path::new(".")))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Fails early if the disk has too little free space.
pub fn check_room(folder: &Path, wanted: u64) -> Result<(), HubError> {
    match free_bytes(folder) {
        Ok(free) if free < wanted => Err(HubError::NoRoom {
            folder: folder.to_owned(),
            wanted,
            free,
        }),
        // A file system that does not report its free space may still have some.
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_end_is_refused_with_the_arithmetic() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("not/yet/there");
        assert!(check_room(&deep, 1).is_ok());
        let error = check_room(&deep, u64::MAX).unwrap_err().to_string();
        assert!(
            error.contains("18446744073709551615 bytes needed"),
            "{error}"
        );
        assert!(error.contains("missing"), "{error}");
    }
}
