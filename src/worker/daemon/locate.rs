//! Finds a model's files by its name: a path, or a name of the catalog or of a repository on disk. Nothing is
//! downloaded; a built-in model is unpacked.

use std::io;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::AdapterSource;
use super::media::MediaSource;
use crate::catalog::{
    Catalog, Defaults, Entry, EntrySource, Facts, FindError, IMAGE_INDEX, Source,
    UnknownQuantization, UnpackError,
};
use crate::hub::{self, Hub, HubError, Pulled, Repository};
use muster_config::is_path;
use muster_engine::runtime::{ComponentFolders, ModelSource, Sampling};

/// A model on disk.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// The model's public name.
    pub name: String,
    pub source: LocatedSource,
    /// The catalog has the hashes of all its files, or the model is built in. Other files are untrusted and parsed in a
    /// separate process.
    pub is_vouched: bool,
    /// The hub's sources of the loaded files.
    pub sources: Vec<hub::Source>,
}

/// The engine's source.
#[derive(Debug, Clone, PartialEq)]
pub enum LocatedSource {
    Text(Box<ModelSource>),
    Media(MediaSource),
    /// Changes the output of a text model.
    Adapter(AdapterSource),
}

/// Files of a model of the catalog.
struct Found {
    path: PathBuf,
    /// Components that are not below it.
    components: ComponentFolders,
    is_vouched: bool,
    sources: Vec<hub::Source>,
}

/// The places where files may be.
#[derive(Clone, Copy)]
pub struct Shelves<'a> {
    pub catalog: &'a Catalog,
    pub hub: &'a Hub,
    /// The folder for built-in models.
    pub unpacked: &'a Path,
    /// The quantization to take where a model has several.
    pub preferred: Option<&'a str>,
}

#[derive(Debug, thiserror::Error)]
pub enum LocateError {
    #[error("{} does not exist", .0.display())]
    NoSuchPath(PathBuf),
    /// The path is not accessible, for example because of a folder's permissions.
    #[error("reading {} failed: {cause}", .path.display())]
    Hidden { path: PathBuf, cause: io::Error },
    #[error(transparent)]
    Unknown(#[from] FindError),
    #[error(transparent)]
    UnknownQuantization(#[from] UnknownQuantization),
    /// The model is in the catalog but not on disk.
    #[error("{name} is in the catalog, but not downloaded")]
    NotHere { name: String },
    /// A file has the wrong length or hash.
    #[error("{name}: size or checksum mismatch")]
    Damaged { name: String },
    /// A file of a repository that was not pulled.
    #[error("{name} is neither in the catalog nor downloaded")]
    NotPulled { name: String },
    /// The name fits several files of its repository.
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// A transformer in a file of its own.
    #[error(
        "{} holds a transformer alone, and its {component} is missing; put its file beside it, or run \
         `worker models pull {model}`",
        .path.display()
    )]
    Incomplete {
        path: PathBuf,
        component: String,
        model: String,
    },
    /// A word that the engine does not know.
    #[error("the catalog entry of {name}: {what}")]
    Defaults { name: String, what: String },
}

/// Locates a path, `NAME`, `NAME:QUANTIZATION`, `org/name` or `org/name:FILE`.
pub fn locate(wanted: &str, shelves: Shelves<'_>) -> Result<Located, LocateError> {
    let mut located = find(wanted, shelves)?;
    if let LocatedSource::Media(source) = &mut located.source {
        source.complete(shelves)?;
    }
    Ok(located)
}

fn find(wanted: &str, shelves: Shelves<'_>) -> Result<Located, LocateError> {
    let path = Path::new(wanted);
    match path.metadata() {
        Ok(_) => Ok(Located {
            name: name_of(path),
            source: LocatedSource::at(path),
            is_vouched: false,
            sources: Vec::new(),
        }),
        Err(cause) if is_path(wanted) => Err(no_path(path, cause)),
        Err(_) => match in_catalog(wanted, shelves) {
            Err(LocateError::Unknown(unknown @ FindError::Unknown(_))) => {
                of_repository(wanted, unknown, shelves)
            }
            located => located,
        },
    }
}

impl Located {
    /// The name of the model of an adapter.
    pub fn base(&self) -> Option<&str> {
        match &self.source {
            LocatedSource::Adapter(source) => Some(&source.base),
            LocatedSource::Text(_) | LocatedSource::Media(_) => None,
        }
    }
}

