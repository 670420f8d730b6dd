//! What may be written in an entry of the catalog. Never leaves this file: out comes an [`Entry`] that is
//! complete and coherent, or a sentence about what is wrong.

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;

use super::{
    Component, ComposingDefaults, Defaults, DrawingDefaults, Embedded, Entry, Facts, Family,
    FilmingDefaults, ImageFacts, KINDS, Kind, MusicFacts, Names, Shape, Source, SpeechFacts,
    TextFacts, TranscriptionFacts, VideoFacts,
    complete::refuse_incomplete,
    component::{self, COMPONENT, ComponentToml},
    entry::{QUANTIZATIONS, kind_named},
    keys::{ENTRY, NAMES, SHAPE, refuse_unknown, unknown},
};
use crate::hub;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryToml {
    id: String,
    #[serde(default)]
    description: String,
    family: String,
    kind: String,
    licence: String,
    /// Of text models.
    context: Option<u64>,
    shape: Option<ShapeToml>,
    /// Of models that make or hear media.
    parameters: Option<u64>,
    default_quantization: String,
    names: NamesToml,
    #[serde(default)]
    defaults: DefaultsToml,
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
    layers: u64,
    kv_heads: u64,
    head_dim: u64,
}

#[derive(Deserialize, Default, PartialEq)]
#[serde(deny_unknown_fields)]
struct DefaultsToml {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    size: Option<[u32; 2]>,
    steps: Option<u32>,
    cfg_scale: Option<f32>,
    sampler: Option<String>,
    schedule: Option<String>,
    clip_skip: Option<u32>,
    frames: Option<u32>,
    rate: Option<f32>,
    seconds: Option<f32>,
}

const DEFAULTS: &[&str] = &[
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
];

const IMAGE_DEFAULTS: &[&str] = &[
    "size",
    "steps",
    "cfg_scale",
    "sampler",
    "schedule",
    "clip_skip",
];

const VIDEO_DEFAULTS: &[&str] = &["size", "frames", "rate", "steps", "cfg_scale"];

const MUSIC_DEFAULTS: &[&str] = &["seconds", "steps", "cfg_scale"];

/// The file that names the components of a model that draws, makes videos or makes music.
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
    let sound_parameters = sound_parameters(&raw);
    if family.kind() != kind {
        let (family, wanted) = (family.word(), family.kind().name());
        return Err(format!(
            "kind of the family {family} must be {wanted}, found {}",
            kind.name()
        ));
    }
    let components = component::read(raw.components, folder, kind)?;
    let entry = Entry {
        family,
        sources: sources(raw.sources, folder, kind, &components)?,
        components,
        facts: match kind {
            Kind::Image => Facts::Image(image_facts(
                raw.context,
                raw.shape,
                raw.parameters,
                raw.defaults,
            )?),
            Kind::Transcription => Facts::Transcription(TranscriptionFacts {
                parameters: sound_parameters?,
            }),
            Kind::Speech => Facts::Speech(SpeechFacts {
                parameters: sound_parameters?,
            }),
            Kind::Video => Facts::Video(video_facts(
                raw.context,
                raw.shape,
                raw.parameters,
                &raw.defaults,
            )?),
            Kind::Music => Facts::Music(music_facts(
                raw.context,
                raw.shape,
                raw.parameters,
                &raw.defaults,
            )?),
            _ => Facts::Text(text_facts(
                raw.context,
                raw.shape,
                raw.parameters,
                raw.defaults,
            )?),
        },
        id: raw.id,
        description: raw.description,
        licence: raw.licence,
        default_quantization: raw.default_quantization,
        names: Names {
            v1: raw.names.v1,
            legacy: raw.names.legacy,
        },
    };
    check(&entry)?;
    Ok(entry)
}

