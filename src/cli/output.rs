//! Standard output, written so that a reader who leaves early ends the command instead of panicking in it.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use super::Failure;
use crate::telemetry::{self, Format};

/// Prints a line for the owner.
pub fn line(text: impl Display) -> Result<(), Failure> {
    bytes(format!("{text}\n").as_bytes())
}

/// Text as it is, visible at once.
pub fn text(text: impl Display) -> Result<(), Failure> {
    bytes(text.to_string().as_bytes())
}

/// Prints a report for programs: one indented value.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(serde_json::to_string_pretty(value).map_err(anyhow::Error::from)?)
}

/// Prints an event for programs: one value per line.
pub fn json_line(value: &impl Serialize) -> Result<(), Failure> {
    line(serde_json::to_string(value).map_err(anyhow::Error::from)?)
}

/// A remark on standard error, beside the result. A closed standard error is ignored.
pub fn aside(text: impl Display) {
    match telemetry::format() {
        Some(Format::Json) => tracing::info!("{text}"),
        _ => {
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }
}

pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout
        .write_all(bytes)
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::showing(&error))
}
