//! Finding a model by any of its names.

use super::{CatalogError, Entry, keys};

/// How many names an error suggests.
const SUGGESTIONS: usize = 3;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    #[error(transparent)]
    Unknown(#[from] UnknownModel),
    #[error(transparent)]
    Ambiguous(#[from] AmbiguousModel),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown model {name}; similar names: {}", .nearest.join(", "))]
pub struct UnknownModel {
    pub name: String,
    pub nearest: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} is ambiguous: {}; use the exact upper and lower case", .names.join(" or "))]
pub struct AmbiguousModel {
    pub name: String,
    pub names: Vec<String>,
}

impl Entry {
    /// The id and the names of both worlds.
    pub fn all_names(&self) -> impl Iterator<Item = &str> {
        let names = self.names.v1.iter().chain(&self.names.legacy);
        std::iter::once(&self.id).chain(names).map(String::as_str)
    }
}

pub fn find<'a>(entries: &'a [Entry], name: &str) -> Result<&'a Entry, FindError> {
    let exactly = |entry: &&Entry| entry.all_names().any(|known| known == name);
    if let Some(entry) = entries.iter().find(exactly) {
        return Ok(entry);
    }
    let in_any_case = |entry: &&Entry| {
        entry
            .all_names()
            .any(|known| known.eq_ignore_ascii_case(name))
    };
    let found: Vec<&Entry> = entries.iter().filter(in_any_case).collect();
    match found.as_slice() {
        [] => Err(unknown(entries, name).into()),
        [entry] => Ok(entry),
        several => Err(ambiguous(several, name).into()),
    }
}

fn ambiguous(entries: &[&Entry], name: &str) -> AmbiguousModel {
    let names = entries.iter().flat_map(|entry| entry.all_names());
    AmbiguousModel {
        name: name.to_owned(),
        names: names
            .filter(|known| known.eq_ignore_ascii_case(name))
            .map(str::to_owned)
            .collect(),
    }
}

fn unknown(entries: &[Entry], name: &str) -> UnknownModel {
    let likeness = |entry: &Entry| {
        let all = entry.all_names().map(|known| keys::likeness(name, known));
        all.fold(0.0, f64::max)
    };
    let mut ranked: Vec<_> = entries
        .iter()
        .map(|entry| (likeness(entry), &entry.id))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    UnknownModel {
        name: name.to_owned(),
        nearest: ranked
            .into_iter()
            .take(SUGGESTIONS)
            .map(|(_, id)| id.clone())
            .collect(),
    }
}

/// A name leads to one model, however it is written; one model may repeat its own names.
pub fn refuse_shared(entries: &[Entry]) -> Result<(), CatalogError> {
    let mut owners = std::collections::HashMap::new();
    for entry in entries {
        for name in entry.all_names() {
            let first = owners.entry(name).or_insert(&entry.id);
            if *first != &entry.id {
                return Err(CatalogError::SharedName {
                    name: name.to_owned(),
                    first: first.to_string(),
                    second: entry.id.clone(),
                });
            }
        }
    }
    Ok(())
}
