//! A setting, declared once, and the reader that finds its value.

use std::ops::RangeInclusive;
use std::path::Path;

use super::document::{Document, Table};
use super::nearest::nearest;
use super::problem::{ConfigError, Problem};
use super::raw::Raw;
use super::sources::{Environment, Sources};
use super::value::{Place, Value};
use super::{Config, CoordinatorConfig, Loaded, sections};

/// One key of one section, as declared.
#[derive(Debug)]
pub struct Setting {
    pub section: &'static str,
    pub key: &'static str,
    /// What it is and why one would change it.
    pub doc: &'static str,
    /// As it would stand in the file.
    pub default: Option<&'static str>,
    /// What happens when it is not set and has no default.
    pub unset: &'static str,
    pub range: Option<RangeInclusive<u64>>,
    /// Variables of other programs that fill it, last one first, and what follows their value.
    pub shared: &'static [(&'static str, &'static str)],
}

impl Setting {
    /// `engine.threads`
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// `MUSTER_ENGINE_THREADS`
    pub fn variable(&self) -> String {
        format!("MUSTER_{}_{}", self.section, self.key).to_uppercase()
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// `worker.toml:4`
    File(String),
    Variable(String),
    Flag(&'static str),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) => f.write_str(place),
            Self::Variable(name) => write!(f, "${name}"),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// A setting's value as it will be used, and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    /// As it would stand in the file, secrets hidden; or what being unset means.
    pub value: String,
    pub is_set: bool,
    pub origin: Origin,
}

/// Declares a section: its struct, its table of settings, and the reading of one from the other.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        pub struct $name:ident = $section:literal {
            $(
                $(#[doc = $doc:literal])+
                $key:ident : $type:ty
                    $(where ($range:expr))?
                    $(= $default:tt)?
                    $(; unset $unset:literal)?
                    $(; shared $shared:expr)?
            ),+ $(,)?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        pub struct $name { $($(#[doc = $doc])+ pub $key: $type),+ }

        impl $name {
            pub const SECTION: &str = $section;
            pub const ABOUT: &str = concat!($($about, "\n"),+);
            pub const SETTINGS: &[$crate::config::Setting] = &[$(
                #[allow(clippy::needless_update, reason = "a declaration may say everything")]
                $crate::config::Setting {
                    $(range: Some($range),)?
                    $(default: Some(stringify!($default)),)?
                    $(unset: $unset,)?
                    $(shared: $shared,)?
                    ..$crate::config::Setting::plain($section, stringify!($key), concat!($($doc, "\n"),+))
                }
            ),+];

            pub(super) fn read(reader: &mut $crate::config::setting::Reader<'_>) -> Option<Self> {
                let mut settings = Self::SETTINGS.iter();
                $(let $key = reader.value::<$type>(settings.next()?);)+
                Some(Self { $($key: $key?),+ })
            }
        }
    };
}
pub(super) use settings;

impl Setting {
    pub const fn plain(section: &'static str, key: &'static str, doc: &'static str) -> Self {
        Self {
            section,
            key,
            doc,
            default: None,
            unset: "",
            range: None,
            shared: &[],
        }
    }
}

/// Finds values, notes where they came from, and collects what is wrong.
pub struct Reader<'a> {
    sources: &'a Sources,
    document: &'a Document,
    /// The table being read, when it is one of several of its name, and its number.
    one_of: Option<(&'a Table, usize)>,
    found: Vec<Found>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

/// A raw value, where it was written, and what it is relative to.
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
        }
    }

    /// The value of a setting, or `None` after noting what is wrong with it.
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
                (value, origin)
            }
            None => match T::unset() {
                Some(value) => (value, Origin::Default),
                None => {
                    let what = format!(
                        "{} is missing; it must be {}",
                        self.name(setting),
                        T::wanted()
                    );
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

    /// Notes every key, section and variable that no setting stands for.
    pub fn refuse_unknown(&mut self) {
        for table in &self.document.tables {
            self.refuse_unknown_in(table);
        }
        self.refuse_unknown_variables();
    }

    /// Something about several values of the table being read.
    pub fn problem_here(&mut self, what: String) {
        self.problem(self.table_place(), what);
    }

    fn problem(&mut self, place: String, what: String) {
        self.problems.push(Problem { place, what });
    }

    pub fn finish(self, config: Option<Config>) -> Result<Loaded, ConfigError> {
        match config {
            Some(config) if self.problems.is_empty() => Ok(Loaded {
                config,
                found: self.found,
                warnings: self.warnings,
            }),
            _ => Err(ConfigError::Wrong(self.problems)),
        }
    }

    /// `engine.threads`, or `coordinator[2].url`.
    fn name(&self, setting: &Setting) -> String {
        match self.one_of {
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

    fn refuse_unknown_in(&mut self, table: &Table) {
        let here = self.document.place(table.line);
        let Some(settings) = known(&table.name) else {
            let names = sections()
                .into_iter()
                .filter_map(|settings| Some(settings.first()?.section));
            let meant = nearest(&table.name, names.chain([CoordinatorConfig::SECTION]));
            return self.problem(here, unknown("section", &table.name, meant));
        };
        if table.repeated != (table.name == CoordinatorConfig::SECTION) {
            return self.problem(here, wrong_brackets(table));
        }
        for entry in &table.entries {
            if !settings.iter().any(|setting| setting.key == entry.key) {
                let meant = nearest(&entry.key, settings.iter().map(|setting| setting.key));
                let what = unknown("setting", &format!("{}.{}", table.name, entry.key), meant);
                self.problem(self.document.place(entry.line), what);
            }
        }
    }

    /// A near miss is a typing error; anything else may belong to a program around us.
    fn refuse_unknown_variables(&mut self) {
        let known: Vec<String> = sections()
            .into_iter()
            .flatten()
            .map(Setting::variable)
            .collect();
        let known: Vec<&str> = known
            .iter()
            .filter_map(|name| name.strip_prefix(OURS))
            .collect();
        let ours = self
            .sources
            .environment
            .keys()
            .filter_map(|name| name.strip_prefix(OURS));
        for name in ours.filter(|name| !known.contains(name) && *name != "CONFIG") {
            // What all of them begin with would make them all look alike.
            let meant = nearest(name, known.iter().copied()).map(|name| format!("{OURS}{name}"));
            let what = unknown("variable", &format!("{OURS}{name}"), meant.as_deref());
            match meant {
                Some(_) => self.problems.push(Problem {
                    place: "environment".to_owned(),
                    what,
                }),
                None => self.warnings.push(what),
            }
        }
    }
}

/// What our variables begin with. `MUSTER_CONFIG` names the file itself.
const OURS: &str = "MUSTER_";

fn known(section: &str) -> Option<&'static [Setting]> {
    let mut all = sections().into_iter().chain([CoordinatorConfig::SETTINGS]);
    all.find(|settings| {
        settings
            .first()
            .is_some_and(|setting| setting.section == section)
    })
}

fn unknown(kind: &str, name: &str, meant: Option<&str>) -> String {
    match meant {
        Some(meant) => format!("unknown {kind} {name}; did you mean {meant}?"),
        None => format!("unknown {kind} {name}"),
    }
}

fn wrong_brackets(table: &Table) -> String {
    let name = &table.name;
    match table.repeated {
        true => format!("[[{name}]] must be [{name}]: there is only one"),
        false => format!("[{name}] must be [[{name}]]: there may be several"),
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
