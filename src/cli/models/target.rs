//! What `NAME`, `NAME:QUANTIZATION`, `org/repo` and `org/repo:FILE` stand for.

use crate::{
    catalog::{Entry, FindError, Source},
    cli::{Exit, Failure},
    hub::Repository,
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
                let source = place.hub.choose_on_disk(repository, *file)?;
                let source = Source::Hub(source.ok_or_else(|| absent(&name))?);
                Ok(vec![Named { name, source }])
            }
        }
    }
}

/// The sources of a model that are at least partly here.
pub fn present_of(entry: &Entry, place: &Place) -> Vec<Named> {
    let sources = entry.sources.iter();
    let here = sources.filter(|(_, source)| !place.state(source).is_nothing());
    here.map(|(quantization, source)| named(entry, quantization, source))
        .collect()
}

fn named(entry: &Entry, quantization: &str, source: &Source) -> Named {
    Named {
        name: format!("{}:{quantization}", entry.id),
        source: source.clone(),
    }
}

pub fn absent(name: &str) -> Failure {
    Failure::new(Exit::NotFound, format!("nothing of {name} is on disk"))
        .hint(format!("`worker models pull {name}` brings it here"))
}
