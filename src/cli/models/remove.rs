//! `worker models rm`.

use std::io::{BufRead, IsTerminal, stdin};

use serde::Serialize;

use crate::{
    catalog::Source,
    cli::{Exit, Failure, output, quantity},
};

use super::{
    place::Place,
    target::{Named, Target, absent},
};

/// Remove the files of a model.
///
/// Removes all quantizations unless one is named. Keeps files that another model uses, and files that another program
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

#[derive(Serialize)]
struct RemovedReport {
    bytes_freed: u64,
    removed: Vec<String>,
    kept: Vec<String>,
}

pub fn run(args: &Args, place: &Place) -> Result<(), Failure> {
    let present = Target::parse(&args.name, place)?.present(place)?;
    let bytes: u64 = present
        .iter()
        .map(|named| place.state(&named.source))
        .map(|state| state.bytes + state.partial.map_or(0, |partial| partial.here_bytes))
        .sum();
    if present
        .iter()
        .all(|named| place.state(&named.source).is_nothing())
    {
        return Err(absent(&args.name));
    }
    refuse_embedded(&present)?;
    if !args.yes {
        ask(&present, bytes)?;
    }
    let mut report = RemovedReport {
        bytes_freed: 0,
        removed: Vec::new(),
        kept: Vec::new(),
    };
    for named in &present {
        remove(named, args.shared, place, &mut report)?;
    }
    if args.json {
        return output::json(&report);
    }
    for kept in &report.kept {
        output::line(format!(
            "kept {kept}: downloaded by another program (--shared removes it, too)"
        ))?;
    }
    let count = quantity::count(report.removed.len() as u64, "file");
    output::line(format!(
        "removed {count}, freed {}",
        quantity::bytes(report.bytes_freed)
    ))
}

fn refuse_embedded(present: &[Named]) -> Result<(), Failure> {
    let is_embedded = |named: &&Named| matches!(named.source, Source::Embedded(_));
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
    shared: bool,
    place: &Place,
    report: &mut RemovedReport,
) -> Result<(), Failure> {
    let Source::Hub(source) = &named.source else {
        // A path belongs to its owner, not to us.
        report.kept.push(named.name.clone());
        return Ok(());
    };
    let removed = place.hub.remove(source, shared)?;
    let full = |path: &crate::hub::FilePath| format!("{}/{path}", source.repository);
    report.bytes_freed += removed.bytes;
    report.removed.extend(removed.files.iter().map(full));
    report.kept.extend(removed.kept.iter().map(full));
    Ok(())
}

fn ask(present: &[Named], bytes: u64) -> Result<(), Failure> {
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
