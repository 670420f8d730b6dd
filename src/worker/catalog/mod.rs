//! The catalog of models: reads `models/*.toml`, with the models' public names, sources of weights and requirements.
//!
//! The entries of this repository are embedded in the program; a folder of the owner adds more and replaces those with
//! the same id. Small models may be part of the program itself. Nothing here uses the network or opens weights.

mod builtin;
mod complete;
mod component;
mod embedded;
mod entry;
mod file;
mod keys;
mod kinds;
mod names;

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
};

pub use component::{Component, EntrySource};
pub use embedded::{Embedded, UnpackError};
pub use entry::{Entry, Family, Names, Source, UnknownQuantization};
pub use file::IMAGE_INDEX;
pub use keys::likeness;
pub use kinds::{
    ComposingDefaults, Defaults, DrawingDefaults, EmbeddingFacts, Facts, FilmingDefaults,
    ImageFacts, KINDS, MusicFacts, RankingFacts, Shape, SpeechFacts, TextFacts, TranscriptionFacts,
    VideoFacts, kind_named,
};
pub use muster_protocol::job::Kind;
pub use names::{AmbiguousModel, FindError, UnknownModel};

/// All models known to this program.
#[derive(Debug, Clone)]
pub struct Catalog {
    entries: Vec<Entry>,
}

/// The words for quantizations that an entry may use.
pub fn quantizations() -> impl Iterator<Item = &'static str> {
    entry::QUANTIZATIONS.iter().map(|(word, _)| *word)
}

/// An entry that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("listing the models in {folder} failed: {cause}", folder = .folder.display())]
    Folder {
        folder: PathBuf,
        cause: std::io::Error,
    },
    #[error("{place}: {what}")]
    Entry { place: String, what: String },
    #[error("the name {name} is used by both {first} and {second}; rename one")]
    SharedName {
        name: String,
        first: String,
        second: String,
    },
}

impl Catalog {
    /// The models this program was built with.
    pub fn builtin() -> Result<Self, CatalogError> {
        Self::open(None)
    }

    /// The built-in entries, and those of the owner's folder.
    pub fn open(extra: Option<&Path>) -> Result<Self, CatalogError> {
        let mut entries = BTreeMap::new();
        for (file, text) in builtin::ENTRIES {
            let entry = read_entry(&format!("models/{file}"), text, None)?;
            entries.insert(entry.id.clone(), entry);
        }
        for path in extra.map(toml_files).transpose()?.unwrap_or_default() {
            let entry = open_entry(&path)?;
            entries.insert(entry.id.clone(), entry);
        }
        let mut entries: Vec<Entry> = entries.into_values().collect();
        names::refuse_shared(&entries)?;
        component::resolve(&mut entries)?;
        Ok(Self { entries })
    }

    /// Every entry, by id.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The model with this id or one of these names, in any case where that leaves one model.
    pub fn find(&self, name: &str) -> Result<&Entry, FindError> {
        names::find(&self.entries, name)
    }

    /// Like `find`, of `NAME` or `NAME:QUANTIZATION`; the quantization is `None` when none was named.
    pub fn find_with_quantization<'a>(
        &self,
        name: &'a str,
    ) -> Result<(&Entry, Option<&'a str>), FindError> {
        match name.rsplit_once(':') {
            Some((model, quantization)) => Ok((self.find(model)?, Some(quantization))),
            None => Ok((self.find(name)?, None)),
        }
    }
}

fn toml_files(folder: &Path) -> Result<Vec<PathBuf>, CatalogError> {
    let list = || {
        let mut paths = Vec::new();
        for item in fs::read_dir(folder)? {
            let path = item?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "toml")
            {
                paths.push(path);
            }
        }
        paths.sort();
        Ok(paths)
    };
    list().map_err(|cause| CatalogError::Folder {
        folder: folder.to_owned(),
        cause,
    })
}

/// The longest entries name some hundred files.
const MOST_ENTRY_BYTES: u64 = 256 << 10;

fn open_entry(path: &Path) -> Result<Entry, CatalogError> {
    let place = path.display().to_string();
    let wrong = |what| CatalogError::Entry {
        place: place.clone(),
        what,
    };
    let failed = |cause| wrong(format!("reading the entry failed: {cause}"));
    let mut text = String::new();
    let file = fs::File::open(path).map_err(failed)?;
    file.take(MOST_ENTRY_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MOST_ENTRY_BYTES {
        return Err(wrong(format!(
            "the entry has over {} KiB; an entry describes one model",
            MOST_ENTRY_BYTES >> 10
        )));
    }
    read_entry(&place, &text, path.parent())
}

fn read_entry(place: &str, text: &str, folder: Option<&Path>) -> Result<Entry, CatalogError> {
    file::read(text, folder).map_err(|what| CatalogError::Entry {
        place: place.to_owned(),
        what,
    })
}

#[cfg(test)]
mod tests;
