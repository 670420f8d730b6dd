//! `worker models verify`.

use std::collections::HashSet;

use serde::Serialize;

use crate::{
    catalog::Source,
    cli::{Exit, Failure, meter::Meter, output, quantity},
    hub::Checked,
};

use super::{
    place::Place,
    target::{Named, Target, absent, of_repositories, present_of, users_of},
};

/// Verify the checksums of models on disk.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker models verify\n  worker models verify qwen3-0.6b llama-3.2-1b:q8_0"
)]
pub struct Args {
    /// Models or repositories (default: all pulled models).
    names: Vec<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct FileReport {
    model: String,
    file: String,
    /// Other models here that have the file, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shared_with: Vec<String>,
    state: &'static str,
    found_hash: Option<String>,
    wanted_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    found_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wanted_bytes: Option<u64>,
}

const NOTHING: &str = "no pulled model is on disk; built-in models are verified at each use";

pub fn run(args: &Args, place: &Place) -> Result<(), Failure> {
    let mut reports = Vec::new();
    let mut read = HashSet::new();
    let chosen = chosen(args, place)?;
    let sources = chosen.iter().flat_map(|named| {
        let sources = named.sources.iter();
        sources.map(move |source| (named, source))
    });
    for (named, source) in sources {
        let source = match source {
            Source::Hub(source) => source,
            // Embedded bytes are verified on every use.
            Source::Embedded(_) if !args.names.is_empty() => {
                let report = report(
                    &named.name,
                    "built in".to_owned(),
                    Checked::Right,
                    Vec::new(),
                );
                if !args.json {
                    show(&report)?;
                }
                reports.push(report);
                continue;
            }
            Source::Embedded(_) | Source::Path(_) => continue,
        };
        for file in &source.files {
            // A file of several models is read once.
            if !read.insert((&source.repository, &source.revision, &file.path)) {
                continue;
            }
            let meter = Meter::new(format!("verifying {}", file.path), !place.quiet);
            let mut watched = |done, total| meter.set(done, total);
            let checked = place.hub.verify(source, file, &mut watched)?;
            meter.end();
            let users = users_of(source, &file.path, &[named.name.as_str()], place);
            let users = users.into_iter().map(|user| user.name).collect();
            let report = report(&named.name, file.path.to_string(), checked, users);
            if !args.json {
                show(&report)?;
            }
            reports.push(report);
        }
    }
    if args.json {
        output::json(&reports)?;
    } else if reports.is_empty() {
        output::line(NOTHING)?;
    }
    verdict(&reports)
}

fn chosen(args: &Args, place: &Place) -> Result<Vec<Named>, Failure> {
    if args.names.is_empty() {
        let entries = place.catalog.entries().iter();
        let of_catalog = entries.flat_map(|entry| present_of(entry, place));
        return Ok(of_catalog.chain(of_repositories(place)?).collect());
    }
    let mut chosen = Vec::new();
    for name in &args.names {
        let present = Target::parse(name, place)?.present(place)?;
        if present.iter().all(|named| named.state(place).is_nothing()) {
            return Err(absent(name));
        }
        chosen.extend(present);
    }
    Ok(chosen)
}

fn report(model: &str, file: String, checked: Checked, shared_with: Vec<String>) -> FileReport {
    let plain = move |state| FileReport {
        model: model.to_owned(),
        file,
        shared_with,
        state,
        found_hash: None,
        wanted_hash: None,
        found_bytes: None,
        wanted_bytes: None,
    };
    match checked {
        Checked::Right => plain("right"),
        Checked::Missing => plain("missing"),
        Checked::Partial(partial) => FileReport {
            found_bytes: Some(partial.here_bytes),
            wanted_bytes: Some(partial.total_bytes),
            ..plain("partial")
        },
        Checked::Wrong { found, wanted } => FileReport {
            found_hash: Some(found),
            wanted_hash: Some(wanted),
            ..plain("wrong")
        },
        Checked::WrongSize { found, wanted } => FileReport {
            found_bytes: Some(found),
            wanted_bytes: Some(wanted),
            ..plain("wrong")
        },
        Checked::Unknown { found } => FileReport {
            found_hash: Some(found),
            ..plain("unknown")
        },
    }
}

fn show(report: &FileReport) -> Result<(), Failure> {
    let hashes = match (&report.found_hash, &report.wanted_hash) {
        (Some(found), Some(wanted)) => format!(": checksum {found}, expected {wanted}"),
        (Some(found), None) => format!(": checksum {found}, expected value unknown"),
        _ => lengths(report),
    };
    let others = match report.shared_with.as_slice() {
        [] => String::new(),
        models => format!(" (also of {})", models.join(", ")),
    };
    output::line(format!(
        "{:7}  {}  {}{others}{hashes}",
        report.state, report.model, report.file
    ))
}

fn lengths(report: &FileReport) -> String {
    match (report.found_bytes, report.wanted_bytes) {
        (Some(found), Some(wanted)) if report.state == "partial" => {
            let (found, wanted) = (quantity::bytes(found), quantity::bytes(wanted));
            format!(": {found} of {wanted}")
        }
        (Some(found), Some(wanted)) => format!(": {found} bytes, expected {wanted}"),
        _ => String::new(),
    }
}

fn verdict(reports: &[FileReport]) -> Result<(), Failure> {
    let of = |state: &str| {
        reports
            .iter()
            .filter(|report| report.state == state)
            .collect::<Vec<_>>()
    };
    let (wrong, missing) = (of("wrong"), [of("missing"), of("partial")].concat());
    let count = |files: &[&FileReport]| quantity::count(files.len() as u64, "file");
    match (wrong.first(), missing.first()) {
        (Some(first), _) => {
            let model = &first.model;
            let sizes = wrong.iter().filter(|report| report.found_bytes.is_some());
            let of_what = match sizes.count() {
                0 => "checksum",
                sizes if sizes == wrong.len() => "size",
                _ => "checksum or size",
            };
            let others = first
                .shared_with
                .iter()
                .map(|other| format!(" and {other}"));
            let others: String = others.collect();
            let what = format!(
                "{} with a wrong {of_what}, first of {model}{others}",
                count(&wrong)
            );
            Err(Failure::new(Exit::BadData, what).hint(format!(
                "run `worker models rm {model} --shared --yes`, then `worker models pull {model}`"
            )))
        }
        (None, Some(first)) => {
            let model = &first.model;
            let what = format!(
                "{} missing or incomplete, first of {model}",
                count(&missing)
            );
            Err(Failure::new(Exit::NotFound, what).hint(format!(
                "`worker models pull {model}` downloads the missing files"
            )))
        }
        (None, None) => Ok(()),
    }
}
