//! The log: one line per event on standard error, as text or JSON.
//!
//! Prompts, results, keys and addresses of clients are never written to it, at any level.

use std::io::{self, IsTerminal, Write};

use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// Crates that warn of what a peer sends: whoever connects could write as many lines as it likes. What becomes of a
/// connection is told by our own events.
const PEERS: [&str; 6] = [
    "h2",
    "hyper",
    "hyper_util",
    "rustls",
    "tokio_tungstenite",
    "tungstenite",
];

/// Starts the log of this process: our own events from `level` on, those of the crates we use from `warn` on.
pub fn start(format: Format, level: Level) -> Result<(), TryInitError> {
    let quiet = LevelFilter::from_level(level.min(Level::WARN));
    let filter = Targets::new()
        .with_default(quiet)
        .with_targets(PEERS.map(|name| (name, LevelFilter::ERROR)))
        .with_target("muster", level);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(Lines)
        .with_target(false);
    let layer = match format {
        Format::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()
}

/// Writes each event as one line. Control characters in what peers have sent would otherwise write lines of their own;
/// `tracing_subscriber` escapes those that terminals act on, and not the ends of lines.
#[derive(Debug, Clone, Copy)]
struct Lines;

/// One event, which is written in one go.
#[derive(Debug)]
struct Line;

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line
    }
}

impl Write for Line {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        match one_line(event) {
            None => io::stderr().write_all(event)?,
            Some(line) => io::stderr().write_all(&line)?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The event with escapes for its inner control characters. None if it has none.
fn one_line(event: &[u8]) -> Option<Vec<u8>> {
    let (inner, end) = match event.split_last() {
        Some((b'\n', inner)) => (inner, &b"\n"[..]),
        _ => (event, &b""[..]),
    };
    // Colours of a terminal begin with an escape.
    let breaks = |byte: &u8| byte.is_ascii_control() && *byte != 0x1b;
    if !inner.iter().any(breaks) {
        return None;
    }
    let mut line = Vec::with_capacity(event.len() + 16);
    for byte in inner {
        match breaks(byte) {
            true => line.extend(byte.escape_ascii()),
            false => line.push(*byte),
        }
    }
    line.extend(end);
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn control_characters_in_an_event_do_not_end_its_line() {
        let line =
            |event: &str| one_line(event.as_bytes()).map(|it| String::from_utf8(it).unwrap());
        assert_eq!(line("INFO a line\n"), None);
        assert_eq!(line("\u{1b}[32mINFO\u{1b}[0m a line\n"), None);
        assert_eq!(
            line("it says: a\nWARN b\r\tc\u{7f}é\n").as_deref(),
            Some("it says: a\\nWARN b\\r\\tc\\x7fé\n")
        );
        assert_eq!(line(""), None);
    }
}