impl LocatedSource {
    /// A file or a folder.
    fn at(path: &Path) -> Self {
        MediaSource::at(path)
            .map_or_else(|| Self::Text(Box::new(ModelSource::new(path))), Self::Media)
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Text(source) => &source.path,
            Self::Media(source) => source.path(),
            Self::Adapter(source) => &source.path,
        }
    }
}

fn no_path(path: &Path, cause: io::Error) -> LocateError {
    let path = path.to_owned();
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => LocateError::NoSuchPath(path),
        _ => LocateError::Hidden { path, cause },
    }
}

/// The pulled files of a repository outside the catalog.
fn of_repository(
    wanted: &str,
    unknown: FindError,
    shelves: Shelves<'_>,
) -> Result<Located, LocateError> {
    let (repository, file) = match wanted.split_once(':') {
        Some((repository, file)) => (repository, Some(file)),
        None => (wanted, None),
    };
    let Ok(repository) = repository.parse::<Repository>() else {
        return Err(unknown.into());
    };
    let name = wanted.to_owned();
    let Some(source) = shelves.hub.model_on_disk(&repository, file)? else {
        return Err(match file {
            Some(_) => LocateError::NotPulled { name },
            None => unknown.into(),
        });
    };
    let pulled = shelves.hub.locate(&source);
    let path = pulled.and_then(|pulled| match file {
        // Companions of the named file come before it.
        Some(_) => pulled.files.last().cloned(),
        None => opened(&pulled),
    });
    match path {
        Some(path) => Ok(Located {
            name,
            source: LocatedSource::at(&path),
            is_vouched: false,
            sources: vec![source],
        }),
        None => Err(LocateError::Damaged { name }),
    }
}

fn in_catalog(wanted: &str, shelves: Shelves<'_>) -> Result<Located, LocateError> {
    let (entry, named) = shelves.catalog.find_with_quantization(wanted)?;
    let found = match (named, entry.preferred(shelves.preferred)) {
        (Some(named), _) => files(entry, entry.source(Some(named))?.0, shelves)?,
        (None, Some((preferred, _))) => match files(entry, preferred, shelves)? {
            Some(found) => Some(found),
            None => Some(instead_of(preferred, entry, shelves)?),
        },
        (None, None) => any(entry, shelves)?,
    };
    let tried: Vec<&str> = match named {
        Some(named) => vec![named],
        None => entry.sources.keys().map(String::as_str).collect(),
    };
    let found = found.ok_or_else(|| missing(wanted.to_owned(), entry, &tried, shelves))?;
    let media = MediaSource::of_entry(&entry.facts, &found.path, &found.components);
    let media = media.map_err(|what| LocateError::Defaults {
        name: entry.id.clone(),
        what,
    })?;
    let source = match (&entry.facts, media) {
        (Facts::Text(facts), _) => LocatedSource::Text(Box::new(ModelSource {
            defaults: sampling(&facts.defaults),
            ..ModelSource::new(found.path)
        })),
        (_, Some(source)) => LocatedSource::Media(source),
        (_, None) => LocatedSource::at(&found.path),
    };
    Ok(Located {
        name: entry.id.clone(),
        source,
        is_vouched: found.is_vouched,
        sources: found.sources,
    })
}

/// The replacement of the preferred quantization: none while that can still be downloaded.
fn instead_of(preferred: &str, entry: &Entry, shelves: Shelves<'_>) -> Result<Found, LocateError> {
    let name = format!("{}:{preferred}", entry.id);
    let found = match shelves.hub.settings().offline {
        true => any(entry, shelves)?,
        false => None,
    };
    match found {
        Some(found) => {
            warn!(
                "offline, and the preferred {name} is not on disk: using {} instead",
                found.path.display()
            );
            Ok(found)
        }
        None => Err(missing(name, entry, &[preferred], shelves)),
    }
}

/// Why none of these can be opened.
fn missing(name: String, entry: &Entry, tried: &[&str], shelves: Shelves<'_>) -> LocateError {
    let mut sources = tried.iter().flat_map(|tried| entry.sources_of(tried));
    let is_damaged = |it: EntrySource<'_>| match it.source {
        Source::Hub(source) => shelves.hub.state(source).wrong > 0,
        Source::Path(_) | Source::Embedded(_) => false,
    };
    match sources.any(is_damaged) {
        true => LocateError::Damaged { name },
        false => LocateError::NotHere { name },
    }
}

/// The default quantization of an entry, or else any that is on disk.
fn any(entry: &Entry, shelves: Shelves<'_>) -> Result<Option<Found>, UnpackError> {
    let mut names: Vec<&String> = entry.sources.keys().collect();
    names.sort_by_key(|name| **name != entry.default_quantization);
    let mut here = names
        .into_iter()
        .filter_map(|name| files(entry, name, shelves).transpose());
    here.next().transpose()
}

