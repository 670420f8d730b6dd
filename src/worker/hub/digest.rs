//! Expected hashes of a file.
//!
//! The hub names large files by their SHA-256 and small ones by git's SHA-1. A mirror may use other names; then only a
//! hash from the catalog or from the first pull can verify the file.

use std::{fs::File, io, io::Read, path::Path};

use data_encoding::HEXLOWER;
use sha1::Sha1;
use sha2::{Digest, Sha256 as Sha256Hasher};

use super::source::Sha256;

/// Both names of the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digests {
    pub sha256: Sha256,
    pub git_sha1: String,
}

/// Hashes that a file has to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    pub sha256: Vec<Sha256>,
    pub git_sha1: Option<String>,
}

impl Expected {
    /// The hash in the name of a blob, and those known from elsewhere.
    pub fn new(etag: &str, known: impl IntoIterator<Item = Sha256>) -> Self {
        let mut expected = Self {
            sha256: known.into_iter().collect(),
            git_sha1: None,
        };
        let is_hex = etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        match (etag.parse(), etag.len()) {
            (Ok(sha256), _) => expected.sha256.push(sha256),
            (_, 40) if is_hex => expected.git_sha1 = Some(etag.to_ascii_lowercase()),
            _ => {}
        }
        expected
    }

    /// Whether any hash is known.
    pub fn is_known(&self) -> bool {
        !self.sha256.is_empty() || self.git_sha1.is_some()
    }

    /// Two different expected hashes: the later and the first one.
    pub fn contradiction(&self) -> Option<(String, String)> {
        let (first, rest) = self.sha256.split_first()?;
        let other = rest.iter().find(|other| *other != first)?;
        Some((other.to_string(), first.to_string()))
    }

    /// The first different hash: found and expected.
    pub fn mismatch(&self, digests: &Digests) -> Option<(String, String)> {
        let sha256 = self.sha256.iter().find(|wanted| **wanted != digests.sha256);
        let sha1 = self
            .git_sha1
            .as_ref()
            .filter(|wanted| **wanted != digests.git_sha1);
        sha256
            .map(|wanted| (digests.sha256.to_string(), wanted.to_string()))
            .or_else(|| sha1.map(|wanted| (digests.git_sha1.clone(), wanted.clone())))
    }
}

/// Reads the whole file; not for an async thread. `watched` gets the bytes read and the size.
pub fn of_file(path: &Path, watched: &mut dyn FnMut(u64, u64)) -> io::Result<Digests> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut done = 0;
    let mut sha256 = Sha256Hasher::new();
    let mut git_sha1 = Sha1::new();
    git_sha1.update(format!("blob {size}\0"));
    let mut buffer = vec![0; 1024 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => {
                sha256.update(&buffer[..count]);
                git_sha1.update(&buffer[..count]);
                done += count as u64;
                watched(done, size);
            }
        }
    }
    let sha256 = HEXLOWER
        .encode(&sha256.finalize())
        .parse()
        .map_err(io::Error::other)?;
    Ok(Digests {
        sha256,
        git_sha1: HEXLOWER.encode(&git_sha1.finalize()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_names_that_the_hub_and_git_give_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hello");
        std::fs::write(&path, "hello\n").unwrap();
        let mut told = Vec::new();
        let digests = of_file(&path, &mut |done, size| told.push((done, size))).unwrap();
        assert_eq!(told, [(6, 6)]);
        // `sha256sum` and `git hash-object` of the same bytes.
        let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let sha1 = "ce013625030ba8dba906f756967f9e9ca394464a";
        assert_eq!(digests.sha256.as_str(), sha256);
        assert_eq!(digests.git_sha1, sha1);
        assert_eq!(Expected::new(sha256, []).mismatch(&digests), None);
        assert_eq!(Expected::new(sha1, []).mismatch(&digests), None);
        let wrong = Expected::new(&"0".repeat(40), []).mismatch(&digests);
        assert_eq!(wrong, Some((sha1.to_owned(), "0".repeat(40))));
        assert!(!Expected::new("some-mirror-etag", []).is_known());
    }
}
