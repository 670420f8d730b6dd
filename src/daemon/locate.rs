//! From a model's name to its files: a path, or a name of the catalog whose files are here. Nothing is downloaded;
//! a model that came with the program is unpacked.

use std::path::{Path, PathBuf};

use crate::catalog::{
    Catalog, Defaults, Entry, FindError, Source, UnknownQuantization, UnpackError,
};
use crate::config::is_path;
use crate::hub::{Hub, Pulled};
use crate::runtime::{ModelSource, Sampling};

/// A model whose files are here.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// What it is served as.
    pub name: String,
    pub source: ModelSource,
}

/// Where files may be.
#[derive(Clone, Copy)]
pub struct Shelves<'a> {
    pub catalog: &'a Catalog,
    pub hub: &'a Hub,
    /// Where models that came with the program are unpacked.
    pub unpacked: &'a Path,
    /// The quantization to take where a model has several.
    pub preferred: Option<&'a str>,
}

#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    #[error("there is no {}", .0.display())]
    NoSuchPath(PathBuf),
    #[error(transparent)]
    Unknown(#[from] FindError),
    #[error(transparent)]
    UnknownQuantization(#[from] UnknownQuantization),
    /// It is in the catalog, and not on this machine.
    #[error("{name} is in the catalog, but none of its files is on this machine")]
    NotHere { name: String },
    #[error(transparent)]
    Unpack(#[from] UnpackError),
}

/// What is asked for: a path, `NAME` or `NAME:QUANTIZATION`.
pub fn locate(wanted: &str, shelves: Shelves<'_>) -> Result<Located, LocateError> {
    let path = Path::new(wanted);
    match is_path(wanted) || path.exists() {
        true if path.exists() => Ok(Located {
            name: name_of(path),
            source: ModelSource::new(path),
        }),
        true => Err(LocateError::NoSuchPath(path.to_owned())),
        false => in_catalog(wanted, shelves),
    }
}

fn in_catalog(wanted: &str, shelves: Shelves<'_>) -> Result<Located, LocateError> {
    let (entry, named) = shelves.catalog.find_with_quantization(wanted)?;
    let path = match named {
        Some(named) => files(entry.source(Some(named))?.1, shelves),
        None => usual_first(entry, shelves.preferred)
            .into_iter()
            .find_map(|source| files(source, shelves).transpose())
            .transpose(),
    };
    let path = path?.ok_or_else(|| LocateError::NotHere {
        name: wanted.to_owned(),
    })?;
    let defaults = sampling(&entry.defaults);
    Ok(Located {
        name: entry.id.clone(),
        source: ModelSource {
            defaults,
            ..ModelSource::new(path)
        },
    })
}

/// The sources of an entry: the preferred quantization, then the usual one, then whatever there is.
fn usual_first<'a>(entry: &'a Entry, preferred: Option<&str>) -> Vec<&'a Source> {
    let mut sources: Vec<_> = entry.sources.iter().collect();
    sources.sort_by_key(|(name, _)| {
        (
            preferred != Some(name.as_str()),
            **name != entry.default_quantization,
        )
    });
    sources.into_iter().map(|(_, source)| source).collect()
}

/// What to open: the file of a model in one file, else the folder of its files.
fn files(source: &Source, shelves: Shelves<'_>) -> Result<Option<PathBuf>, UnpackError> {
    match source {
        Source::Path(path) => Ok(path.exists().then(|| path.clone())),
        Source::Hub(source) => Ok(shelves
            .hub
            .locate(source)
            .and_then(|pulled| opened(&pulled))),
        Source::Embedded(model) => model.unpack(shelves.unpacked).map(Some),
    }
}

fn opened(pulled: &Pulled) -> Option<PathBuf> {
    match pulled.files.as_slice() {
        [only] => Some(only.clone()),
        [first, ..] => Some(first.parent()?.to_owned()),
        [] => None,
    }
}

/// `tiny` for `/models/tiny.gguf`.
fn name_of(path: &Path) -> String {
    let is_file = path.is_file();
    let name = if is_file {
        path.file_stem()
    } else {
        path.file_name()
    };
    name.map_or_else(
        || path.display().to_string(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn sampling(defaults: &Defaults) -> Sampling {
    Sampling {
        temperature: defaults.temperature,
        top_k: defaults.top_k,
        top_p: defaults.top_p,
        min_p: defaults.min_p,
        repetition_penalty: defaults.repetition_penalty,
        ..Sampling::default()
    }
}
