//! `worker models load` and `worker models unload`: commands to the worker that runs with this data folder.

use std::path::{Path, absolute};

use serde_json::json;

use crate::cli::load::block_on;
use crate::cli::owner::tell;
use crate::cli::place::Place;
use crate::cli::{Failure, Root, output};
use crate::config::{Config, is_path};
use crate::daemon::control::{CommandCause, CommandFailure, CommandOutcome, OwnerCommand};

/// Load a model into the running worker.
///
/// A model that the worker serves is in memory when the command ends. Another model whose files are on this machine is served
/// until the worker ends; models.serve, or --model of `worker up`, serves it from the start. Where memory is short, models
/// without jobs are unloaded for it, the least recently used one first; their next job loads them again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker models load qwen3-0.6b\n  worker models load llama-3.2-1b:q8_0\n  worker models load ./tiny.gguf"
)]
pub struct LoadArgs {
    /// Model, as in models.serve: a name of the catalog, org/name, org/name:FILE or a path.
    name: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Free the memory of a model in the running worker; also `worker stop`.
///
/// Running jobs end first. The model stays listed, and its next job loads it again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker models unload qwen3-0.6b\n  worker stop qwen3-0.6b          the same"
)]
pub struct UnloadArgs {
    /// Model that the worker serves; `worker status` lists them.
    name: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn load(args: &LoadArgs, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    // The worker may run in another folder.
    let name = match is_path(&args.name) || Path::new(&args.name).exists() {
        true => absolute(&args.name).map_err(anyhow::Error::from)?,
        false => args.name.clone().into(),
    };
    let name = name.to_string_lossy().into_owned();
    let outcome = block_on(load_into_worker(&name, &config))?;
    report(&outcome, args.json)
}

/// Loads a model into the worker that runs with this data folder.
pub async fn load_into_worker(name: &str, config: &Config) -> Result<CommandOutcome, Failure> {
    let explain = |failure: &CommandFailure| explanation(failure, name, config);
    tell(&OwnerCommand::Load(name.to_owned()), config, explain).await
}

/// Has the worker that runs with this data folder serve a model no more.
#[cfg(feature = "coordinator")]
pub async fn withdraw_from_worker(name: &str, config: &Config) -> Result<CommandOutcome, Failure> {
    tell(&OwnerCommand::Withdraw(name.to_owned()), config, |_| None).await
}

pub fn unload(args: &UnloadArgs, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    let command = OwnerCommand::Unload(args.name.clone());
    let explain = |_: &CommandFailure| None;
    let outcome = block_on(tell(&command, &config, explain))?;
    report(&outcome, args.json)
}

fn report(outcome: &CommandOutcome, as_json: bool) -> Result<(), Failure> {
    match as_json {
        true => output::json(&json!({"model": outcome.model, "state": outcome.state})),
        false => output::line(&outcome.text),
    }
}

/// This program finds the same files as the worker and has advice for each reason that there are none.
fn explanation(failure: &CommandFailure, name: &str, config: &Config) -> Option<Failure> {
    match failure.cause {
        CommandCause::Unknown | CommandCause::NotHere => {
            let place = Place::open(config).ok()?;
            place.locate(name).err().map(Failure::from)
        }
        CommandCause::DoesNotFit | CommandCause::Configured | CommandCause::Failed => None,
    }
}
