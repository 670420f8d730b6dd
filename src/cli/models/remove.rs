//! `worker models rm`.

use std::io::{BufRead, IsTerminal, stdin};

use serde::Serialize;

use crate::{
    catalog::Source,
    cli::{Exit, Failure, output, quantity},
    hub::{FilePath, SourceFile},
};

use super::{
    place::Place,
    target::{Named, Target, absent, users_of},
};

/// Remove the files of a model.
///
/// Removes all quantizations unless one is named. Keeps files that another complete model uses, and files that another program
/// downloaded unless --shared is given.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker models rm qwen3-0.6b\n  worker models rm llama-3.2-1b:q8_0 --yes\n  worker models rm org/name --shared --yes"
)]
pub struct Args {
    /// Catalog model (NAME or NAME:QUANTIZATION) or repository (org/name or org/name:FILE).
    name: String,
    /// Remove without asking.
    #[arg(long, short)]
    yes: bool,
    /// Also remove files that another program downloaded to the shared cache.
    #[arg(long)]
    shared: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
pub struct RemovedReport {
    bytes_freed: u64,
    pub removed: Vec<String>,
    /// Files that another program downloaded, and paths.
    pub kept: Vec<String>,
    in_use: Vec<UsedFile>,
}

/// A file that stays for other models.
#[derive(Serialize)]
struct UsedFile {
    file: String,
    models: Vec<String>,
}

pub fn run(args: &Args, place: &Place) -> Result<(), Failure> {
    let present = removable(&args.name, place)?;
    if !args.yes {
        ask(&present, place)?;
    }
    let report = remove_files(&present, args.shared, place)?;
    if args.json {
        return output::json(&report);
    }
    for kept in &report.kept {
        output::line(format!(
            "kept {kept}: downloaded by another program (--shared removes it, too)"
        ))?;
    }
    for used in &report.in_use {
        let models = used.models.join(", ");
        output::line(format!("kept {}: used by {models}", used.file))?;
    }
    let count = quantity::count(report.removed.len() as u64, "file");
    output::line(format!(
        "removed {count}, freed {}",
        quantity::bytes(report.bytes_freed)
    ))
}

/// The sources of a model on disk that can be removed.
pub fn removable(name: &str, place: &Place) -> Result<Vec<Named>, Failure> {
    let present = Target::parse(name, place)?.present(place)?;
    if present.iter().all(|named| named.state(place).is_nothing()) {
        return Err(absent(name));
    }
    refuse_embedded(&present)?;
    Ok(present)
}

/// With `shared`, also files that another program downloaded.
pub fn remove_files(
    present: &[Named],
    shared: bool,
    place: &Place,
) -> Result<RemovedReport, Failure> {
    let mut report = RemovedReport::default();
    let names: Vec<&str> = present.iter().map(|named| named.name.as_str()).collect();
    for named in present {
        remove(named, &names, shared, place, &mut report)?;
    }
    Ok(report)
}

fn refuse_embedded(present: &[Named]) -> Result<(), Failure> {
    let is_embedded = |source: &Source| matches!(source, Source::Embedded(_));
    let is_embedded = |named: &&Named| named.sources.iter().all(is_embedded);
    match present.iter().find(is_embedded) {
        Some(Named { name, .. }) => Err(Failure::new(
            Exit::Failed,
            format!("cannot remove {name}: the model is built into this program"),
        )),
        None => Ok(()),
    }
}

fn remove(
    named: &Named,
    all: &[&str],
    shared: bool,
    place: &Place,
    report: &mut RemovedReport,
) -> Result<(), Failure> {
    for source in &named.sources {
        let source = match source {
            Source::Hub(source) => source,
            // A path belongs to its owner, not to us.
            Source::Path(_) => {
                report.kept.push(named.name.clone());
                continue;
            }
            Source::Embedded(_) => continue,
        };
        let full = |path: &FilePath| format!("{}/{path}", source.repository);
        let mut used = Vec::new();
        for SourceFile { path, .. } in &source.files {
            let users = users_of(source, path, all, place).into_iter();
            let users = users.filter(|user| user.state(place).is_whole());
            let models: Vec<String> = users.map(|user| user.name).collect();
            if !models.is_empty() {
                used.push(path.clone());
                let file = full(path);
                report.in_use.push(UsedFile { file, models });
            }
        }
        let removed = place.hub.remove(source, &used, shared)?;
        report.bytes_freed += removed.bytes;
        report.removed.extend(removed.files.iter().map(full));
        report.kept.extend(removed.kept.iter().map(full));
    }
    Ok(())
}

fn ask(present: &[Named], place: &Place) -> Result<(), Failure> {
    let states = present.iter().map(|named| named.state(place));
    let bytes = states
        .map(|state| state.bytes + state.partial.map_or(0, |partial| partial.here_bytes))
        .sum();
    let names: Vec<&str> = present.iter().map(|named| named.name.as_str()).collect();
    let names = names.join(" and ");
    if !stdin().is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            format!("removing {names} needs a confirmation, and standard input is not a terminal"),
        )
        .hint("use --yes to remove without asking"));
    }
    output::text(format!(
        "Remove {names} ({})? [y/N] ",
        quantity::bytes(bytes)
    ))?;
    let mut answer = String::new();
    stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(anyhow::Error::from)?;
    match matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        true => Ok(()),
        false => Err(Failure::new(Exit::Failed, "nothing removed")),
    }
}
