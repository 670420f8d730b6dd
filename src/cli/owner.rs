//! `worker pause` and `worker resume`: commands to the worker that runs with this data folder.

use std::time::Duration;

use serde_json::json;

use super::load::block_on;
use super::{Exit, Failure, Root, output};
use crate::config::{Config, parse_duration};
use crate::daemon::control::{CommandCause, CommandFailure, CommandOutcome, OwnerCommand, ask};

const PAUSE_EXAMPLES: &str = "\
Examples:
  worker pause                  until `worker resume`
  worker pause --for 2h         for two hours
  worker pause --after-job      once the jobs that run now have ended";

/// Have the machine to yourself: the running worker takes no jobs, hands back those that run, and frees the memory of
/// its models.
///
/// Other workers go on with the jobs where there are such; otherwise the jobs wait. `worker status` shows how long it
/// lasts. SIGUSR1 pauses a worker as well, SIGUSR2 resumes it.
#[derive(Debug, clap::Args)]
#[command(after_help = PAUSE_EXAMPLES)]
pub struct PauseArgs {
    /// For so long, such as 90min or 2h; without it until `worker resume`.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,
    /// Let running jobs end first.
    #[arg(long)]
    after_job: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Let the running worker take jobs again after `worker pause`; its models come back to memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker resume")]
pub struct ResumeArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn pause(args: &PauseArgs, root: &Root) -> Result<(), Failure> {
    let command = OwnerCommand::Pause {
        duration: args.duration,
        after_jobs: args.after_job,
    };
    run(&command, args.json, root)
}

pub fn resume(args: &ResumeArgs, root: &Root) -> Result<(), Failure> {
    run(&OwnerCommand::Resume, args.json, root)
}

fn run(command: &OwnerCommand, as_json: bool, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    let outcome = block_on(tell(command, &config, |_| None))?;
    match as_json {
        true => output::json(&json!({"state": outcome.state, "text": outcome.text})),
        false => output::line(&outcome.text),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let wanted = || "expected a time such as 90min or 2h".to_owned();
    parse_duration(text)
        .filter(|time| !time.is_zero())
        .ok_or_else(wanted)
}

/// Has the worker that runs with this data folder carry out a command.
pub async fn tell(
    command: &OwnerCommand,
    config: &Config,
    explain: impl Fn(&CommandFailure) -> Option<Failure>,
) -> Result<CommandOutcome, Failure> {
    let folder = &config.worker.data_dir;
    let asked = ask(folder, command).await.map_err(|error| {
        let folder = folder.display();
        Failure::unavailable(format!(
            "reaching the worker of the data folder {folder} failed: {error}"
        ))
    });
    let Some(reply) = asked? else {
        let folder = folder.display();
        return Err(
            Failure::unavailable(format!("no worker runs with the data folder {folder}")).hint(
                "`worker up` or `worker --config FILE` starts one; --data-dir names another folder",
            ),
        );
    };
    reply.map_err(|failure| {
        explain(&failure).unwrap_or_else(|| match failure.cause {
            CommandCause::Unknown => Failure::new(Exit::NotFound, &failure.text)
                .hint("`worker status` lists the models of the running worker"),
            CommandCause::NotHere => Failure::new(Exit::NotFound, &failure.text),
            CommandCause::DoesNotFit => Failure::unavailable(&failure.text).hint(
                "`worker models unload NAME` frees memory; a smaller quantization needs less",
            ),
            CommandCause::Configured => Failure::new(Exit::Usage, &failure.text),
            CommandCause::Failed => Failure::new(Exit::Failed, &failure.text),
        })
    })
}