/// All files of a quantization; `None` if any is missing.
fn files(
    entry: &Entry,
    quantization: &str,
    shelves: Shelves<'_>,
) -> Result<Option<Found>, UnpackError> {
    let mut all = Vec::new();
    for it in entry.sources_of(quantization) {
        let path = match it.component {
            None => own_path(it.source, shelves)?,
            Some((_, component)) => folder_of(it.source, &component.folder, shelves)?,
        };
        let Some(path) = path else {
            return Ok(None);
        };
        all.push((it, path));
    }
    let is_vouched = all.iter().all(|(it, _)| match it.source {
        Source::Path(_) => false,
        Source::Hub(source) => is_one_known_file(source),
        Source::Embedded(_) => true,
    });
    let component = |(it, path): &(EntrySource<'_>, PathBuf)| {
        let (name, _) = it.component?;
        Some((name.to_owned(), path.clone()))
    };
    let components = all.iter().filter_map(component).collect();
    let sources = all.iter().filter_map(|(it, _)| on_hub(it.source)).collect();
    Ok(all.into_iter().next().map(|(_, path)| Found {
        path,
        components,
        is_vouched,
        sources,
    }))
}

fn on_hub(source: &Source) -> Option<hub::Source> {
    match source {
        Source::Hub(source) => Some(source.clone()),
        Source::Path(_) | Source::Embedded(_) => None,
    }
}

/// The hub's sources of a model; of one that is not on disk, those of all its quantizations.
pub fn sources_of(wanted: &str, shelves: Shelves<'_>) -> Vec<hub::Source> {
    match locate(wanted, shelves) {
        Ok(located) => located.sources,
        Err(_) => all_sources_of(wanted, shelves.catalog),
    }
}

/// The files of all quantizations of a model of the catalog, or of the one that is named.
pub fn all_sources_of(wanted: &str, catalog: &Catalog) -> Vec<hub::Source> {
    let Ok((entry, named)) = catalog.find_with_quantization(wanted) else {
        return Vec::new();
    };
    let names = entry.sources.keys().map(String::as_str);
    let names = names.filter(|name| named.is_none_or(|named| named == *name));
    let sources = names.flat_map(|name| entry.sources_of(name));
    sources.filter_map(|it| on_hub(it.source)).collect()
}

/// The path to open: the file of a single-file model, else the folder.
fn own_path(source: &Source, shelves: Shelves<'_>) -> Result<Option<PathBuf>, UnpackError> {
    match source {
        Source::Path(path) => Ok(path.exists().then(|| path.clone())),
        Source::Hub(source) => {
            let pulled = shelves.hub.locate(source);
            Ok(pulled.and_then(|pulled| opened(&pulled)))
        }
        Source::Embedded(model) => model.unpack(shelves.unpacked).map(Some),
    }
}

/// A folder inside a source, with the files of every model that uses it.
pub fn folder_of(
    source: &Source,
    folder: &str,
    shelves: Shelves<'_>,
) -> Result<Option<PathBuf>, UnpackError> {
    let top = match source {
        Source::Path(path) => Some(path.clone()),
        Source::Embedded(model) => Some(model.unpack(shelves.unpacked)?),
        Source::Hub(source) => shelves.hub.locate(source).and_then(|pulled| {
            let (name, path) = (source.files.first()?, pulled.files.first()?);
            let above = name.path.as_str().split('/').count();
            path.ancestors().nth(above).map(Path::to_owned)
        }),
    };
    let path = top.map(|top| match folder {
        "" => top,
        folder => top.join(folder),
    });
    Ok(path.filter(|path| path.exists()))
}

/// Whether the source is a single file whose hash is in the catalog. With several files, others of their folder may be
/// read, too.
fn is_one_known_file(source: &hub::Source) -> bool {
    match source.files.as_slice() {
        [file] => file.path.is_gguf() && file.sha256.is_some(),
        _ => false,
    }
}

