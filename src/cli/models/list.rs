//! `worker models list` and `show`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{
    catalog::{
        Component, ComposingDefaults, Defaults, DrawingDefaults, EmbeddingFacts, Entry,
        EntrySource, Facts, FilmingDefaults, KINDS, Kind, RankingFacts, Source, kind_named,
    },
    cli::{Failure, output, quantity, table::Table},
    hub::Partial,
};

use super::{
    place::{OnDisk, Place},
    report,
    target::{Target, of_repositories},
};

/// List all models and their state on disk.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker models list\n  worker models list image --fits     image models that this machine can hold\n  worker models list --on-disk\n  worker models list --json"
)]
pub struct Args {
    /// Kind of models: text, embedding, ranking, image, transcription, video, speech or music.
    #[arg(value_parser = kind)]
    kind: Option<Kind>,
    /// Only models that fit the memory of this machine.
    #[arg(long)]
    fits: bool,
    /// Only models with all files on disk.
    #[arg(long)]
    on_disk: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Show the details of one model.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker models show qwen3-0.6b\n  worker models show Qwen/Qwen3-0.6B --json"
)]
pub struct ShowArgs {
    /// Name of the model; NAME:QUANTIZATION shows one quantization only.
    name: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn kind(word: &str) -> Result<Kind, String> {
    kind_named(word).ok_or_else(|| {
        let words: Vec<_> = KINDS.iter().map(|(name, _)| *name).collect();
        format!("must be one of {}", words.join(", "))
    })
}

impl Args {
    fn shows(&self, entry: &Entry, quantization: &str, place: &Place) -> bool {
        let needs = entry.minimum_memory_bytes(quantization);
        let sources = entry.sources_of(quantization);
        let state = || place.state_of(sources.iter().map(|it| it.source));
        self.kind.is_none_or(|kind| kind == entry.kind())
            && (!self.fits || needs.is_some_and(|bytes| place.fits(bytes)))
            && (!self.on_disk || state().is_whole())
    }

