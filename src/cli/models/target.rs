//! What `NAME`, `NAME:QUANTIZATION`, `org/repo` and `org/repo:FILE` stand for.

use crate::{
    catalog::{Entry, FindError, Source},
    cli::{Exit, Failure},
    hub::{self, FilePath, Repository},
};

use super::place::Place;

/// A name as it was typed, understood.
pub enum Target<'a> {
    /// A model of the catalog, and the quantization that was named.
    Entry(&'a Entry, Option<&'a str>),
    /// A repository of the hub, and the file or part of a name that was named.
    Repository(Repository, Option<&'a str>),
}

/// A source with the words that lead to it.
pub struct Named {
    /// As one would type it.
    pub name: String,
    pub source: Source,
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

    /// Those of its sources that are at least partly here.
    pub fn present(&self, place: &Place) -> Result<Vec<Named>, Failure> {
        match self {
            Self::Entry(entry, Some(quantization)) => {
                let (quantization, source) = entry.source(Some(quantization))?;
                Ok(vec![named(entry, quantization, source)])
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
                Ok(vec![Named { name, source }])
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
    let sources = entry.sources.iter();
    let here = sources.filter(|(_, source)| !place.state(source).is_nothing());
    here.map(|(quantization, source)| named(entry, quantization, source))
        .collect()
}

/// The weights that were pulled by the names of their repositories: no model of the catalog has them.
pub fn of_repositories(place: &Place) -> Result<Vec<Named>, Failure> {
    let of_catalog = |repository: &Repository, file: &FilePath| {
        let mut sources = place
            .catalog
            .entries()
            .iter()
            .flat_map(|entry| entry.sources.values());
        sources.any(|source| match source {
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
                source: Source::Hub(source),
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
                source: Source::Hub(source),
            });
        }
    }
    Ok(others)
}

fn named(entry: &Entry, quantization: &str, source: &Source) -> Named {
    Named {
        name: format!("{}:{quantization}", entry.id),
        source: source.clone(),
    }
}

pub fn absent(name: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("no file of {name} is on disk"))
        .hint(format!("`worker models pull {name}` downloads it"))
}
