//! The log: one line per event on standard error, as text or JSON.
//!
//! Prompts, results, keys and addresses of clients are never written to it, at any level.

use std::io::{self, IsTerminal};

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// Starts the log of this process: our own events from `level` on, those of the crates we use from `warn` on.
pub fn start(format: Format, level: Level) -> Result<(), TryInitError> {
    let quiet = LevelFilter::from_level(level.min(Level::WARN));
    let filter = Targets::new()
        .with_default(quiet)
        .with_target("muster", level);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false);
    let layer = match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()
}
