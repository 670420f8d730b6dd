//! The token of the owner's page, in a file that its owner alone may read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;

const FILE: &str = "page-token";
const BYTES: usize = 32;
/// Length of the bytes in base64.
const LENGTH: usize = 43;

/// The secret that opens the owner's page.
#[derive(Clone)]
pub struct PageToken(String);

impl PageToken {
    /// The token of this data folder. Creates a new one if none exists or other users could read the file.
    pub fn keep(data_dir: &Path) -> io::Result<Self> {
        if let Some(token) = Self::read(data_dir)? {
            return Ok(token);
        }
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let token = Self(BASE64_URL_SAFE_NO_PAD.encode(bytes));
        fs::create_dir_all(data_dir)?;
        let new = data_dir.join(format!("{FILE}.{}", std::process::id()));
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(token.0.as_bytes())?;
        fs::rename(&new, data_dir.join(FILE))?;
        Ok(token)
    }

    /// `None` if the file is missing or holds no valid token.
    pub fn read(data_dir: &Path) -> io::Result<Option<Self>> {
        let path = data_dir.join(FILE);
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if metadata.permissions().mode() & 0o077 != 0 {
            return Ok(None);
        }
        let text = fs::read_to_string(path)?;
        let text = text.trim();
        Ok((text.len() == LENGTH).then(|| Self(text.to_owned())))
    }

    /// Compares the token in constant time.
    pub fn is(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }

    /// The address of the page with the token in its fragment, which browsers send to no server.
    pub fn link(&self, url: &str) -> String {
        format!("{url}#token={}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_stays_and_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert!(PageToken::read(folder.path()).unwrap().is_none());
        let token = PageToken::keep(folder.path()).unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = PageToken::keep(folder.path()).unwrap();
        assert!(again.is(&token.0) && token.0.len() == LENGTH);
        assert!(!again.is("") && !again.is(&token.0[1..]) && !again.is(&"A".repeat(LENGTH)));
        assert_eq!(
            again.link("http://h/"),
            format!("http://h/#token={}", token.0)
        );
        // Others may have read it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let new = PageToken::keep(folder.path()).unwrap();
        assert!(!new.is(&token.0));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
