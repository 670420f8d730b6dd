//! The TOML format of an entry in the catalog. Private to this file: returns a complete and consistent [`Entry`], or an
//! error.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{
    Component, Embedded, Entry, Facts, Family, KINDS, Kind, Names, Shape, Source,
    component::{self, COMPONENT, ComponentToml},
    entry::QUANTIZATIONS,
    keys::{ENTRY, NAMES, SHAPE, refuse_unknown, unknown},
    kinds::{StatedDefaults, StatedFacts, kind_named, rules},
};
use crate::hub;
use muster_protocol::job::KnownWords;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryToml {
    id: String,
    #[serde(default)]
    description: String,
    family: String,
    kind: String,
    licence: String,
    /// For text models.
    context: Option<u64>,
    shape: Option<ShapeToml>,
    /// For media models.
    parameters: Option<u64>,
    default_quantization: String,
    /// For small models that know few words.
    #[serde(default)]
    known_words: String,
    names: NamesToml,
    #[serde(default)]
    defaults: StatedDefaults,
    sources: BTreeMap<String, SourceToml>,
    #[serde(default)]
    components: BTreeMap<String, ComponentToml>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamesToml {
    #[serde(default)]
    v1: Vec<String>,
    #[serde(default)]
    legacy: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeToml {
    parameters: u64,
    active_parameters: Option<u64>,
    layers: u64,
    kv_heads: Option<u64>,
    head_dim: Option<u64>,
    /// For latent attention, instead of the two above: `kv_lora_rank` and `qk_rope_head_dim` together.
    latent_dim: Option<u64>,
}

/// The file that names the components of a model.
pub const IMAGE_INDEX: &str = "model_index.json";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceToml {
    repository: Option<String>,
    revision: Option<String>,
    #[serde(default)]
    files: Vec<FileToml>,
    path: Option<String>,
    embedded: Option<String>,
}

const SOURCE: &[&str] = &["repository", "revision", "files", "path", "embedded"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileToml {
    path: String,
    size: Option<u64>,
    sha256: Option<String>,
}

const FILE: &[&str] = &["path", "size", "sha256"];

/// Paths in the entry are relative to `folder`.
pub fn read(text: &str, folder: Option<&Path>) -> Result<Entry, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    refuse_unknown_keys(&table)?;
    let raw: EntryToml = toml::from_str(text).map_err(|error| error.to_string())?;
    let family = word("family", &raw.family, Family::ALL)?;
    let kind = kind_named(&raw.kind).ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
        unknown("kind", &raw.kind, &known)
    })?;
    if family.kind() != kind {
        let (family, wanted) = (family.word(), family.kind().name());
        return Err(format!(
            "kind of the family {family} must be {wanted}, found {}",
            kind.name()
        ));
    }
    let components = component::read(raw.components, folder, kind)?;
    let sources = sources(raw.sources, folder, kind, &components)?;
    let facts = Facts::read(
        kind,
        StatedFacts {
            context: raw.context,
            shape: raw.shape.map(shape).transpose()?,
            parameters: raw.parameters,
            defaults: raw.defaults,
        },
    )?;
    let entry = Entry {
        family,
        sources,
        components,
        facts,
        id: raw.id,
        description: raw.description,
        licence: raw.licence,
        default_quantization: raw.default_quantization,
        known_words: KnownWords::of(&raw.known_words),
        names: Names {
            v1: raw.names.v1,
            legacy: raw.names.legacy,
        },
    };
    check(&entry)?;
    Ok(entry)
}

fn shape(raw: ShapeToml) -> Result<Shape, String> {
    let kv_dim = match (raw.kv_heads, raw.head_dim, raw.latent_dim) {
        (Some(heads), Some(dim), None) => heads
            .checked_mul(dim)
            .and_then(|keys| keys.checked_mul(2))
            .ok_or("shape.kv_heads is out of range")?,
        (None, None, Some(latent)) => latent,
        _ => {
            return Err("shape needs kv_heads and head_dim, or latent_dim".to_owned());
        }
    };
    Ok(Shape {
        parameters: raw.parameters,
        active_parameters: raw.active_parameters.unwrap_or(raw.parameters),
        layers: raw.layers,
        kv_dim,
    })
}

/// Serde would list all keys; this names the nearest one.
fn refuse_unknown_keys(table: &toml::Table) -> Result<(), String> {
    refuse_unknown(table, ENTRY, "the entry")?;
    let kind = table.get("kind").and_then(toml::Value::as_str);
    let kind = kind.and_then(kind_named).unwrap_or(Kind::Text);
    let defaults = rules(kind).defaults;
    for (part, known) in [("names", NAMES), ("shape", SHAPE), ("defaults", defaults)] {
        if let Some(toml::Value::Table(part_table)) = table.get(part)
            && !known.is_empty()
        {
            refuse_unknown(part_table, known, part)?;
        }
    }
    refuse_unknown_in_sources(table, "sources")?;
    for (name, component) in tables(table, "components") {
        let place = format!("components.{name}");
        refuse_unknown(component, COMPONENT, &place)?;
        refuse_unknown_in_sources(component, &format!("{place}.sources"))?;
    }
    Ok(())
}

