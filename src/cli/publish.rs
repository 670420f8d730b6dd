//! Publishing a complete file under its name, replacing another one only on request.

use std::fs;
use std::io;
use std::path::Path;

use super::{Exit, Failure};

/// Whether a file may get this name later; looked at before the work of making it.
pub fn check(file: &Path, replace: bool) -> Result<(), Failure> {
    let is_something_else = fs::metadata(file).is_ok_and(|found| !found.is_file());
    if is_something_else {
        let message = format!("{} is not a regular file", file.display());
        return Err(Failure::new(Exit::CannotWrite, message));
    }
    // A link that leads nowhere has the name as well.
    match !replace && file.symlink_metadata().is_ok() {
        true => Err(exists(file)),
        false => Ok(()),
    }
}

/// Renames a complete draft to its target. A hard link fails if the target exists, even if another process has just
/// created it; then the draft keeps its own name besides.
pub fn publish(draft: &Path, file: &Path, replace: bool) -> Result<(), Failure> {
    if replace {
        return fs::rename(draft, file).map_err(|error| Failure::writing(file, &error));
    }
    match fs::hard_link(draft, file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(file)),
        // Some file systems have no links.
        Err(_) if !file.exists() => {
            fs::rename(draft, file).map_err(|error| Failure::writing(file, &error))
        }
        Err(error) => Err(Failure::writing(file, &error)),
        Ok(()) => Ok(()),
    }
}

fn exists(file: &Path) -> Failure {
    Failure::new(
        Exit::CannotWrite,
        format!("{} already exists", file.display()),
    )
    .hint("use --force to replace the file, or choose another name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_or_a_files_that_is_to_be_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [free, taken, nowhere] =
            ["free", "taken", "nowhere"].map(|name| folder.path().join(name));
        fs::write(&taken, "mine").unwrap();
        std::os::unix::fs::symlink("nothing", &nowhere).unwrap();
        assert!(check(&free, false).is_ok());
        for file in [&taken, &nowhere] {
            let failure = check(file, false).unwrap_err();
            assert_eq!(failure.exit(), Some(Exit::CannotWrite));
            assert!(failure.advice().unwrap().contains("--force"));
            assert!(check(file, true).is_ok());
        }
        for file in [folder.path(), Path::new("/dev/null")] {
            let failure = check(file, true).unwrap_err();
            assert!(
                failure.to_string().contains("is not a regular file"),
                "{failure}"
            );
        }
    }
}
