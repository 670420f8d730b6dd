//! The folder that tools may read and write, which neither `..` nor links can leave.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// No file that a tool reads is larger.
pub const MOST_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub struct Folder {
    /// Without links.
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{} is not a folder: {error}", path.display())]
    NoFolder { path: PathBuf, error: io::Error },
    #[error("{name} is outside the shared folder {}; name a file in it", root.display())]
    Outside { name: String, root: PathBuf },
    #[error("{name} in {} could not be read: {error}", root.display())]
    Unreadable {
        name: String,
        root: PathBuf,
        error: io::Error,
    },
    #[error("{name} has {bytes} bytes; files may have {MOST_BYTES} at most")]
    TooLarge { name: String, bytes: u64 },
    #[error("{} could not be written: {error}", path.display())]
    Unwritable { path: PathBuf, error: io::Error },
}

impl Folder {
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let root = fs::canonicalize(path).and_then(|root| match root.is_dir() {
            true => Ok(root),
            false => Err(io::ErrorKind::NotADirectory.into()),
        });
        let root = root.map_err(|error| FolderError::NoFolder {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self { root })
    }

    /// The bytes of a file, by its path in the folder or its whole path.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, FolderError> {
        let unreadable = |error| FolderError::Unreadable {
            name: name.to_owned(),
            root: self.root.clone(),
            error,
        };
        let path = fs::canonicalize(self.root.join(name)).map_err(unreadable)?;
        if !path.starts_with(&self.root) {
            return Err(FolderError::Outside {
                name: name.to_owned(),
                root: self.root.clone(),
            });
        }
        // A pipe or a device would be waited for.
        if !path.is_file() {
            return Err(unreadable(io::Error::other("it is not a file")));
        }
        let file = File::open(&path).map_err(unreadable)?;
        let bytes = file.metadata().map_err(unreadable)?.len();
        if bytes > MOST_BYTES {
            let name = name.to_owned();
            return Err(FolderError::TooLarge { name, bytes });
        }
        let mut content = Vec::with_capacity(bytes as usize);
        file.take(MOST_BYTES)
            .read_to_end(&mut content)
            .map_err(unreadable)?;
        Ok(content)
    }

    /// Writes a new file, and returns its path.
    pub fn write(&self, stem: &str, extension: &str, bytes: &[u8]) -> Result<PathBuf, FolderError> {
        let id = Uuid::new_v4().simple().to_string();
        let path = self.root.join(format!("{stem}-{}.{extension}", &id[..8]));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        file.and_then(|mut file| file.write_all(bytes))
            .map_err(|error| FolderError::Unwritable {
                path: path.clone(),
                error,
            })?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::Folder;

    #[test]
    fn nothing_outside_is_read() {
        let around = tempfile::tempdir().unwrap();
        let shared = around.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::write(around.path().join("secret"), "s").unwrap();
        fs::write(shared.join("inside"), "i").unwrap();
        symlink(around.path().join("secret"), shared.join("link")).unwrap();
        let folder = Folder::open(&shared).unwrap();
        assert_eq!(folder.read("inside").unwrap(), b"i");
        let whole = shared.join("inside");
        assert_eq!(folder.read(whole.to_str().unwrap()).unwrap(), b"i");
        for name in [
            "../secret",
            "link",
            "/etc/hostname",
            "./../shared/../secret",
        ] {
            let error = folder.read(name).unwrap_err().to_string();
            assert!(error.contains("outside the shared folder"), "{error}");
        }
        let error = folder.read("absent").unwrap_err().to_string();
        assert!(error.starts_with("absent in "), "{error}");
        let error = folder.read(".").unwrap_err().to_string();
        assert!(error.ends_with("it is not a file"), "{error}");
    }

    #[test]
    fn no_file_is_written_over() {
        let shared = tempfile::tempdir().unwrap();
        let folder = Folder::open(shared.path()).unwrap();
        let first = folder.write("image", "png", b"1").unwrap();
        let second = folder.write("image", "png", b"2").unwrap();
        assert_ne!(first, second);
        assert_eq!(fs::read(first).unwrap(), b"1");
        assert!(Folder::open(&second).is_err());
    }
}