fn tables<'a>(
    table: &'a toml::Table,
    name: &str,
) -> impl Iterator<Item = (&'a String, &'a toml::Table)> {
    let inner = table.get(name).and_then(toml::Value::as_table);
    let inner = inner.into_iter().flatten();
    inner.filter_map(|(name, value)| Some((name, value.as_table()?)))
}

fn refuse_unknown_in_sources(table: &toml::Table, place: &str) -> Result<(), String> {
    for (name, source) in tables(table, "sources") {
        refuse_unknown(source, SOURCE, &format!("{place}.{name}"))?;
        let files = source.get("files").and_then(toml::Value::as_array);
        for file in files
            .into_iter()
            .flatten()
            .filter_map(toml::Value::as_table)
        {
            refuse_unknown(file, FILE, &format!("a file of {place}.{name}"))?;
        }
    }
    Ok(())
}

fn word<T: Copy>(what: &str, found: &str, all: &[(&str, T)]) -> Result<T, String> {
    let known: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
    all.iter()
        .find(|(word, _)| *word == found)
        .map(|(_, value)| *value)
        .ok_or_else(|| unknown(what, found, &known))
}

fn sources(
    raw: BTreeMap<String, SourceToml>,
    folder: Option<&Path>,
    kind: Kind,
    components: &BTreeMap<String, Component>,
) -> Result<BTreeMap<String, Source>, String> {
    let elsewhere: Vec<&str> = components.keys().map(String::as_str).collect();
    let check = |source: &hub::Source| (rules(kind).refuse_incomplete)(source, &elsewhere);
    raw.into_iter()
        .map(|(quantization, raw)| {
            self::quantization(&quantization)?;
            let source = source(raw, folder, check)
                .map_err(|what| format!("sources.{quantization}: {what}"))?;
            Ok((quantization, source))
        })
        .collect()
}

/// Whether this is the word of a quantization.
pub fn quantization(found: &str) -> Result<(), String> {
    word("quantization", found, QUANTIZATIONS).map(|_| ())
}

/// `check` refuses a list of files that lacks one.
pub fn source(
    raw: SourceToml,
    folder: Option<&Path>,
    check: impl Fn(&hub::Source) -> Result<(), String>,
) -> Result<Source, String> {
    match (raw.repository, raw.path, raw.embedded) {
        (Some(repository), None, None) => {
            let source = hub::Source {
                repository: parsed(&repository)?,
                revision: raw.revision.as_deref().map(parsed).transpose()?,
                files: raw
                    .files
                    .into_iter()
                    .map(file)
                    .collect::<Result<_, String>>()?,
            };
            check(&source)?;
            Ok(Source::Hub(source))
        }
        (None, Some(_), None) | (None, None, Some(_))
            if !raw.files.is_empty() || raw.revision.is_some() =>
        {
            Err("a path takes no revision and no files".to_owned())
        }
        (None, Some(path), None) => Ok(Source::Path(folder.unwrap_or(Path::new("")).join(path))),
        (None, None, Some(name)) => match Embedded::find(&name) {
            Some(model) => Ok(Source::Embedded(model)),
            None => Err(unknown("embedded", &name, &Embedded::names())),
        },
        _ => Err("a source needs either a repository or a path".to_owned()),
    }
}

fn file(raw: FileToml) -> Result<hub::SourceFile, String> {
    Ok(hub::SourceFile {
        path: parsed(&raw.path)?,
        size_bytes: raw.size,
        sha256: raw.sha256.as_deref().map(parsed).transpose()?,
    })
}

pub fn parsed<T: std::str::FromStr<Err = hub::BadName>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|bad: hub::BadName| bad.to_string())
}

fn check(entry: &Entry) -> Result<(), String> {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
    if entry.id.is_empty() || !entry.id.bytes().all(plain) {
        return Err(format!(
            "invalid id {:?}: use lower-case letters, digits, dots, dashes and underscores",
            entry.id
        ));
    }
    // `NAME:QUANTIZATION` must stay readable.
    if let Some(name) = entry
        .all_names()
        .find(|name| name.is_empty() || name.contains(':'))
    {
        return Err(format!(
            "invalid name {name:?}: must not be empty or contain a colon"
        ));
    }
    entry.facts.check()?;
    component::check(entry)?;
    let known: Vec<&str> = entry.sources.keys().map(String::as_str).collect();
    match known.contains(&entry.default_quantization.as_str()) {
        true => Ok(()),
        false => Err(format!(
            "default_quantization {} has no source; sources: {}",
            entry.default_quantization,
            known.join(", ")
        )),
    }
}
