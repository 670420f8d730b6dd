//! Models as programs read them: `--json` of `list` and `show`.

use std::path::PathBuf;

use serde::Serialize;

use crate::catalog::{
    Component, Entry, Facts, ImageFacts, MusicFacts, Source, TextFacts, VideoFacts,
};

use crate::hub;
use crate::networks::single_sequence::LIBRARY;

use super::list::size_of;
use super::place::{Place, Share};

#[derive(Serialize)]
pub struct ModelReport<'a> {
    id: &'a str,
    description: &'a str,
    names: NamesReport<'a>,
    family: &'a str,
    /// The library whose network it is, which runs one request at a time; none for the engine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'static str>,
    kind: &'a str,
    licence: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context: Option<u64>,
    parameters: u64,
    default_quantization: &'a str,
    defaults: DefaultsReport<'a>,
    sources: Vec<SourceReport<'a>>,
}

#[derive(Serialize)]
struct NamesReport<'a> {
    v1: &'a [String],
    legacy: &'a [String],
}

#[derive(Serialize)]
#[serde(untagged)]
enum DefaultsReport<'a> {
    Text(SamplingReport),
    Image(DrawingReport<'a>),
    None {},
    Video(FilmingReport),
    Music(ComposingReport),
}

#[derive(Serialize)]
struct DrawingReport<'a> {
    size: Option<[u32; 2]>,
    steps: Option<u32>,
    cfg_scale: Option<f32>,
    sampler: Option<&'a str>,
    schedule: Option<&'a str>,
    clip_skip: Option<u32>,
}

#[derive(Serialize)]
struct FilmingReport {
    size: Option<[u32; 2]>,
    frames: Option<u32>,
    rate: Option<f32>,
    steps: Option<u32>,
    cfg_scale: Option<f32>,
}

#[derive(Serialize)]
struct ComposingReport {
    seconds: Option<f32>,
    steps: Option<u32>,
    cfg_scale: Option<f32>,
}

#[derive(Serialize)]
struct SamplingReport {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

#[derive(Serialize)]
struct SourceReport<'a> {
    quantization: &'a str,
    /// Whether `pull` takes this one where none is named.
    is_chosen: bool,
    repository: Option<&'a str>,
    revision: Option<&'a str>,
    path: Option<&'a PathBuf>,
    on_disk: bool,
    bytes_on_disk: u64,
    /// Last pull, load or request of a download, in seconds since the epoch.
    last_used: Option<i64>,
    /// Progress of an interrupted pull.
    partial: Option<PartialReport>,
    /// Size of the download, where the catalog states it; else computed from the number of parameters.
    size_bytes: Option<u64>,
    size_is_computed: bool,
    /// Memory for the weights, a short context and the work itself; an estimate.
    minimum_memory_bytes: Option<u64>,
    fits: Option<bool>,
    /// The memory shares of the model alone on its device, now; null if it does not fit or its size is unknown.
    shares: Option<SharesReport>,
    files: Vec<FileReport<'a>>,
    /// Components whose files are elsewhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    components: Vec<ComponentReport<'a>>,
}

#[derive(Serialize)]
struct SharesReport {
    device: String,
    free_bytes: u64,
    weight_bytes: u64,
    kv_bytes: u64,
    kv_tokens: usize,
    pages: usize,
    /// Most tokens of one job.
    context: usize,
    workspace_bytes: u64,
    keep_free_bytes: u64,
    left_bytes: u64,
}

#[derive(Serialize)]
struct ComponentReport<'a> {
    name: &'a str,
    /// The model of the catalog whose files these are.
    model: Option<&'a str>,
    repository: Option<&'a str>,
    revision: Option<&'a str>,
    path: Option<&'a PathBuf>,
    folder: &'a str,
    on_disk: bool,
    bytes_on_disk: u64,
    files: Vec<FileReport<'a>>,
}

#[derive(Serialize)]
struct PartialReport {
    here_bytes: u64,
    total_bytes: u64,
}

#[derive(Serialize)]
struct FileReport<'a> {
    path: &'a str,
    size_bytes: Option<u64>,
    sha256: Option<&'a str>,
    at: Option<PathBuf>,
}

impl ModelReport<'_> {
    /// Whether no quantization is shown.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}

/// A model with the sources of some quantizations.
pub fn of_quantizations<'a>(
    entry: &'a Entry,
    is_shown: impl Fn(&str) -> bool,
    place: &Place,
) -> ModelReport<'a> {
    ModelReport {
        id: &entry.id,
        description: &entry.description,
        names: NamesReport {
            v1: &entry.names.v1,
            legacy: &entry.names.legacy,
        },
        family: entry.family.word(),
        network: entry.family.runs_one_job().then_some(LIBRARY),
        kind: entry.kind().name(),
        licence: &entry.licence,
        context: match &entry.facts {
            Facts::Text(facts) => Some(facts.context),
            Facts::Embedding(facts) => Some(facts.context),
            Facts::Ranking(facts) => Some(facts.context),
            _ => None,
        },
        parameters: entry.parameters(),
        default_quantization: &entry.default_quantization,
        defaults: defaults(&entry.facts),
        sources: entry
            .sources
            .iter()
            .filter(|(quantization, _)| is_shown(quantization))
            .map(|(quantization, own)| source_report(entry, quantization, own, place))
            .collect(),
    }
}

