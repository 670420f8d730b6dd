//! Reads settings: finds each value, records its origin, and collects errors.

use std::path::Path;

use super::document::{Document, PLACEHOLDER, Table};
use super::exposure::{Exposure, is_readable_by_all};
use super::problem::{ConfigError, Problem};
use super::raw::Raw;
use super::setting::{Found, Origin, Setting};
use super::sources::{Environment, Sources};
use super::value::{Place, Value};
use super::{Config, Loaded};

/// Finds values, records their origins, and collects errors.
pub struct Reader<'a> {
    pub(super) sources: &'a Sources,
    pub(super) document: &'a Document,
    /// The table being read, when it is one of several of its name, and its number.
    one_of: Option<(&'a Table, usize)>,
    found: Vec<Found>,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<String>,
    exposures: Vec<Exposure>,
}

/// A raw value, its origin, and the folder for relative paths.
struct Written<'a> {
    raw: Raw,
    origin: Origin,
    folder: &'a Path,
}

impl<'a> Reader<'a> {
    pub fn new(sources: &'a Sources, document: &'a Document) -> Self {
        Self {
            sources,
            document,
            one_of: None,
            found: Vec::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            exposures: Vec::new(),
        }
    }

    /// The value of a setting, or `None` after recording an error.
    pub fn value<T: Value>(&mut self, setting: &'static Setting) -> Option<T> {
        let (value, origin) = match self.written(setting) {
            Some(written) => {
                let origin = written.origin.clone();
                let value = parse(setting, &written, &self.sources.environment)
                    .map_err(|what| {
                        self.problem(
                            place(&origin),
                            format!("{} must be {what}", self.name(setting)),
                        )
                    })
                    .ok()?;
                if T::is_secret() {
                    self.note_exposure(setting, &written);
                }
                (value, origin)
            }
            None => match T::unset() {
                Some(value) => (value, Origin::Default),
                None => {
                    let what =
                        format!("{} is missing: must be {}", self.name(setting), T::wanted());
                    self.problem(self.table_place(), what);
                    return None;
                }
            },
        };
        let shown = value.show();
        self.found.push(Found {
            name: self.name(setting),
            is_set: shown.is_some(),
            value: shown.unwrap_or_else(|| setting.unset.to_owned()),
            origin,
        });
        Some(value)
    }

    /// Records a secret in a file that every user of this machine can read.
    fn note_exposure(&mut self, setting: &Setting, written: &Written<'_>) {
        let text = written.raw.text().unwrap_or_default();
        let place = Place {
            folder: written.folder,
            environment: &self.sources.environment,
        };
        let file = match (text.split_once(':'), &written.origin) {
            (Some(("env", _)), _) => None,
            (Some(("file", path)), _) => place.path(path).ok(),
            // The path of a database, or a URL without a password, is no secret.
            _ if setting.key == "database" && !text.contains('@') => None,
            (_, Origin::File(_)) => Some(self.document.file.clone()),
            _ => None,
        };
        let Some(file) = file.filter(|file| is_readable_by_all(file)) else {
            return;
        };
        let name = self.name(setting);
        match self.exposures.iter_mut().find(|known| known.file == file) {
            Some(known) => known.settings.push(name),
            None => self.exposures.push(Exposure {
                file,
                settings: vec![name],
            }),
        }
    }

    /// Every table of a name that may be repeated.
    pub fn each<T>(&mut self, section: &str, read: fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let tables = self
            .document
            .tables
            .iter()
            .filter(|table| table.name == section && table.repeated);
        let values: Vec<Option<T>> = tables
            .enumerate()
            .map(|(index, table)| {
                self.one_of = Some((table, index + 1));
                read(self)
            })
            .collect();
        self.one_of = None;
        values.into_iter().collect()
    }