fn text_facts(
    context: Option<u64>,
    shape: Option<ShapeToml>,
    parameters: Option<u64>,
    defaults: DefaultsToml,
) -> Result<TextFacts, String> {
    let (Some(context), Some(shape), None) = (context, shape, parameters) else {
        return Err(
            "a text model needs context and shape, and has its parameters in shape".to_owned(),
        );
    };
    Ok(TextFacts {
        context,
        shape: Shape {
            parameters: shape.parameters,
            layers: shape.layers,
            kv_heads: shape.kv_heads,
            head_dim: shape.head_dim,
        },
        defaults: Defaults {
            temperature: defaults.temperature,
            top_k: defaults.top_k,
            top_p: defaults.top_p,
            min_p: defaults.min_p,
            repetition_penalty: defaults.repetition_penalty,
        },
    })
}

fn image_facts(
    context: Option<u64>,
    shape: Option<ShapeToml>,
    parameters: Option<u64>,
    defaults: DefaultsToml,
) -> Result<ImageFacts, String> {
    let (None, None, Some(parameters)) = (context, shape, parameters) else {
        return Err("an image model needs parameters, and has no context and no shape".to_owned());
    };
    Ok(ImageFacts {
        parameters,
        defaults: DrawingDefaults {
            size: defaults.size,
            steps: defaults.steps,
            cfg_scale: defaults.cfg_scale,
            sampler: defaults.sampler,
            schedule: defaults.schedule,
            clip_skip: defaults.clip_skip,
        },
    })
}

/// Of a model that hears or speaks.
fn sound_parameters(raw: &EntryToml) -> Result<u64, String> {
    let kind = &raw.kind;
    let (None, None, Some(parameters)) = (raw.context, &raw.shape, raw.parameters) else {
        return Err(format!(
            "a {kind} model needs parameters, and has no context and no shape"
        ));
    };
    match raw.defaults == DefaultsToml::default() {
        true => Ok(parameters),
        false => Err(format!("a {kind} model has no defaults")),
    }
}

fn video_facts(
    context: Option<u64>,
    shape: Option<ShapeToml>,
    parameters: Option<u64>,
    defaults: &DefaultsToml,
) -> Result<VideoFacts, String> {
    let (None, None, Some(parameters)) = (context, shape, parameters) else {
        return Err("a video model needs parameters, and has no context and no shape".to_owned());
    };
    Ok(VideoFacts {
        parameters,
        defaults: FilmingDefaults {
            size: defaults.size,
            frames: defaults.frames,
            rate: defaults.rate,
            steps: defaults.steps,
            cfg_scale: defaults.cfg_scale,
        },
    })
}

fn music_facts(
    context: Option<u64>,
    shape: Option<ShapeToml>,
    parameters: Option<u64>,
    defaults: &DefaultsToml,
) -> Result<MusicFacts, String> {
    let (None, None, Some(parameters)) = (context, shape, parameters) else {
        return Err("a music model needs parameters, and has no context and no shape".to_owned());
    };
    Ok(MusicFacts {
        parameters,
        defaults: ComposingDefaults {
            seconds: defaults.seconds,
            steps: defaults.steps,
            cfg_scale: defaults.cfg_scale,
        },
    })
}