/// An image model is opened at its index file, in the parent folder of its components.
fn opened(pulled: &Pulled) -> Option<PathBuf> {
    let is_index = |path: &&PathBuf| path.file_name().is_some_and(|name| name == IMAGE_INDEX);
    if let Some(index) = pulled.files.iter().find(is_index) {
        return Some(index.parent()?.to_owned());
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::HubSettings;

    /// A model with two files of its owner's, the usual one in 8 bits.
    const ENTRY: &str = r#"
        id = "small"
        family = "llama"
        kind = "text"
        licence = "Apache-2.0"
        context = 8192
        default_quantization = "q8_0"
        names = { v1 = ["small"], legacy = ["koboldcpp/small"] }
        shape = { parameters = 1_000_000, layers = 2, kv_heads = 2, head_dim = 64 }
        sources = { q8_0 = { path = "small-q8_0.gguf" }, q4_k_m = { path = "small-q4_k_m.gguf" } }
    "#;

    /// Checks the file chosen for a preference while these exist, or the error.
    fn check(here: &[&str], preferred: Option<&str>, offline: bool, expected: Result<&str, &str>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("small.toml"), ENTRY).unwrap();
        for name in here {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let endpoint = "http://127.0.0.1:9".parse().unwrap();
        let settings = HubSettings::new(endpoint, folder.path().join("hub"), folder.path());
        let shelves = Shelves {
            catalog: &Catalog::open(Some(folder.path())).unwrap(),
            hub: &Hub::new(HubSettings {
                offline,
                ..settings
            }),
            unpacked: folder.path(),
            preferred,
        };
        match (locate("small", shelves), expected) {
            (Ok(found), Ok(name)) => assert_eq!(found.source.path(), folder.path().join(name)),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
            (found, expected) => panic!("found {found:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn what_cannot_be_seen_is_not_said_to_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let said = |path: &Path| no_path(path, path.metadata().unwrap_err()).to_string();
        let missing = folder.path().join("missing.gguf");
        assert_eq!(
            said(&missing),
            format!("{} does not exist", missing.display())
        );
        std::fs::write(folder.path().join("file"), "").unwrap();
        let below = folder.path().join("file/x.gguf");
        assert_eq!(said(&below), format!("{} does not exist", below.display()));
        // No user can follow it, not even root.
        let endless = folder.path().join("endless.gguf");
        std::os::unix::fs::symlink(&endless, &endless).unwrap();
        let failed = format!("reading {} failed", endless.display());
        assert!(said(&endless).starts_with(&failed));
    }

    #[test]
    fn only_files_whose_hash_the_catalog_names_are_vouched_for() {
        let source = |files: &[(&str, bool)]| hub::Source {
            repository: "org/name".parse().unwrap(),
            revision: None,
            files: files
                .iter()
                .map(|(path, has_hash)| hub::SourceFile {
                    path: path.parse().unwrap(),
                    size_bytes: None,
                    sha256: has_hash.then(|| "a".repeat(64).parse().unwrap()),
                })
                .collect(),
        };
        assert!(is_one_known_file(&source(&[("m.gguf", true)])));
        assert!(!is_one_known_file(&source(&[("m.gguf", false)])));
        let folder = source(&[("config.json", true), ("model.safetensors", true)]);
        assert!(!is_one_known_file(&folder));

        let folder = tempfile::tempdir().unwrap();
        let endpoint = "http://127.0.0.1:9".parse().unwrap();
        let settings = HubSettings::new(endpoint, folder.path().join("hub"), folder.path());
        let shelves = Shelves {
            catalog: &Catalog::builtin().unwrap(),
            hub: &Hub::new(settings),
            unpacked: folder.path(),
            preferred: None,
        };
        assert!(locate("demo-text", shelves).unwrap().is_vouched);
        let path = folder.path().join("hostile.gguf");
        std::fs::write(&path, "").unwrap();
        assert!(!locate(path.to_str().unwrap(), shelves).unwrap().is_vouched);
    }

    const BOTH: &[&str] = &["small-q8_0.gguf", "small-q4_k_m.gguf"];

    #[test]
    fn the_preferred_quantization_is_taken_and_else_the_usual_one() {
        check(BOTH, Some("q4_k_m"), false, Ok("small-q4_k_m.gguf"));
        check(BOTH, None, false, Ok("small-q8_0.gguf"));
        check(&BOTH[1..], None, false, Ok("small-q4_k_m.gguf"));
    }

    #[test]
    fn another_one_stands_in_only_where_the_preferred_one_cannot_be_had() {
        let only_eight_bits = &BOTH[..1];
        let missing = Err("small:q4_k_m is in the catalog");
        check(only_eight_bits, Some("q4_k_m"), false, missing);
        check(only_eight_bits, Some("q4_k_m"), true, Ok(BOTH[0]));
        check(&[], Some("q4_k_m"), true, missing);
        check(only_eight_bits, Some("bf16"), false, Ok(BOTH[0]));
    }
}
