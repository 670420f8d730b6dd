//! Sources of downloads: files of one repository at one revision.
//!
//! All names are validated on construction, so that a name from a catalog, a command line or a server never leads out
//! of a folder. Only data files are allowed: weights as safetensors or GGUF, and their text files.

use std::{fmt, str::FromStr};

/// Files of one repository, which are only of use together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub repository: Repository,
    /// `None`: the commit recorded at the first pull, and before that the newest of `main`.
    pub revision: Option<Revision>,
    pub files: Vec<SourceFile>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    pub path: FilePath,
    pub size_bytes: Option<u64>,
    pub sha256: Option<Sha256>,
}

impl From<FilePath> for SourceFile {
    fn from(path: FilePath) -> Self {
        Self {
            path,
            size_bytes: None,
            sha256: None,
        }
    }
}

/// A name that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadName(String);

/// `organization/name` on the hub.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Repository(String);

impl FromStr for Repository {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let wanted = || {
            BadName(format!(
                "invalid repository {text:?}: expected organization/name"
            ))
        };
        let (organization, name) = text.split_once('/').ok_or_else(wanted)?;
        match is_plain(organization) && is_plain(name) {
            true => Ok(Self(text.to_owned())),
            false => Err(wanted()),
        }
    }
}

/// A branch, a tag or a commit of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision(String);

impl Revision {
    pub fn main() -> Self {
        Self("main".to_owned())
    }

    /// Whether this names one state of the repository for ever.
    pub fn is_commit(&self) -> bool {
        self.0.len() == 40 && self.0.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl FromStr for Revision {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        match text.split('/').all(is_plain) {
            true => Ok(Self(text.to_owned())),
            false => Err(BadName(format!(
                "invalid revision {text:?}: expected a branch, a tag or a commit"
            ))),
        }
    }
}

/// The path of a file inside its repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FilePath(String);

impl FilePath {
    /// Whether the file holds tensors.
    pub fn is_weights(&self) -> bool {
        self.has_extension(&["safetensors", "gguf"])
    }

    pub fn is_gguf(&self) -> bool {
        self.has_extension(&["gguf"])
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Whether files of this type may be downloaded: tensors and text, nothing executable or pickled.
    fn is_data(&self) -> bool {
        self.is_weights()
            || self.has_extension(&["json", "txt", "jinja"])
            || self.name() == "tokenizer.model"
    }

    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.name()
            .rsplit_once('.')
            .is_some_and(|(_, found)| extensions.contains(&found.to_ascii_lowercase().as_str()))
    }
}

impl FromStr for FilePath {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let path = Self(text.to_owned());
        if !text.split('/').all(is_plain) {
            return Err(BadName(format!(
                "invalid file {text:?}: expected a path such as folder/file.gguf"
            )));
        }
        match path.is_data() {
            true => Ok(path),
            false => Err(BadName(format!(
                "unsupported file {text:?}: expected .safetensors, .gguf, .json, .txt, .jinja or tokenizer.model"
            ))),
        }
    }
}

/// The SHA-256 of a file's bytes, as 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sha256(String);

impl FromStr for Sha256 {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        match text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => Ok(Self(text.to_ascii_lowercase())),
            false => Err(BadName(format!(
                "invalid SHA-256 {text:?}: expected 64 hexadecimal digits"
            ))),
        }
    }
}

macro_rules! as_text {
    ($($name:ty),+) => {$(
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

as_text!(Repository, Revision, FilePath, Sha256);

/// Whether a path component is a plain name on every file system.
fn is_plain(part: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+= ".contains(&byte);
    !part.is_empty() && !part.starts_with('.') && part.len() <= 200 && part.bytes().all(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: FromStr>(text: &str, expected: bool) {
        assert_eq!(text.parse::<T>().is_ok(), expected, "{text:?}");
    }

    #[test]
    fn a_repository_has_an_organization_and_a_name() {
        check::<Repository>("Qwen/Qwen3-0.6B", true);
        for wrong in [
            "", "Qwen", "/Qwen", "Qwen/", "a/b/c", "../b", "a/..", "a/b\n", "a\\b/c",
        ] {
            check::<Repository>(wrong, false);
        }
    }

    #[test]
    fn a_file_stays_inside_its_repository() {
        check::<FilePath>("model.safetensors", true);
        check::<FilePath>("onnx/deep/config.json", true);
        for wrong in [
            "/config.json",
            "../config.json",
            "a/../b.json",
            "a//b.json",
            ".git/x.json",
        ] {
            check::<FilePath>(wrong, false);
        }
    }

    #[test]
    fn nothing_that_runs_code_is_ever_named() {
        for wrong in [
            "pytorch_model.bin",
            "model.pt",
            "model.pkl",
            "modeling_x.py",
            "run",
            "x.model",
        ] {
            check::<FilePath>(wrong, false);
        }
        check::<FilePath>("tokenizer.model", true);
        check::<FilePath>("chat_template.jinja", true);
    }

    #[test]
    fn a_revision_is_a_name_and_a_commit_is_known_by_its_digits() {
        check::<Revision>("refs/pr/1", true);
        check::<Revision>("../../etc", false);
        let commit: Revision = "bc640142c66e1fdd12af0bd68f40445458f3869b".parse().unwrap();
        assert!(commit.is_commit());
        assert!(!Revision::main().is_commit());
    }

    #[test]
    fn a_hash_is_kept_in_lower_case() {
        let hash: Sha256 = "AB".repeat(32).parse().unwrap();
        assert_eq!(hash.as_str(), "ab".repeat(32));
        check::<Sha256>("abcd", false);
    }
}
