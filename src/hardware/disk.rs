//! Room on a disk.

use std::io;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub total_bytes: u64,
    /// What an ordinary user may still write.
    pub free_bytes: u64,
}

/// The disk that holds a path, or that would hold it: what does not exist yet is asked of the folder above.
pub fn disk(path: &Path) -> io::Result<Disk> {
    let existing = path
        .ancestors()
        .find(|path| path.exists())
        .unwrap_or(Path::new("."));
    let existing = if existing.as_os_str().is_empty() {
        Path::new(".")
    } else {
        existing
    };
    let room = rustix::fs::statvfs(existing)?;
    Ok(Disk {
        total_bytes: room.f_blocks.saturating_mul(room.f_frsize),
        free_bytes: room.f_bavail.saturating_mul(room.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_does_not_exist_yet_is_on_the_disk_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();
        let disk = disk(&folder.path().join("not/yet")).unwrap();
        assert!(disk.total_bytes > 0 && disk.free_bytes <= disk.total_bytes);
    }

    #[test]
    fn a_relative_path_is_on_the_disk_of_this_folder() {
        assert!(disk(Path::new("no-such-thing")).unwrap().total_bytes > 0);
    }
}