    /// Kind and memory of a repository that is not in the catalog are unknown.
    fn shows_repository(&self, state: OnDisk) -> bool {
        self.kind.is_none() && !self.fits && (!self.on_disk || state.is_whole())
    }
}

pub fn run(args: &Args, place: &Place) -> Result<(), Failure> {
    let entries = place.catalog.entries();
    if args.json {
        let shown = entries.iter().map(|entry| {
            let is_shown = |quantization: &str| args.shows(entry, quantization, place);
            report::of_quantizations(entry, is_shown, place)
        });
        let models: Vec<_> = shown.filter(|model| !model.is_empty()).collect();
        return output::json(&models);
    }
    let mut table = Table::new([
        "MODEL",
        "KIND",
        "QUANTIZATION",
        "SIZE",
        "NEEDS",
        "FITS",
        "ON DISK",
        "LAST USED",
        "LICENCE",
    ]);
    let all = place.catalog.quantized();
    for (entry, quantization, sources) in
        all.filter(|(entry, name, _)| args.shows(entry, name, place))
    {
        table.row(row(entry, quantization, &sources, place));
        for it in &sources {
            if let Some((name, component)) = it.component {
                table.row(component_row(name, component, it.source, place));
            }
        }
    }
    for named in of_repositories(place)? {
        let (repository, file) = named.name.split_once(':').unwrap_or((&named.name, ""));
        let unknown = || "?".to_owned();
        let state = named.state(place);
        if !args.shows_repository(state) {
            continue;
        }
        let size = match state.partial {
            Some(partial) => quantity::bytes(state.bytes + partial.total_bytes),
            None => quantity::bytes(state.bytes),
        };
        let here = on_disk(state);
        table.row([
            repository.to_owned(),
            unknown(),
            file.to_owned(),
            size,
            unknown(),
            unknown(),
            here,
            last_used(place.last_used(&named.sources)),
            unknown(),
        ]);
    }
    output::text(table)?;
    output::line(
        "\n*: default quantization; +: component with files elsewhere, counted in the model's sizes; SIZE: download, ≈: computed from the architecture; NEEDS: memory, estimated for a short context or one image;\npartial: interrupted pull, which `worker models pull` resumes and `worker models rm` removes",
    )
}

fn row(
    entry: &Entry,
    quantization: &str,
    sources: &[EntrySource<'_>],
    place: &Place,
) -> [String; 9] {
    let taken = place.source(entry, None);
    let mark = match taken.is_ok_and(|(taken, _)| taken == quantization) {
        true => " *",
        false => "",
    };
    let needs = entry.minimum_memory_bytes(quantization);
    [
        entry.id.clone(),
        entry.kind().name().to_owned(),
        format!("{quantization}{mark}"),
        download(entry, quantization, sources),
        needs.map_or_else(|| "?".to_owned(), quantity::bytes),
        fits(needs, place).to_owned(),
        on_disk(place.state_of(sources.iter().map(|it| it.source))),
        last_used(place.last_used(sources.iter().map(|it| it.source))),
        entry.licence.clone(),
    ]
}

fn component_row(name: &str, component: &Component, source: &Source, place: &Place) -> [String; 9] {
    let of = component.model.as_ref();
    let of = of.map_or(String::new(), |model| format!(" of {model}"));
    let nothing = String::new;
    [
        format!("  + {name}{of}"),
        nothing(),
        nothing(),
        size(source).map_or_else(|| "?".to_owned(), quantity::bytes),
        nothing(),
        nothing(),
        on_disk(place.state(source)),
        nothing(),
        nothing(),
    ]
}

/// The size of the files or, where the catalog does not state one, that of the weights by their number.
fn download(entry: &Entry, quantization: &str, sources: &[EntrySource<'_>]) -> String {
    let computed = || {
        entry
            .weight_bytes(quantization)
            .map(|bytes| format!("≈ {}", quantity::bytes(bytes)))
    };
    let stated = size_of(sources).map(quantity::bytes);
    stated.or_else(computed).unwrap_or_else(|| "?".to_owned())
}

pub fn size_of(sources: &[EntrySource<'_>]) -> Option<u64> {
    sources.iter().map(|it| size(it.source)).sum()
}

/// Total size, if all files' sizes are known.
fn size(source: &Source) -> Option<u64> {
    match source {
        Source::Hub(hub) => hub.files.iter().map(|file| file.size_bytes).sum(),
        Source::Path(path) => path.metadata().ok().map(|found| found.len()),
        Source::Embedded(model) => Some(model.bytes()),
    }
}

fn fits(needs: Option<u64>, place: &Place) -> &'static str {
    match needs.map(|bytes| place.fits(bytes)) {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    }
}

fn on_disk(state: OnDisk) -> String {
    if let Some(partial) = state.partial {
        return partial_words(partial);
    }
    match state.present {
        _ if state.wrong > 0 => "damaged".to_owned(),
        0 => "-".to_owned(),
        _ if state.is_whole() => quantity::bytes(state.bytes),
        present => format!("{present} of {} files", state.files),
    }
}

/// `today` or `3 days ago`, for a time in seconds since the epoch.
fn last_used(at: Option<i64>) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let (Some(at), Ok(now)) = (at, now) else {
        return "-".to_owned();
    };
    match now.as_secs().saturating_sub(at.unsigned_abs()) / 86_400 {
        0 => "today".to_owned(),
        days => format!("{} ago", quantity::count(days, "day")),
    }
}

/// `partial, 12.0 MiB of 40.0 MiB`
pub fn partial_words(partial: Partial) -> String {
    let here = quantity::bytes(partial.here_bytes);
    format!(
        "partial, {here} of {}",
        quantity::bytes(partial.total_bytes)
    )
}

/// Mark of models whose networks are those of candle-transformers.
const ONE_JOB: &str = "one request at a time (network of candle-transformers)";

pub fn show(args: &ShowArgs, place: &Place) -> Result<(), Failure> {
    let (entry, quantization) = match Target::parse(&args.name, place)? {
        Target::Entry(entry, quantization) => (entry, quantization),
        // A repository that is not in the catalog has nothing to show but its files.
        Target::Repository(..) => (place.catalog.find(&args.name)?, None),
    };
    let named = match quantization {
        Some(_) => Some(entry.source(quantization)?.0),
        None => None,
    };
    if args.json {
        let is_shown = |name: &str| named.is_none_or(|named| named == name);
        return output::json(&report::of_quantizations(entry, is_shown, place));
    }
    let mut facts = Table::plain();
    let mut fact = |name: &str, value: String| facts.row([name.to_owned(), value]);
    fact("model", entry.id.clone());
    fact("description", entry.description.clone());
    fact("names", entry.names.v1.join(", "));
    fact("legacy names", entry.names.legacy.join(", "));
    fact("family", entry.family.word().to_owned());
    if entry.family.runs_one_job() {
        fact("jobs", ONE_JOB.to_owned());
    }
    fact("licence", entry.licence.clone());
    fact("kind", entry.kind().name().to_owned());
    fact("parameters", entry.parameters().to_string());
    match &entry.facts {
        Facts::Text(facts) => {
            fact("context", format!("{} tokens", facts.context));
            fact("sampling", sampling(&facts.defaults));
        }
        Facts::Embedding(EmbeddingFacts { context, .. })
        | Facts::Ranking(RankingFacts { context, .. }) => {
            fact("context", format!("{context} tokens"));
        }
        Facts::Image(facts) => fact("drawing", drawing(&facts.defaults)),
        Facts::Transcription(_) | Facts::Speech(_) => {}
        Facts::Video(facts) => fact("filming", filming(&facts.defaults)),
        Facts::Music(facts) => fact("composing", composing(facts.defaults)),
    }
    output::text(facts)?;
    let is_shown = |name: &str| named.is_none_or(|named| named == name);
    for quantization in entry.sources.keys().filter(|name| is_shown(name)) {
        output::line("")?;
        show_quantization(entry, quantization, place)?;
    }
    Ok(())
}

fn sampling(defaults: &Defaults) -> String {
    let known = [
        (
            "temperature",
            defaults.temperature.map(|value| value.to_string()),
        ),
        ("top_k", defaults.top_k.map(|value| value.to_string())),
        ("top_p", defaults.top_p.map(|value| value.to_string())),
        ("min_p", defaults.min_p.map(|value| value.to_string())),
        (
            "repetition_penalty",
            defaults.repetition_penalty.map(|value| value.to_string()),
        ),
    ];
    joined(known)
}

fn drawing(defaults: &DrawingDefaults) -> String {
    let size = defaults
        .size
        .map(|[width, height]| format!("{width}x{height}"));
    joined([
        ("size", size),
        ("steps", defaults.steps.map(|value| value.to_string())),
        (
            "cfg_scale",
            defaults.cfg_scale.map(|value| value.to_string()),
        ),
        ("sampler", defaults.sampler.clone()),
        ("schedule", defaults.schedule.clone()),
        (
            "clip_skip",
            defaults.clip_skip.map(|value| value.to_string()),
        ),
    ])
}

fn filming(defaults: &FilmingDefaults) -> String {
    let size = defaults
        .size
        .map(|[width, height]| format!("{width}x{height}"));
    joined([
        ("size", size),
        ("frames", defaults.frames.map(|value| value.to_string())),
        ("rate", defaults.rate.map(|value| value.to_string())),
        ("steps", defaults.steps.map(|value| value.to_string())),
        (
            "cfg_scale",
            defaults.cfg_scale.map(|value| value.to_string()),
        ),
    ])
}

fn composing(defaults: ComposingDefaults) -> String {
    joined([
        ("seconds", defaults.seconds.map(|value| value.to_string())),
        ("steps", defaults.steps.map(|value| value.to_string())),
        (
            "cfg_scale",
            defaults.cfg_scale.map(|value| value.to_string()),
        ),
    ])
}

/// The settings that have a value.
fn joined<const N: usize>(known: [(&str, Option<String>); N]) -> String {
    let set = known
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name} {}", value?)));
    set.collect::<Vec<_>>().join(", ")
}

fn show_quantization(entry: &Entry, quantization: &str, place: &Place) -> Result<(), Failure> {
    let sources = entry.sources_of(quantization);
    let needs = entry.minimum_memory_bytes(quantization);
    let words = match needs {
        Some(bytes) => format!("needs about {} of memory", quantity::bytes(bytes)),
        None => "needs an unknown amount of memory".to_owned(),
    };
    let fits = fits(needs, place);
    let state = on_disk(place.state_of(sources.iter().map(|it| it.source)));
    output::line(format!(
        "{quantization}: {words}, fits: {fits}, on disk: {state}"
    ))?;
    match place.shares(entry, quantization) {
        Some(Ok(share)) => {
            output::line(format!("  alone takes {}", share.fit))?;
            output::line(format!("  on {}", share.shares))?;
        }
        Some(Err(refusal)) => output::line(format!("  {refusal}"))?,
        None => {}
    }
    for it in sources {
        if let Some((name, component)) = it.component {
            show_component(name, component, it.source, place)?;
        }
        show_source(it.source, place)?;
    }
    Ok(())
}

/// `  vae, on disk: 319.1 MiB`
fn show_component(
    name: &str,
    component: &Component,
    source: &Source,
    place: &Place,
) -> Result<(), Failure> {
    let of = match &component.model {
        Some(model) => format!(", shared with {model}"),
        None => String::new(),
    };
    let size = size(source).map_or(String::new(), |bytes| {
        format!(", {}", quantity::bytes(bytes))
    });
    let state = on_disk(place.state(source));
    output::line(format!("  component {name}{of}{size}, on disk: {state}"))
}

fn show_source(source: &Source, place: &Place) -> Result<(), Failure> {
    match source {
        Source::Path(path) => output::line(format!("  {}", path.display())),
        Source::Embedded(_) => output::line("  built into this program"),
        Source::Hub(hub) => {
            let revision = hub
                .revision
                .as_ref()
                .map(|revision| format!(" at {revision}"));
            output::line(format!(
                "  {}{}",
                hub.repository,
                revision.unwrap_or_default()
            ))?;
            let mut files = Table::plain();
            for file in &hub.files {
                let size = file.size_bytes.map_or_else(String::new, quantity::bytes);
                let at = place
                    .hub
                    .present(hub, file)
                    .map_or_else(String::new, |path| path.display().to_string());
                files.row(["   ".to_owned(), file.path.to_string(), size, at]);
            }
            output::text(files)
        }
    }
}