fn defaults(facts: &Facts) -> DefaultsReport<'_> {
    match facts {
        Facts::Text(TextFacts { defaults, .. }) => DefaultsReport::Text(SamplingReport {
            temperature: defaults.temperature,
            top_k: defaults.top_k,
            top_p: defaults.top_p,
            min_p: defaults.min_p,
            repetition_penalty: defaults.repetition_penalty,
        }),
        Facts::Embedding(_) | Facts::Ranking(_) | Facts::Transcription(_) | Facts::Speech(_) => {
            DefaultsReport::None {}
        }
        Facts::Video(VideoFacts { defaults, .. }) => DefaultsReport::Video(FilmingReport {
            size: defaults.size,
            frames: defaults.frames,
            rate: defaults.rate,
            steps: defaults.steps,
            cfg_scale: defaults.cfg_scale,
        }),
        Facts::Music(MusicFacts { defaults, .. }) => DefaultsReport::Music(ComposingReport {
            seconds: defaults.seconds,
            steps: defaults.steps,
            cfg_scale: defaults.cfg_scale,
        }),
        Facts::Image(ImageFacts { defaults, .. }) => DefaultsReport::Image(DrawingReport {
            size: defaults.size,
            steps: defaults.steps,
            cfg_scale: defaults.cfg_scale,
            sampler: defaults.sampler.as_deref(),
            schedule: defaults.schedule.as_deref(),
            clip_skip: defaults.clip_skip,
        }),
    }
}

fn source_report<'a>(
    entry: &'a Entry,
    quantization: &'a str,
    own: &'a Source,
    place: &Place,
) -> SourceReport<'a> {
    let sources = entry.sources_of(quantization);
    let state = place.state_of(sources.iter().map(|it| it.source));
    let size = size_of(&sources);
    let pulled = place.source(entry, None);
    let minimum_memory_bytes = entry.minimum_memory_bytes(quantization);
    let (hub, path) = parts(own);
    let components = sources.iter().filter_map(|it| {
        let (name, component) = it.component?;
        Some(component_report(name, component, it.source, place))
    });
    SourceReport {
        quantization,
        is_chosen: pulled.is_ok_and(|(name, _)| name == quantization),
        repository: hub.map(|hub| hub.repository.as_str()),
        revision: hub.and_then(|hub| Some(hub.revision.as_ref()?.as_str())),
        path,
        on_disk: state.is_whole(),
        bytes_on_disk: state.bytes,
        last_used: place.last_used(sources.iter().map(|it| it.source)),
        partial: state.partial.map(|partial| PartialReport {
            here_bytes: partial.here_bytes,
            total_bytes: partial.total_bytes,
        }),
        size_bytes: size.or_else(|| entry.weight_bytes(quantization)),
        size_is_computed: size.is_none(),
        minimum_memory_bytes,
        fits: minimum_memory_bytes.map(|bytes| place.fits(bytes)),
        shares: place
            .shares(entry, quantization)
            .and_then(Result::ok)
            .map(SharesReport::from),
        files: files(own, place),
        components: components.collect(),
    }
}

impl From<Share> for SharesReport {
    fn from(Share { fit, shares }: Share) -> Self {
        Self {
            device: shares.place,
            free_bytes: shares.free_bytes,
            weight_bytes: shares.weight_bytes,
            kv_bytes: shares.kv_bytes,
            kv_tokens: fit.kv_tokens,
            pages: shares.pages,
            context: fit.context,
            workspace_bytes: shares.workspace_bytes,
            keep_free_bytes: shares.kept_bytes,
            left_bytes: shares.left_bytes,
        }
    }
}

fn component_report<'a>(
    name: &'a str,
    component: &'a Component,
    source: &'a Source,
    place: &Place,
) -> ComponentReport<'a> {
    let state = place.state(source);
    let (hub, path) = parts(source);
    ComponentReport {
        name,
        model: component.model.as_deref(),
        repository: hub.map(|hub| hub.repository.as_str()),
        revision: hub.and_then(|hub| Some(hub.revision.as_ref()?.as_str())),
        path,
        folder: &component.folder,
        on_disk: state.is_whole(),
        bytes_on_disk: state.bytes,
        files: files(source, place),
    }
}

fn parts(source: &Source) -> (Option<&hub::Source>, Option<&PathBuf>) {
    match source {
        Source::Hub(hub) => (Some(hub), None),
        Source::Path(path) => (None, Some(path)),
        Source::Embedded(_) => (None, None),
    }
}

fn files<'a>(source: &'a Source, place: &Place) -> Vec<FileReport<'a>> {
    let Source::Hub(hub) = source else {
        return Vec::new();
    };
    let report = |file: &'a hub::SourceFile| FileReport {
        path: file.path.as_str(),
        size_bytes: file.size_bytes,
        sha256: file.sha256.as_ref().map(|hash| hash.as_str()),
        at: place.hub.present(hub, file),
    };
    hub.files.iter().map(report).collect()
}
