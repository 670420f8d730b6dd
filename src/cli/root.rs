//! The options every command takes, and the configuration they lead to.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use tracing::Level;

use super::Failure;
use crate::config::{Config, Flag, Loaded, LogFormat, LogLevel, Sources};
use crate::telemetry::{self, Detail, Format};

/// Separates these options from those of a command in its help.
const GLOBAL: &str = "Global options";

/// Options before or after any command.
#[derive(Debug, Clone, Default, Args)]
pub struct Root {
    /// Configuration file; without a command, run the worker with it.
    #[arg(
        long,
        short = 'c',
        global = true,
        help_heading = GLOBAL,
        value_name = "FILE",
        env = "MUSTER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Folder for the program's own files (default: ~/.local/share/muster).
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FOLDER")]
    pub data_dir: Option<PathBuf>,
    /// Never download models, and skip checks that need the network.
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub offline: bool,
    /// Format of the log on standard error.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FORMAT")]
    pub log_format: Option<LogChoice>,
    /// Log more: -v events of the program, -vv events of each job.
    #[arg(long, short, global = true, help_heading = GLOBAL, action = ArgAction::Count)]
    pub verbose: u8,
    /// Log errors only, and show no progress.
    #[arg(long, short, global = true, help_heading = GLOBAL, conflicts_with = "verbose")]
    pub quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogChoice {
    Text,
    Json,
}

impl Root {
    /// The configuration: file, environment, then these options.
    pub fn load(&self) -> Result<Loaded, Failure> {
        self.load_from(self.config.clone(), Vec::new())
    }

    /// The configuration with a command's own flags on top.
    pub fn load_with(&self, flags: Vec<Flag>) -> Result<Loaded, Failure> {
        self.load_from(self.config.clone(), flags)
    }

    /// The configuration of another file.
    pub fn load_file(&self, file: PathBuf) -> Result<Loaded, Failure> {
        self.load_from(Some(file), Vec::new())
    }

    fn load_from(&self, file: Option<PathBuf>, mut flags: Vec<Flag>) -> Result<Loaded, Failure> {
        flags.extend(self.flags());
        Ok(Config::load(&Sources::of_process(file, flags))?)
    }

    /// Starts the log of a command that does one thing and ends: it speaks up only when something is odd.
    pub fn start_log(&self) -> Result<(), Failure> {
        let format = match self.wants_json() {
            true => Format::Json,
            false => Format::Text,
        };
        self.start_log_as(format, self.detail(LogLevel::Warn))
    }

    /// Whether the flag or the environment asks for JSON; the file may as well, once it is read.
    pub fn wants_json(&self) -> bool {
        match self.log_format {
            Some(choice) => choice == LogChoice::Json,
            None => std::env::var("MUSTER_WORKER_LOG_FORMAT").is_ok_and(|format| format == "json"),
        }
    }

    /// Starts the log as the configuration wants it.
    pub fn start_log_of(&self, config: &Config) -> Result<(), Failure> {
        self.start_log_as(format_of(config), self.detail(config.worker.log_level))
    }

    /// On a terminal, shows only warnings until [`Self::raise_log`], unless the log level was set: a new user reads the
    /// first screen.
    pub fn start_log_quietly(&self, loaded: &Loaded) -> Result<(), Failure> {
        let config = &loaded.config;
        let is_asked = self.verbose > 0
            || rust_log().is_some()
            || loaded.is_set("worker.log_level")
            || loaded.is_set("worker.log_format");
        let is_read = io::stderr().is_terminal() && format_of(config) == Format::Text;
        let usual = match is_read && !is_asked {
            true => LogLevel::Warn,
            false => config.worker.log_level,
        };
        self.start_log_as(format_of(config), self.detail(usual))
    }

    /// Sets the configured log level.
    pub fn raise_log(&self, config: &Config) {
        telemetry::set_detail(self.detail(config.worker.log_level));
    }

    fn start_log_as(&self, format: Format, detail: Detail) -> Result<(), Failure> {
        telemetry::start(format, detail).map_err(|error| {
            Failure::from(anyhow::Error::from(error).context("starting the log failed"))
        })?;
        if let Some(text) = rust_log()
            && Detail::parse(&text).is_none()
        {
            tracing::warn!("ignoring RUST_LOG={text}: must be a level or target=level,...");
        }
        Ok(())
    }

    /// -v and -q count most, then `RUST_LOG`, then the setting.
    fn detail(&self, usual: LogLevel) -> Detail {
        let level = || Detail::of(self.level(usual));
        match self.quiet || self.verbose > 0 {
            true => level(),
            false => rust_log()
                .and_then(|text| Detail::parse(&text))
                .unwrap_or_else(level),
        }
    }

    fn level(&self, usual: LogLevel) -> Level {
        if self.quiet {
            return Level::ERROR;
        }
        let levels = [
            Level::ERROR,
            Level::WARN,
            Level::INFO,
            Level::DEBUG,
            Level::TRACE,
        ];
        let wanted = usual as usize + usize::from(self.verbose);
        levels.get(wanted).copied().unwrap_or(Level::TRACE)
    }

    /// The same options for another process of this program.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: &OsStr| arguments.extend([name.into(), value.into()]);
        if let Some(file) = &self.config {
            add("--config", file.as_os_str());
        }
        if let Some(folder) = &self.data_dir {
            add("--data-dir", folder.as_os_str());
        }
        let format = self.log_format.and_then(|one| one.to_possible_value());
        if let Some(format) = format {
            add("--log-format", OsStr::new(format.get_name()));
        }
        if self.offline {
            arguments.push("--offline".into());
        }
        if self.quiet {
            arguments.push("--quiet".into());
        }
        let each_v = std::iter::repeat_n(OsString::from("-v"), self.verbose.into());
        arguments.extend(each_v);
        arguments
    }

    /// The options that override settings.
    fn flags(&self) -> Vec<Flag> {
        let flag = |name, setting, value| Flag {
            name,
            setting,
            value,
        };
        let data_dir = self
            .data_dir
            .as_ref()
            .map(|folder| folder.to_string_lossy().into_owned());
        let format = self
            .log_format
            .and_then(|format| format.to_possible_value());
        let format = format.map(|format| format.get_name().to_owned());
        let offline = self.offline.then(|| "true".to_owned());
        [
            data_dir.map(|value| flag("--data-dir", "worker.data_dir", value)),
            format.map(|value| flag("--log-format", "worker.log_format", value)),
            offline.map(|value| flag("--offline", "hub.offline", value)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn format_of(config: &Config) -> Format {
    match config.worker.log_format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    }
}

/// The variable of other Rust programs.
fn rust_log() -> Option<String> {
    let text = std::env::var("RUST_LOG").ok();
    text.filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_v_says_more_and_q_only_errors() {
        let level = |verbose, quiet| {
            Root {
                verbose,
                quiet,
                ..Root::default()
            }
            .level(LogLevel::Warn)
        };
        assert_eq!(level(0, false), Level::WARN);
        assert_eq!(level(1, false), Level::INFO);
        assert_eq!(level(9, false), Level::TRACE);
        assert_eq!(level(0, true), Level::ERROR);
    }
}