/// Serde would list all keys; this names the nearest one.
fn refuse_unknown_keys(table: &toml::Table) -> Result<(), String> {
    refuse_unknown(table, ENTRY, "the entry")?;
    let defaults = match table.get("kind").and_then(toml::Value::as_str) {
        Some("image") => IMAGE_DEFAULTS,
        Some("video") => VIDEO_DEFAULTS,
        Some("music") => MUSIC_DEFAULTS,
        _ => DEFAULTS,
    };
    for (part, known) in [("names", NAMES), ("shape", SHAPE), ("defaults", defaults)] {
        if let Some(toml::Value::Table(part_table)) = table.get(part) {
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
    let check = |source: &hub::Source| refuse_incomplete(kind, source, &elsewhere);
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
    match &entry.facts {
        Facts::Text(facts) => check_text(facts)?,
        Facts::Image(facts) => check_image(facts)?,
        Facts::Transcription(TranscriptionFacts { parameters: 0 })
        | Facts::Speech(SpeechFacts { parameters: 0 }) => {
            return Err("parameters is out of range".to_owned());
        }
        Facts::Transcription(_) | Facts::Speech(_) => {}
        Facts::Video(facts) => check_video(facts)?,
        Facts::Music(facts) => check_music(facts)?,
    }
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

fn check_music(facts: &MusicFacts) -> Result<(), String> {
    let MusicFacts {
        parameters,
        defaults,
    } = facts;
    let is_short = |seconds: f32| (0.5..=600.0).contains(&seconds);
    let sizes = [
        ("parameters", *parameters > 0),
        ("defaults.seconds", defaults.seconds.is_none_or(is_short)),
        (
            "defaults.cfg_scale",
            defaults
                .cfg_scale
                .is_none_or(|scale| (0.0..=100.0).contains(&scale)),
        ),
        (
            "defaults.steps",
            defaults
                .steps
                .is_none_or(|steps| (1..=100).contains(&steps)),
        ),
    ];
    match sizes.iter().find(|(_, is_good)| !is_good) {
        Some((name, _)) => Err(format!("{name} is out of range")),
        None => Ok(()),
    }
}

fn check_text(facts: &TextFacts) -> Result<(), String> {
    let shape = &facts.shape;
    let sizes = [
        facts.context,
        shape.parameters,
        shape.layers,
        shape.kv_heads,
        shape.head_dim,
    ];
    match sizes.contains(&0) {
        true => Err("context and shape must be greater than 0".to_owned()),
        false => check_defaults(&facts.defaults),
    }
}

/// What an entry may recommend is what the engine takes of a request.
fn check_image(facts: &ImageFacts) -> Result<(), String> {
    let defaults = &facts.defaults;
    let sides = defaults.size.into_iter().flatten();
    let wrong = [
        ("parameters", facts.parameters == 0),
        (
            "defaults.size",
            sides.into_iter().any(|side| !(32..=4096).contains(&side)),
        ),
        (
            "defaults.steps",
            defaults
                .steps
                .is_some_and(|steps| !(1..=500).contains(&steps)),
        ),
        (
            "defaults.cfg_scale",
            defaults
                .cfg_scale
                .is_some_and(|scale| !(0.0..=100.0).contains(&scale)),
        ),
        ("defaults.clip_skip", defaults.clip_skip == Some(0)),
    ];
    match wrong.into_iter().find(|(_, is_wrong)| *is_wrong) {
        Some((name, _)) => Err(format!("{name} is out of range")),
        None => Ok(()),
    }
}

fn check_video(facts: &VideoFacts) -> Result<(), String> {
    let defaults = &facts.defaults;
    let sides = defaults.size.into_iter().flatten();
    let is_outside =
        |value: Option<u32>, most: u32| value.is_some_and(|it| !(1..=most).contains(&it));
    let wrong = [
        ("parameters", facts.parameters == 0),
        (
            "defaults.size",
            sides.into_iter().any(|side| !(16..=4096).contains(&side)),
        ),
        ("defaults.frames", is_outside(defaults.frames, 257)),
        (
            "defaults.rate",
            defaults
                .rate
                .is_some_and(|rate| !(1.0..=60.0).contains(&rate)),
        ),
        ("defaults.steps", is_outside(defaults.steps, 500)),
        (
            "defaults.cfg_scale",
            defaults
                .cfg_scale
                .is_some_and(|scale| !(0.0..=100.0).contains(&scale)),
        ),
    ];
    match wrong.into_iter().find(|(_, is_wrong)| *is_wrong) {
        Some((name, _)) => Err(format!("{name} is out of range")),
        None => Ok(()),
    }
}

/// What an entry may recommend is what a request may ask for.
fn check_defaults(defaults: &Defaults) -> Result<(), String> {
    let ranges = [
        ("temperature", defaults.temperature, 0.0..=100.0),
        ("top_p", defaults.top_p, 0.0..=1.0),
        ("min_p", defaults.min_p, 0.0..=1.0),
        (
            "repetition_penalty",
            defaults.repetition_penalty,
            0.01..=100.0,
        ),
    ];
    for (name, value, range) in ranges {
        let outside = |value: &f32| !range.contains(value);
        if let Some(found) = value.filter(outside) {
            let (least, most) = (range.start(), range.end());
            return Err(format!(
                "defaults.{name} must be between {least} and {most}, found {found}"
            ));
        }
    }
    Ok(())
}
