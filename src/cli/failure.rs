//! The end of a command: a table of exit codes, and the error line.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use tracing::error;

use crate::config::ConfigError;
use crate::daemon::DaemonError;
use crate::daemon::fit::Refusal;
use crate::daemon::locate::LocateError;
use crate::networks::weights::CheckpointError;
use crate::runtime::{self, LoadError};
use crate::telemetry::{self, Format};

/// The exit codes, in the tradition of `sysexits.h`. Scripts rely on them: a code never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Failed = 1,
    Usage = 2,
    BadData = 65,
    NotFound = 66,
    Unavailable = 69,
    CannotWrite = 73,
    BadConfiguration = 78,
    Interrupted = 130,
}

impl Exit {
    const ALL: [(Self, &str); 8] = [
        (Self::Failed, "the command failed"),
        (Self::Usage, "invalid arguments"),
        (
            Self::BadData,
            "invalid data: a damaged model, a wrong checksum",
        ),
        (Self::NotFound, "not found: a file, a model, an account"),
        (
            Self::Unavailable,
            "unavailable: not in this build, no network, not enough memory",
        ),
        (
            Self::CannotWrite,
            "cannot write a file: no permission, disk full",
        ),
        (Self::BadConfiguration, "invalid configuration"),
        (Self::Interrupted, "interrupted by Ctrl-C"),
    ];

    /// The one of this code, or the general one.
    pub fn of_code(code: i32) -> Self {
        let mut all = Self::ALL.into_iter().map(|(exit, _)| exit);
        all.find(|exit| *exit as i32 == code)
            .unwrap_or(Self::Failed)
    }

    /// The table shown in `worker --help`.
    pub fn table() -> String {
        let rows = Self::ALL
            .iter()
            .map(|(exit, meaning)| format!("  {:>3}  {meaning}", *exit as u8));
        std::iter::once("    0  success; also a service that stopped on a signal".to_owned())
            .chain(rows)
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// A failed command: the message for the owner, and the exit code.
#[derive(Debug)]
pub struct Failure {
    end: End,
    message: String,
    hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    With(Exit),
    /// Another process of this program has reported it already.
    Told(Exit),
    /// The reader of our output has closed it (`worker probe | head -1`): a silent success.
    ReaderLeft,
}

impl Failure {
    pub fn new(exit: Exit, message: impl Display) -> Self {
        Self {
            end: End::With(exit),
            message: message.to_string(),
            hint: None,
        }
    }

    /// An error that another process of this program has reported.
    pub fn told(exit: Exit) -> Self {
        Self {
            end: End::Told(exit),
            message: format!("exit code {}, for the reason above", exit as u8),
            hint: None,
        }
    }

    /// Sets the remedy.
    #[must_use]
    pub fn hint(self, hint: impl Display) -> Self {
        Self {
            hint: Some(hint.to_string()),
            ..self
        }
    }

    /// Which setting is to blame.
    #[must_use]
    pub fn of_setting(self, name: &str) -> Self {
        Self {
            message: format!("{name}: {}", self.message),
            ..self
        }
    }

    /// Something that a later version does, or that this build leaves out.
    pub fn unavailable(message: impl Display) -> Self {
        Self::new(Exit::Unavailable, message)
    }

    /// A file that could not be read: missing files and everything else end differently.
    pub fn reading(path: &std::path::Path, error: &io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::Failed,
        };
        Self::new(
            exit,
            format!("cannot read {}: {}", path.display(), words(error)),
        )
    }

    /// A file that could not be written.
    pub fn writing(path: &std::path::Path, error: &io::Error) -> Self {
        Self::new(
            Exit::CannotWrite,
            format!("cannot write {}: {}", path.display(), words(error)),
        )
    }

    /// An error of writing to standard output.
    pub fn showing(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self {
                end: End::ReaderLeft,
                message: String::new(),
                hint: None,
            },
            _ => Self::new(
                Exit::CannotWrite,
                format!("cannot write to standard output: {}", words(error)),
            ),
        }
    }

    /// The remedy, if known.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub fn exit(&self) -> Option<Exit> {
        match self.end {
            End::With(exit) | End::Told(exit) => Some(exit),
            End::ReaderLeft => None,
        }
    }

    /// Prints the failure and turns it into the exit code.
    pub fn report(self) -> ExitCode {
        let Some(exit) = self.exit() else {
            return ExitCode::SUCCESS;
        };
        if let End::Told(exit) = self.end {
            return ExitCode::from(exit as u8);
        }
        if telemetry::format() == Some(Format::Json) {
            self.log(exit);
            return ExitCode::from(exit as u8);
        }
        let mut stderr = io::stderr().lock();
        // A closed standard error is ignored.
        let _ = writeln!(stderr, "error: {}", self.message);
        if let Some(hint) = &self.hint {
            let _ = writeln!(stderr, "hint: {hint}");
        }
        ExitCode::from(exit as u8)
    }
}

impl Failure {
    /// The last line of a log that programs read.
    fn log(&self, exit: Exit) {
        let (message, code) = (&self.message, exit as u8);
        match &self.hint {
            Some(hint) => error!(exit_code = code, hint = %hint, "{message}"),
            None => error!(exit_code = code, "{message}"),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// Any failure whose only consequence is to stop. A part whose failures differ has its own `From`.
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Failed, format!("{error:#}"))
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let failure = match &error {
            ConfigError::Unreadable { file, cause } => return Self::reading(file, cause),
            ConfigError::Wrong(_) => Self::new(Exit::BadConfiguration, error),
        };
        failure.hint("`worker config example` prints every setting")
    }
}

