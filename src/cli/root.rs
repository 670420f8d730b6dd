//! The options every command takes.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

/// Options before or after any command.
#[derive(Debug, Clone, Default, Args)]
pub struct Root {
    /// The configuration file; without a command, run the worker with it.
    #[arg(
        long,
        short = 'c',
        global = true,
        value_name = "FILE",
        env = "MUSTER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Where the worker keeps its own files (default: ~/.local/share/muster).
    #[arg(long, global = true, value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
    /// Never use the network.
    #[arg(long, global = true)]
    pub offline: bool,
    /// How the log on standard error looks.
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Say more: -v what the program does, -vv what each job does.
    #[arg(long, short, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Say less: only errors.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}
