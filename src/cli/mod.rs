//! The command line: one file per subcommand, each with its `Args` and a `run`.
//!
//! A subcommand returns [`Failure`], which knows its exit code; [`main`] is the only place that prints it. Output goes
//! through [`output`], so that a closed pipe ends a command quietly. Commands compute nothing themselves: they call the
//! crates below and show the results.

#[cfg_attr(not(feature = "coordinator"), path = "account_absent.rs")]
mod account;
mod bench;
mod chat;
mod completions;
mod config;
#[cfg_attr(not(feature = "coordinator"), path = "coordinator_absent.rs")]
mod coordinator;
mod doctor;
pub mod eval;
mod examples;
pub mod failure;
mod generate;
mod init;
mod join;
#[cfg_attr(not(feature = "coordinator"), path = "key_absent.rs")]
mod key;
#[cfg(feature = "coordinator")]
mod key_join;
mod load;
mod man;
mod mcp;
mod meter;
mod models;
pub mod output;
mod owner;
mod page;
mod place;
mod probe;
mod publish;
mod quantity;
mod question;
mod reader;
mod reload;
mod root;
mod serve;
mod status;
mod table;
mod text_process;
mod threads;
mod top;
mod transcribe;
mod up;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};

use crate::{daemon, telemetry};
pub use failure::{Exit, Failure};
use place::Place;
use reload::Reload;
pub use root::Root;

const EXAMPLES: &str = "\
Examples:
  worker up                                  run coordinator, worker and a model on this machine
  worker chat                                talk to a model in the terminal
  worker init                                write a worker.toml for this machine
  worker --config worker.toml                run the worker
  worker doctor --config worker.toml         find out why the worker does not work
  worker generate tiny.gguf \"Once upon\"      generate text with a model file";

/// Turn idle GPUs into one generation service.
///
/// With `--config` and no command, `worker` runs as the worker: it loads the configured models and serves them until
/// stopped by a signal.
#[derive(Debug, Parser)]
#[command(
    name = "worker",
    version,
    arg_required_else_help = true,
    max_term_width = 100
)]
#[command(after_help = after_help())]
struct CommandLine {
    #[command(flatten)]
    root: Root,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Args),
    Chat(chat::ChatArgs),
    Status(status::StatusArgs),
    Top(top::TopArgs),
    Pause(owner::PauseArgs),
    Resume(owner::ResumeArgs),
    Page(page::PageArgs),
    Examples(examples::ExamplesArgs),
    Init(init::Args),
    Join(join::Args),
    Serve(serve::Args),
    Key(key::Args),
    Account(account::Args),
    Models(models::Args),
    Generate(Box<generate::Args>),
    Transcribe(transcribe::Args),
    Config(config::Args),
    Mcp(mcp::McpArgs),
    Doctor(doctor::Args),
    Probe(probe::Args),
    Bench(bench::Args),
    Eval(eval::Args),
    Completions(completions::Args),
    Man(man::Args),
    // Aliases known from other model programs.
    #[command(hide = true)]
    List(models::ListArgs),
    #[command(hide = true)]
    Show(models::ShowArgs),
    #[command(hide = true)]
    Pull(models::PullArgs),
    #[command(hide = true)]
    Rm(models::RemoveArgs),
    #[command(hide = true)]
    Stop(models::UnloadArgs),
    #[cfg(feature = "coordinator")]
    #[command(hide = true, name = coordinator::ENGINE_COMMAND)]
    UpEngine(coordinator::EngineArgs),
    #[command(hide = true, name = crate::daemon::TEXT_PROCESS)]
    TextProcess(text_process::Args),
    #[command(hide = true, name = crate::reader::READER_COMMAND)]
    Reader(reader::ReaderArgs),
}

/// Runs the program; the exit code is decided here and nowhere else.
pub fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return failure::report_usage(&error),
    };
    let root = line.root.clone();
    match run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A command that failed before its log was started still uses the requested format.
            if telemetry::format().is_none() && root.wants_json() {
                let _ = root.start_log();
            }
            failure.report()
        }
    }
}

