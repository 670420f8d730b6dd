//! Brings files here: resumable, verified, and shared with other programs.
//!
//! The cache has the layout of the Hugging Face tools, so that what they brought is found and what we bring is
//! found by them.

mod source;

pub use source::{BadName, FilePath, Repository, Revision, Sha256, Source, SourceFile};
