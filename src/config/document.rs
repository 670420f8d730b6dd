//! A configuration file as tables of raw values with their line numbers.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::problem::{ConfigError, Problem};
use super::raw::Raw;
use super::{repeated_sections, sections};

/// The tables of a file. The empty document represents a missing file.
#[derive(Debug, Default)]
pub struct Document {
    pub file: PathBuf,
    pub tables: Vec<Table>,
}

/// A `[section]`, or one of several `[[section]]`.
#[derive(Debug)]
pub struct Table {
    pub name: String,
    pub line: usize,
    pub repeated: bool,
    /// The name in place of [`PLACEHOLDER`] in its header.
    pub of: Option<String>,
    pub entries: Vec<Entry>,
}

/// Placeholder in the name of a section that exists once per name.
pub const PLACEHOLDER: &str = "NAME";

#[derive(Debug)]
pub struct Entry {
    pub key: String,
    pub line: usize,
    pub value: Raw,
}

impl Document {
    pub fn open(file: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read(file)
            .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
            .map_err(|cause| ConfigError::Unreadable {
                file: file.to_owned(),
                cause,
            })?;
        Self::parse(file, &text).map_err(|problem| ConfigError::Wrong(vec![problem]))
    }

    pub fn parse(file: &Path, text: &str) -> Result<Self, Problem> {
        let lines = Lines { file, text };
        let root = DeTable::parse(text).map_err(|error| lines.syntax(&error))?;
        let mut tables = Vec::new();
        for (key, value) in root.get_ref() {
            lines.tables(key, value, &mut tables)?;
        }
        tables.sort_by_key(|table| table.line);
        Ok(Self {
            file: file.to_owned(),
            tables,
        })
    }

    /// The one table of this name.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    pub fn place(&self, line: usize) -> String {
        format!("{}:{line}", self.file.display())
    }
}

fn is_section(name: &str) -> bool {
    let all = sections().into_iter().chain(repeated_sections());
    let mut first = all.filter_map(|settings| settings.first());
    first.any(|setting| setting.section == name)
}

impl Table {
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

/// The text of a file, to find lines in.
struct Lines<'a> {
    file: &'a Path,
    text: &'a str,
}

fn is_tables(items: &DeArray<'_>) -> bool {
    !items.is_empty() && items.iter().all(|item| item.get_ref().is_table())
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

impl Lines<'_> {
    fn tables(
        &self,
        key: &Key<'_>,
        value: &Spanned<DeValue<'_>>,
        into: &mut Vec<Table>,
    ) -> Result<(), Problem> {
        match value.get_ref() {
            DeValue::Table(table) => {
                let name = key.get_ref().as_ref();
                self.nested(name, table, self.line(&key.span()), into);
            }
            DeValue::Array(items) if is_tables(items) => {
                for item in items {
                    let line = self.line(&item.span());
                    into.extend(
                        item.get_ref()
                            .as_table()
                            .map(|table| self.table(key.get_ref(), table, line, true)),
                    );
                }
            }
            _ => return Err(self.outside(key)),
        }
        Ok(())
    }

    /// A section and the ones inside it: `[serve]` and `[serve.media]`.
    fn nested(&self, name: &str, table: &DeTable<'_>, line: usize, into: &mut Vec<Table>) {
        let mut own = self.table(name, table, line, false);
        for (key, value) in table {
            let inside = format!("{name}.{}", key.get_ref());
            if !is_section(&inside) {
                if let Some(table) = value.get_ref().as_table()
                    && self.named(name, key, table, into)
                {
                    own.entries
                        .retain(|entry| entry.key != key.get_ref().as_ref());
                }
                continue;
            }
            match value.get_ref() {
                DeValue::Table(inner) => {
                    self.nested(&inside, inner, self.line(&key.span()), into);
                }
                DeValue::Array(items) if is_tables(items) => {
                    into.extend(items.iter().filter_map(|item| {
                        let table = item.get_ref().as_table()?;
                        Some(self.table(&inside, table, self.line(&item.span()), true))
                    }));
                }
                _ => continue,
            }
            own.entries
                .retain(|entry| entry.key != key.get_ref().as_ref());
        }
        into.push(own);
    }

    /// The sections of one of many names: `[models.NAME.upstream]`, also as `upstream = { }` in `[models.NAME]`. False
    /// where the table has another one.
    fn named(&self, name: &str, of: &Key<'_>, table: &DeTable<'_>, into: &mut Vec<Table>) -> bool {
        let section = |key: &str| format!("{name}.{PLACEHOLDER}.{key}");
        let is_known = |(key, value): (&Key<'_>, &Spanned<DeValue<'_>>)| {
            is_section(&section(key.get_ref())) && value.get_ref().is_table()
        };
        if table.is_empty() || !table.iter().all(is_known) {
            return false;
        }
        into.extend(table.iter().filter_map(|(key, value)| {
            let (line, inner) = (self.line(&key.span()), value.get_ref().as_table()?);
            let table = self.table(&section(key.get_ref()), inner, line, true);
            Some(Table {
                of: Some(of.get_ref().to_string()),
                ..table
            })
        }));
        true
    }

    fn table(&self, name: &str, table: &DeTable<'_>, line: usize, repeated: bool) -> Table {
        let mut entries: Vec<Entry> = table
            .iter()
            .map(|(key, value)| self.entry(key, value))
            .collect();
        entries.sort_by_key(|entry| entry.line);
        Table {
            name: name.to_owned(),
            line,
            repeated,
            of: None,
            entries,
        }
    }

    fn entry(&self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) -> Entry {
        let line = self.line(&key.span());
        Entry {
            key: key.get_ref().to_string(),
            line,
            value: Raw::from_toml(value.get_ref()),
        }
    }

    fn outside(&self, key: &Key<'_>) -> Problem {
        let what = format!(
            "{} is outside a section: move it below a [section]",
            key.get_ref()
        );
        self.problem(&key.span(), what)
    }

    fn syntax(&self, error: &toml::de::Error) -> Problem {
        let what = error.message().lines().collect::<Vec<_>>().join(", ");
        self.problem(&error.span().unwrap_or(0..0), what)
    }

    fn problem(&self, span: &Range<usize>, what: String) -> Problem {
        Problem {
            place: format!("{}:{}", self.file.display(), self.line(span)),
            what,
        }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        let before = self
            .text
            .as_bytes()
            .get(..span.start)
            .unwrap_or(self.text.as_bytes());
        1 + before.iter().filter(|byte| **byte == b'\n').count()
    }
}
