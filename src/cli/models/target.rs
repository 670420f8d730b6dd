//! Parsing of `NAME`, `NAME:QUANTIZATION`, `org/repo` and `org/repo:FILE`.

use crate::{
    catalog::{Entry, EntrySource, FindError, Source},
    cli::{Exit, Failure},
    hub::{self, FilePath, Repository},
};

use super::place::{OnDisk, Place};

/// A name as it was typed, understood.
pub enum Target<'a> {
    /// A model of the catalog, and the quantization that was named.
    Entry(&'a Entry, Option<&'a str>),
    /// A repository of the hub, and the file or part of a name that was named.
    Repository(Repository, Option<&'a str>),
}

/// A model or a repository, and where its files are.
pub struct Named {
    /// The name for the command line.
    pub name: String,
    /// The model's own files, then those of separate components.
    pub sources: Vec<Source>,
}

impl Named {
    pub fn state(&self, place: &Place) -> OnDisk {
        place.state_of(&self.sources)
    }
}

impl<'a> Target<'a> {
    /// The catalog comes first: some of its names look like repositories.
    pub fn parse(name: &'a str, place: &'a Place) -> Result<Self, Failure> {
        let unknown = match place.catalog.find_with_quantization(name) {
            Ok((entry, quantization)) => return Ok(Self::Entry(entry, quantization)),
            Err(error @ FindError::Ambiguous(_)) => return Err(error.into()),
            Err(error) => error,
        };
        let (repository, file) = match name.split_once(':') {
            Some((repository, file)) => (repository, Some(file)),
            None => (name, None),
        };
        match repository.parse() {
            Ok(repository) => Ok(Self::Repository(repository, file)),
            Err(_) => Err(unknown.into()),
        }
    }

    /// Sources that are at least partly downloaded.
    pub fn present(&self, place: &Place) -> Result<Vec<Named>, Failure> {
        match self {
            Self::Entry(entry, Some(quantization)) => {
                let (quantization, _) = entry.source(Some(quantization))?;
                Ok(vec![named(entry, quantization)])
            }
            Self::Entry(entry, None) => Ok(present_of(entry, place)),
            Self::Repository(repository, file) => {
                let name = match file {
                    Some(file) => format!("{repository}:{file}"),
                    None => repository.to_string(),
                };
                let here = place.hub.choose_on_disk(repository, *file)?;
                let source = with_unfinished(here, repository, *file, place);
                let source = Source::Hub(source.ok_or_else(|| absent(&name))?);
                Ok(vec![Named {
                    name,
                    sources: vec![source],
                }])
            }
        }
    }
}

/// With the files of a repository that an interrupted pull left.
fn with_unfinished(
    here: Option<hub::Source>,
    repository: &Repository,
    wanted: Option<&str>,
    place: &Place,
) -> Option<hub::Source> {
    let is_wanted = |file: &FilePath| {
        let file = file.as_str().to_lowercase();
        wanted.is_none_or(|wanted| file.contains(&wanted.to_lowercase()))
    };
    let unfinished = place.hub.unfinished(repository).into_iter();
    let unfinished: Vec<_> = unfinished.filter(is_wanted).collect();
    if here.is_none() && unfinished.is_empty() {
        return None;
    }
    let mut source = here.unwrap_or_else(|| hub::Source {
        repository: repository.clone(),
        revision: None,
        files: Vec::new(),
    });
    for file in unfinished {
        if !source.files.iter().any(|known| known.path == file) {
            source.files.push(file.into());
        }
    }
    Some(source)
}

/// The sources of a model that are at least partly here.
pub fn present_of(entry: &Entry, place: &Place) -> Vec<Named> {
    let names = entry.sources.keys();
    let here = names.filter(|quantization| is_here(entry, quantization, place));
    here.map(|quantization| named(entry, quantization))
        .collect()
}

/// Whether any file of a model is downloaded, other than components that other models share.
fn is_here(entry: &Entry, quantization: &str, place: &Place) -> bool {
    let Ok((_, own)) = entry.source(Some(quantization)) else {
        return false;
    };
    let Source::Hub(source) = own else {
        return !place.state(own).is_nothing();
    };
    let is_lent = |file: &FilePath| {
        let mut all = place.catalog.quantized();
        all.any(|(other, _, sources)| {
            let mut components = sources.iter().filter(|it| it.component.is_some());
            other.id != entry.id && components.any(|it| lists(it.source, source, file))
        })
    };
    let rest = source.files.iter().filter(|file| !is_lent(&file.path));
    let rest = hub::Source {
        files: rest.cloned().collect(),
        ..source.clone()
    };
    !place.state(&Source::Hub(rest)).is_nothing()
}

/// Whether a source has a file of another one.
fn lists(source: &Source, other: &hub::Source, file: &FilePath) -> bool {
    let Source::Hub(source) = source else {
        return false;
    };
    source.repository == other.repository
        && source.revision == other.revision
        && source.files.iter().any(|listed| listed.path == *file)
}

/// The models here that have a file, but these.
pub fn users_of(
    source: &hub::Source,
    file: &FilePath,
    without: &[&str],
    place: &Place,
) -> Vec<Named> {
    let all = place.catalog.quantized();
    let users = all.filter(|(entry, quantization, sources)| {
        sources.iter().any(|it| lists(it.source, source, file))
            && is_here(entry, quantization, place)
    });
    let users = users.map(|(entry, quantization, _)| named(entry, quantization));
    users
        .filter(|user| !without.contains(&user.name.as_str()))
        .collect()
}

/// The weights that were pulled by the names of their repositories: no model of the catalog has them.
pub fn of_repositories(place: &Place) -> Result<Vec<Named>, Failure> {
    let of_catalog = |repository: &Repository, file: &FilePath| {
        let all = place.catalog.quantized();
        let mut sources = all.flat_map(|(_, _, sources)| sources);
        sources.any(|EntrySource { source, .. }| match source {
            Source::Hub(source) => {
                source.repository == *repository
                    && source.files.iter().any(|named| named.path == *file)
            }
            Source::Path(_) | Source::Embedded(_) => false,
        })
    };
    let mut others = Vec::new();
    for (repository, file) in place.hub.pulled_weights() {
        if of_catalog(&repository, &file) {
            continue;
        }
        if let Some(source) = place.hub.choose_on_disk(&repository, Some(file.as_str()))? {
            others.push(Named {
                name: format!("{repository}:{file}"),
                sources: vec![Source::Hub(source)],
            });
        }
    }
    for (repository, file) in place.hub.all_unfinished() {
        let name = format!("{repository}:{file}");
        let is_known = others.iter().any(|other: &Named| other.name == name);
        if file.is_weights() && !is_known && !of_catalog(&repository, &file) {
            let source = hub::Source {
                repository,
                revision: None,
                files: vec![file.into()],
            };
            others.push(Named {
                name,
                sources: vec![Source::Hub(source)],
            });
        }
    }
    Ok(others)
}

fn named(entry: &Entry, quantization: &str) -> Named {
    let sources = entry.sources_of(quantization).into_iter();
    Named {
        name: format!("{}:{quantization}", entry.id),
        sources: sources.map(|it| it.source.clone()).collect(),
    }
}

pub fn absent(name: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("no file of {name} is on disk"))
        .hint(format!("`worker models pull {name}` downloads it"))
}
