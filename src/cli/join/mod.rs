//! `worker join`: makes this machine work for a coordinator, in one line.

pub mod section;
pub mod token;

use std::path::{Path, PathBuf};

use super::init::{self, write};
use super::{Exit, Failure, Root, load, output, publish};
use crate::config::{Config, CoordinatorConfig, Loaded};
use crate::daemon;
use crate::link::inquiry::{Finding, Verdict};
use section::Section;
use token::Token;

const EXAMPLES: &str = "\
Examples:
  worker join muster-join-1.eyJ1cmwi...        join with the token of `worker key join`
  worker join muster-join-1.eyJ1cmwi... -c /etc/muster/worker.toml
  worker --config worker.toml                  then start the worker";

/// Join a coordinator with a token from its operator.
///
/// Checks that the coordinator is reachable and accepts the key, then adds the coordinator to worker.toml or the file
/// of --config. Creates the file if missing. The file holds the key, so only you can read it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Token printed by `worker key join` on the coordinator's machine.
    #[arg(value_name = "TOKEN", value_parser = Token::parse)]
    token: Token,
    /// Name of this worker at the coordinator (default: the name in the token, else in the file).
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Write the file without checking the coordinator.
    #[arg(long)]
    unchecked: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let file = root.config.clone();
    let file = file.unwrap_or_else(|| PathBuf::from("worker.toml"));
    let mut section = Section::from(args.token);
    section.name = args.name.or(section.name);
    let draft = match file.symlink_metadata() {
        Ok(_) => extended(&file, root, &section)?,
        Err(_) => init::proposed(root, section.clone())?,
    };
    let draft = write::Draft::make(&file, &draft)?;
    let loaded = draft.check()?;
    if !args.unchecked && !root.offline {
        examine(&loaded.config, &section)?;
    }
    draft.publish(true)?;
    let name = section.name.unwrap_or_else(|| loaded.config.worker.name());
    output::line(format!(
        "joined {} as {name}: wrote {}",
        section.url,
        file.display()
    ))?;
    output::line(format!("next: worker --config {}", file.display()))
}

/// The text of a file with one more coordinator.
fn extended(file: &Path, root: &Root, section: &Section) -> Result<String, Failure> {
    publish::check(file, true)?;
    let loaded = root.load_file(file.to_owned())?;
    if find(&loaded, section).is_some() {
        let message = format!(
            "{} already has the coordinator {}",
            file.display(),
            section.url
        );
        return Err(Failure::new(Exit::CannotWrite, message)
            .hint("change the key in that [[coordinator]], or remove the section and join again"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| Failure::reading(file, &error))?;
    Ok(format!("{}\n{}", text.trim_end(), section.text()))
}

fn find<'a>(loaded: &'a Loaded, section: &Section) -> Option<&'a CoordinatorConfig> {
    let url: url::Url = section.url.parse().ok()?;
    let mut all = loaded.config.coordinators.iter();
    all.find(|coordinator| coordinator.url == url)
}

/// Checks that the coordinator responds, is the right one, and accepts this worker.
fn examine(config: &Config, section: &Section) -> Result<(), Failure> {
    let Some(coordinator) = config.coordinators.last() else {
        return Ok(());
    };
    let findings = load::block_on(async {
        let inquiry = daemon::inquiry(coordinator, &config.worker.name())?;
        Ok(inquiry.run().await)
    })?;
    let bad = |finding: &&Finding| finding.verdict == Verdict::Bad;
    match findings.iter().find(bad) {
        None => Ok(()),
        Some(finding) => {
            let message = format!("joining {} failed: {}", section.url, finding.found);
            let remedy = finding.remedy.as_deref().unwrap_or("try again later");
            Err(Failure::new(Exit::Unavailable, message)
                .hint(format!("{remedy}; --unchecked skips this check")))
        }
    }
}