    /// The name in the header of the table being read.
    pub fn name_of_table(&self) -> Option<&'a str> {
        self.one_of.and_then(|(table, _)| table.of.as_deref())
    }

    /// Something about several values of the table being read.
    pub fn problem_here(&mut self, what: String) {
        self.problem(self.table_place(), what);
    }

    /// Records an error about a parsed value, at the place of that value.
    pub fn problem_about(&mut self, name: &str, what: String) {
        let found = self.found.iter().rev().find(|found| found.name == name);
        let place = found.map_or_else(|| self.table_place(), |found| place(&found.origin));
        self.problem(place, what);
    }

    pub(super) fn problem(&mut self, place: String, what: String) {
        self.problems.push(Problem { place, what });
    }

    pub fn finish(self, config: Option<Config>) -> Result<Loaded, ConfigError> {
        match config {
            Some(config) if self.problems.is_empty() => Ok(Loaded {
                config,
                found: self.found,
                warnings: self.warnings,
                exposures: self.exposures,
            }),
            _ => Err(ConfigError::Wrong(self.problems)),
        }
    }

    /// `engine.threads`, `coordinator[2].url`, or `models.llama.upstream.url`.
    fn name(&self, setting: &Setting) -> String {
        match self.one_of {
            Some((Table { of: Some(name), .. }, _)) => {
                let section = setting.section.replace(PLACEHOLDER, name);
                format!("{section}.{}", setting.key)
            }
            Some((_, number)) => format!("{}[{number}].{}", setting.section, setting.key),
            None => setting.name(),
        }
    }

    fn table_place(&self) -> String {
        let line = self.one_of.map_or(1, |(table, _)| table.line);
        self.document.place(line)
    }

    fn written(&self, setting: &'static Setting) -> Option<Written<'a>> {
        match self.one_of {
            Some((table, _)) => self.in_table(table, setting),
            None => self
                .in_flags(setting)
                .or_else(|| self.in_variable(&setting.variable(), ""))
                .or_else(|| self.in_table(self.document.table(setting.section)?, setting))
                .or_else(|| {
                    setting
                        .shared
                        .iter()
                        .find_map(|(name, after)| self.in_variable(name, after))
                }),
        }
        .or_else(|| self.by_default(setting))
    }

    fn in_flags(&self, setting: &Setting) -> Option<Written<'a>> {
        let flag = self
            .sources
            .flags
            .iter()
            .find(|flag| flag.setting == setting.name())?;
        Some(Written {
            raw: Raw::Untyped(flag.value.clone()),
            origin: Origin::Flag(flag.name),
            folder: &self.sources.folder,
        })
    }

    /// An empty variable counts as none: that is how many shells and units "unset" one.
    fn in_variable(&self, name: &str, after: &str) -> Option<Written<'a>> {
        let text = self
            .sources
            .environment
            .get(name)
            .filter(|text| !text.is_empty())?;
        Some(Written {
            raw: Raw::Untyped(format!("{text}{after}")),
            origin: Origin::Variable(name.to_owned()),
            folder: &self.sources.folder,
        })
    }

    fn in_table(&self, table: &Table, setting: &Setting) -> Option<Written<'a>> {
        let entry = table.entry(setting.key)?;
        Some(Written {
            raw: entry.value.clone(),
            origin: Origin::File(self.document.place(entry.line)),
            folder: self.document.file.parent().unwrap_or(Path::new("")),
        })
    }

    fn by_default(&self, setting: &'static Setting) -> Option<Written<'a>> {
        let text = format!("[default]\nvalue = {}", setting.default?);
        let document = Document::parse(Path::new("default"), &text).ok()?;
        let raw = document.table("default")?.entry("value")?.value.clone();
        Some(Written {
            raw,
            origin: Origin::Default,
            folder: Path::new(""),
        })
    }
}

fn place(origin: &Origin) -> String {
    match origin {
        Origin::Variable(name) => name.clone(),
        origin => origin.to_string(),
    }
}

fn parse<T: Value>(
    setting: &Setting,
    written: &Written<'_>,
    environment: &Environment,
) -> Result<T, String> {
    let place = Place {
        folder: written.folder,
        environment,
    };
    let value = T::parse(&written.raw, &place).map_err(|reason| match reason.is_empty() {
        true => wanted::<T>(setting, &written.raw),
        false => reason,
    })?;
    match (&setting.range, value.number()) {
        (Some(range), Some(number)) if !range.contains(&number) => {
            Err(wanted::<T>(setting, &written.raw))
        }
        _ => Ok(value),
    }
}

fn wanted<T: Value>(setting: &Setting, found: &Raw) -> String {
    let range = setting.range.as_ref();
    let limits = range.map(|range| {
        format!(
            " from {} to {}",
            T::limit(*range.start()),
            T::limit(*range.end())
        )
    });
    format!(
        "{}{}, found {}",
        T::wanted(),
        limits.unwrap_or_default(),
        found.quoted()
    )
}
