//! `worker init`: writes a `worker.toml` that fits this machine.

pub mod choose;
pub mod questions;
pub mod search;
pub mod write;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use super::join::section::Section;
use super::join::token::Token;
use super::place::Place;
use super::{Exit, Failure, Root, output, publish};
use crate::config::{Config, DeviceSetting};
use crate::daemon::fit::room;
use crate::hardware::{self, Machine};
use questions::Questions;
use write::Choices;

const EXAMPLES: &str = "\
Examples:
  worker init                                ask each question, with a default answer
  worker init --yes                          take every default
  worker init --yes --force /etc/worker.toml
  worker init --yes --join wss://muster.example --key file:/etc/muster/key";

/// Write a worker.toml for this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// File to write.
    #[arg(default_value = "worker.toml")]
    file: PathBuf,
    /// Take every default instead of asking.
    #[arg(long, short)]
    yes: bool,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Coordinator to work for: its URL, or a join token, which includes the key.
    #[arg(long, value_name = "URL")]
    join: Option<String>,
    /// Your API key there: the key itself, "file:PATH" or "env:NAME".
    #[arg(long, value_name = "KEY", requires = "join")]
    key: Option<String>,
    /// Connect to the coordinator without TLS, sending the key in plain text.
    #[arg(long, requires = "join")]
    insecure: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    publish::check(&args.file, args.force)?;
    if !args.yes && !io::stdin().is_terminal() {
        return Err(Failure::new(
            Exit::Usage,
            "cannot ask questions: standard input is not a terminal",
        )
        .hint("`worker init --yes` takes every default"));
    }
    // A configuration that is to be replaced does not count here.
    let config = Root {
        config: None,
        ..root.clone()
    }
    .load()?
    .config;
    let machine = hardware::probe();
    let mut questions = Questions::new(args.yes);
    let mut choices = ask(&mut questions, &config, &machine, root)?;
    choices.coordinator = coordinator(&mut questions, &args)?;
    let text = choices.text(&machine);
    write::write(&args.file, &text, args.force)?;
    tell(&args.file, &choices)
}

fn ask(
    questions: &mut Questions,
    config: &Config,
    machine: &Machine,
    root: &Root,
) -> Result<Choices, Failure> {
    let name = questions.ask("Name of this worker?", &config.worker.name(), |text| {
        Ok(text.to_owned())
    })?;
    let device = device(questions, machine)?;
    let place = Place::open(config)?;
    let room = room(machine, device, &config.owner, cfg!(feature = "cuda"))
        .map_err(crate::daemon::DaemonError::from)?;
    let candidates = search::candidates(&place, config, &room);
    questions.show(&choose::table(&candidates))?;
    let proposed = choose::proposal(&candidates, room.device);
    let names = questions.ask(
        "Models to serve (names, or none)?",
        &proposed.join(" "),
        |text| choose::parse(text, &candidates),
    )?;
    let models = candidates
        .into_iter()
        .filter(|candidate| names.contains(&candidate.name))
        .collect();
    Ok(Choices {
        name,
        device,
        models,
        data_dir: root.data_dir.clone(),
        offline: root.offline,
        coordinator: None,
    })
}

/// The configuration that `init --yes` would write, with this coordinator.
pub fn proposed(root: &Root, coordinator: Section) -> Result<String, Failure> {
    let config = Root {
        config: None,
        ..root.clone()
    }
    .load()?
    .config;
    let machine = hardware::probe();
    let mut choices = ask(&mut Questions::new(true), &config, &machine, root)?;
    choices.coordinator = Some(coordinator);
    Ok(choices.text(&machine))
}

/// The coordinator to work for: from the flags, else from the owner's answer.
fn coordinator(questions: &mut Questions, args: &Args) -> Result<Option<Section>, Failure> {
    let address = match &args.join {
        Some(given) => address(given).map_err(|wanted| {
            Failure::new(
                Exit::Usage,
                format!("--join must be {wanted}, found {given}"),
            )
        })?,
        None => questions.ask(
            "Coordinator to work for (URL, join token, or none)?",
            "none",
            address,
        )?,
    };
    let Some(address) = address else {
        return Ok(None);
    };
    if Token::is_one(&address) {
        let token = Token::parse(&address).map_err(|reason| Failure::new(Exit::Usage, reason))?;
        return Ok(Some(token.into()));
    }
    let key = match &args.key {
        Some(key) => key.clone(),
        None if args.yes => {
            return Err(Failure::new(Exit::Usage, "--join needs a key")
                .hint("add --key KEY, or give a join token instead of the URL"));
        }
        None => questions.ask(
            "Your API key there (the key itself, file:PATH or env:NAME)?",
            "",
            key,
        )?,
    };
    Ok(Some(Section {
        url: address,
        key,
        name: None,
        certificate_sha256: None,
        insecure: args.insecure,
    }))
}

fn address(text: &str) -> Result<Option<String>, String> {
    if Token::is_one(text) {
        return Token::parse(text).map(|_| Some(text.to_owned()));
    }
    let is_address = |text: &str| {
        let url = text.parse::<url::Url>();
        url.is_ok_and(|url| matches!(url.scheme(), "ws" | "wss" | "http" | "https"))
    };
    match text {
        "none" => Ok(None),
        text if is_address(text) => Ok(Some(text.to_owned())),
        _ => Err("a URL such as wss://muster.example, a join token, or none".to_owned()),
    }
}

fn key(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("a key is required: ask the operator of the coordinator for one".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Asked only where there is something to choose.
fn device(questions: &mut Questions, machine: &Machine) -> Result<DeviceSetting, Failure> {
    if machine.gpus.is_empty() || !cfg!(feature = "cuda") {
        return Ok(DeviceSetting::Auto);
    }
    let cards: Vec<String> = machine
        .gpus
        .iter()
        .map(|gpu| format!("cuda:{}  {}\n", gpu.index, gpu.name))
        .collect();
    questions.show(&cards.concat())?;
    questions.ask(
        "Device to run models on (auto, cpu or cuda:N)?",
        "auto",
        |text| {
            let device = DeviceSetting::parse(text);
            let exists = |device: &DeviceSetting| match device {
                DeviceSetting::Cuda(Some(index)) => {
                    machine.gpus.iter().any(|gpu| gpu.index as usize == *index)
                }
                _ => true,
            };
            device
                .filter(exists)
                .ok_or_else(|| "must be auto, cpu or a GPU of the list above".to_owned())
        },
    )
}

fn tell(file: &Path, choices: &Choices) -> Result<(), Failure> {
    output::line(format!("wrote {}", file.display()))?;
    for step in choices.next_steps(file) {
        output::line(step)?;
    }
    Ok(())
}