impl From<LocateError> for Failure {
    fn from(error: LocateError) -> Self {
        match error {
            LocateError::NoSuchPath(_) | LocateError::Incomplete { .. } => {
                Self::new(Exit::NotFound, error)
            }
            LocateError::Hidden { path, cause } => Self::reading(&path, &cause),
            LocateError::Unknown(error) => error.into(),
            LocateError::UnknownQuantization(error) => error.into(),
            LocateError::NotHere { ref name } => {
                let hint = format!("`worker models pull {name}` downloads the model");
                Self::new(Exit::NotFound, error).hint(hint)
            }
            LocateError::Damaged { ref name } => {
                let hint = format!("`worker models pull {name}` downloads the model again");
                Self::new(Exit::BadData, error).hint(hint)
            }
            LocateError::NotPulled { ref name } => {
                let hint = format!("`worker models pull {name}` downloads the model");
                Self::new(Exit::NotFound, error).hint(hint)
            }
            LocateError::Hub(error) => error.into(),
            LocateError::Unpack(error) => error.into(),
            LocateError::Defaults { .. } => Self::new(Exit::BadConfiguration, error),
        }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        let exit = match error {
            LoadError::Checkpoint(error) => return error.into(),
            LoadError::Text(_) | LoadError::Bidirectional | LoadError::ImageTokens(_) => {
                Exit::BadData
            }
            LoadError::CacheTooSmall { .. }
            | LoadError::KvHeadSize { .. }
            | LoadError::KvLatents { .. }
            | LoadError::SingleSequence { .. }
            | LoadError::Device(_) => Exit::Unavailable,
            LoadError::NoBase { .. }
            | LoadError::AlreadyLoaded { .. }
            | LoadError::Panicked { .. }
            | LoadError::Stopped => Exit::Failed,
        };
        Self::new(exit, error)
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::Locate(error) => error.into(),
            DaemonError::Hub(error) => error.into(),
            DaemonError::Load(error) => error.into(),
            DaemonError::NoDevice(_) => Self::new(Exit::Unavailable, error),
            DaemonError::DoesNotFit { ref refusal, .. } => {
                let hint = to_fit(
                    refusal,
                    "choose a smaller quantization, or lower --context or engine.kv_memory",
                );
                Self::new(Exit::Unavailable, error).hint(hint)
            }
            DaemonError::Refused(_) => Self::new(Exit::BadConfiguration, error)
                .hint("correct key, name or url of the [[coordinator]]"),
            DaemonError::Address(_) => Self::new(Exit::BadConfiguration, error),
            DaemonError::Signals(_)
            | DaemonError::Tls(_)
            | DaemonError::EngineEnded
            | DaemonError::Unload { .. } => Self::new(Exit::Failed, error),
        }
    }
}

impl From<runtime::Failure> for Failure {
    fn from(error: runtime::Failure) -> Self {
        let exit = match &error {
            runtime::Failure::NotLoaded { .. } => Exit::NotFound,
            runtime::Failure::PromptTooLong { .. } | runtime::Failure::BadRequest(_) => Exit::Usage,
            runtime::Failure::BrokenTemplate(_) => Exit::BadData,
            runtime::Failure::Busy { .. } | runtime::Failure::Paused => Exit::Unavailable,
            _ => Exit::Failed,
        };
        Self::new(exit, error)
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        let exit = match &error {
            CheckpointError::NotFound { .. } => Exit::NotFound,
            CheckpointError::Unreadable { .. } => Exit::Failed,
            CheckpointError::Device { .. } => Exit::Unavailable,
            CheckpointError::Refused { .. }
            | CheckpointError::Broken { .. }
            | CheckpointError::Unsupported { .. } => Exit::BadData,
        };
        Self::new(exit, error)
    }
}

/// The remedy for a model that does not fit: lower `owner.keep_free`, or `otherwise`.
pub fn to_fit(refusal: &Refusal, otherwise: &'static str) -> &'static str {
    match refusal.fits_without_keep() {
        true => "lower owner.keep_free, then the model fits",
        false => otherwise,
    }
}

/// Clap's output: help and version on standard output, usage errors on standard error.
pub fn report_usage(error: &clap::Error) -> ExitCode {
    // A closed pipe is no reason to complain: `worker --help | head -1`.
    let _ = error.print();
    match error.use_stderr() {
        true => ExitCode::from(Exit::Usage as u8),
        false => ExitCode::SUCCESS,
    }
}

/// An operating system's error without its number: `no such file or directory`.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(letters).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_in_the_help() {
        for (exit, meaning) in Exit::ALL {
            assert!(Exit::table().contains(&format!("{:>3}  {meaning}", exit as u8)));
        }
    }

    #[test]
    fn a_missing_file_is_not_found_and_an_unreadable_one_a_failure() {
        let path = std::path::Path::new("/x");
        let kind = |kind| Failure::reading(path, &io::Error::from(kind)).exit();
        assert_eq!(kind(io::ErrorKind::NotFound), Some(Exit::NotFound));
        assert_eq!(kind(io::ErrorKind::PermissionDenied), Some(Exit::Failed));
    }

    #[test]
    fn system_errors_are_quoted_without_their_numbers() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        assert_eq!(words(&error), "no such file or directory");
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        assert_eq!(
            Failure::showing(&io::Error::from(io::ErrorKind::BrokenPipe)).exit(),
            None
        );
    }
}
