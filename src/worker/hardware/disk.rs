//! Room on a disk.

use std::io;
use std::path::Path;

use rustix::fs::Access;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    pub total_bytes: u64,
    /// Free space for unprivileged users.
    pub free_bytes: u64,
}

/// The disk of a path; for a path that does not exist, that of its nearest existing parent.
pub fn disk(path: &Path) -> io::Result<Disk> {
    let room = rustix::fs::statvfs(existing(path))?;
    Ok(Disk {
        total_bytes: room.f_blocks.saturating_mul(room.f_frsize),
        free_bytes: room.f_bavail.saturating_mul(room.f_frsize),
    })
}

/// Whether this process may write into a folder, or make it.
pub fn is_writable(folder: &Path) -> bool {
    let folder = existing(folder);
    folder.is_dir() && rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// The path itself, or the nearest folder above it that exists.
fn existing(path: &Path) -> &Path {
    let mut above = path.ancestors().filter(|path| !path.as_os_str().is_empty());
    above.find(|path| path.exists()).unwrap_or(Path::new("."))
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

    #[test]
    fn a_file_is_no_folder_to_write_into() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_writable(&folder.path().join("new")));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(!is_writable(&file) && !is_writable(&file.join("below")));
    }
}