fn run(line: CommandLine) -> Result<(), Failure> {
    let root = line.root;
    match line.command {
        None if root.config.is_some() => worker(&root),
        None => Err(nothing_to_run()),
        Some(Command::Up(args)) => up::run(args, &root),
        Some(Command::Chat(args)) => chat::run(args, &root),
        Some(Command::Status(args)) => status::run(&args, &root),
        Some(Command::Top(args)) => top::run(&args, &root),
        Some(Command::Pause(args)) => owner::pause(&args, &root),
        Some(Command::Resume(args)) => owner::resume(&args, &root),
        Some(Command::Page(args)) => page::run(&args, &root),
        Some(Command::Examples(args)) => examples::run(&args, &root),
        Some(Command::Stop(args)) => models::run(models::Args::unload(args), &root),
        Some(Command::List(args)) => models::run(models::Args::list(args), &root),
        Some(Command::Show(args)) => models::run(models::Args::show(args), &root),
        Some(Command::Pull(args)) => models::run(models::Args::pull(args), &root),
        Some(Command::Rm(args)) => models::run(models::Args::remove(args), &root),
        Some(Command::Serve(args)) => serve::run(args, &root),
        Some(Command::Init(args)) => init::run(args, &root),
        Some(Command::Join(args)) => join::run(args, &root),
        Some(Command::Key(args)) => key::run(args, &root),
        Some(Command::Account(args)) => account::run(args, &root),
        Some(Command::Probe(args)) => probe::run(args, &root),
        Some(Command::Doctor(args)) => doctor::run(args, &root),
        Some(Command::Models(args)) => models::run(args, &root),
        Some(Command::Mcp(args)) => mcp::run(args, &root),
        Some(Command::Generate(args)) => generate::run(*args, &root),
        Some(Command::Transcribe(args)) => transcribe::run(args, &root),
        Some(Command::Bench(args)) => bench::run(args, &root),
        Some(Command::Eval(args)) => eval::run(args, &root),
        Some(Command::Config(args)) => config::run(args, &root),
        Some(Command::Completions(args)) => completions::run(args),
        Some(Command::Man(args)) => man::run(args),
        #[cfg(feature = "coordinator")]
        Some(Command::UpEngine(args)) => coordinator::engine(&args, &root),
        Some(Command::TextProcess(args)) => text_process::run(&args),
        Some(Command::Reader(args)) => reader::run(&args),
    }
}

/// Runs the worker itself, `worker --config FILE`.
fn worker(root: &Root) -> Result<(), Failure> {
    let loaded = root.load()?;
    threads::settle(&loaded.config)?;
    root.start_log_of(&loaded.config)?;
    for remark in loaded.remarks() {
        tracing::warn!("{remark}");
    }
    let place = Place::open(&loaded.config)?;
    let mut reload = Reload::new(root, Vec::new(), loaded.clone(), reload::OF_WORKERS);
    let again = move || reload.again(|config| Ok(config.clone()));
    let tools = Arc::new(page::PageTools::of_worker(root));
    load::block_on(async {
        Ok(daemon::run(&loaded.config, &place.catalog, &place.hub, tools, again).await?)
    })
}

fn nothing_to_run() -> Failure {
    Failure::new(
        Exit::Usage,
        "nothing to run: neither a command nor --config FILE is given",
    )
    .hint("`worker init` writes a worker.toml for --config, `worker --help` lists the commands")
}

/// The whole command line as data, for completions and manual pages.
fn command() -> clap::Command {
    CommandLine::command()
}

fn after_help() -> String {
    format!("{EXAMPLES}\n\nExit codes:\n{}", Exit::table())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn every_command_shows_examples_in_its_help() {
        fn check(command: &clap::Command) {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.contains("Example"),
                "`{}` shows no example",
                command.get_name()
            );
            command.get_subcommands().for_each(check);
        }
        check(&command());
    }
}
