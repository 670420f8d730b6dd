//! The log: one line per event on standard error, as text or JSON.
//!
//! Prompts, results, keys and addresses of clients are never written to it, at any level.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing::Level;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
}

/// Crates that log warnings about input from peers, which would let any client flood the log. Our own events report the
/// errors of a connection.
const PEERS: [&str; 6] = [
    "h2",
    "hyper",
    "hyper_util",
    "rustls",
    "tokio_tungstenite",
    "tungstenite",
];

/// Filter of logged events.
#[derive(Debug, Clone)]
pub struct Detail(Targets);

/// The log of this process.
struct Log {
    format: Format,
    filter: Handle<Targets, Registry>,
}

static LOG: OnceLock<Log> = OnceLock::new();

impl Detail {
    /// Our events from `level` on, those of dependencies from `warn` on.
    pub fn of(level: Level) -> Self {
        let quiet = LevelFilter::from_level(level.min(Level::WARN));
        let targets = Targets::new()
            .with_default(quiet)
            .with_targets(PEERS.map(|name| (name, LevelFilter::ERROR)))
            // Audio decoders log each unreadable file as an error; the client gets an error reply instead.
            .with_target("symphonia", LevelFilter::OFF)
            .with_target("muster", level);
        Self(targets)
    }

    /// Parses the syntax of `RUST_LOG`, such as `debug` or `muster=trace,hyper=info`; `None` for invalid directives.
    pub fn parse(directives: &str) -> Option<Self> {
        directives.parse().ok().map(Self)
    }
}

/// Starts the log of this process.
pub fn start(format: Format, detail: Detail) -> Result<(), TryInitError> {
    let (filter, handle) = reload::Layer::new(detail.0);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(Lines)
        // Errors of writing a line, for example to a closed terminal, are ignored: reporting them would panic.
        .log_internal_errors(false)
        .with_target(false);
    let layer = match format {
        Format::Text => lines.with_ansi(has_colours()).boxed(),
        Format::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .try_init()?;
    let log = Log {
        format,
        filter: handle,
    };
    if LOG.set(log).is_ok() && format == Format::Json {
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    }
    Ok(())
}

/// Changes the filter.
pub fn set_detail(detail: Detail) {
    if let Some(log) = LOG.get() {
        // The subscriber lives as long as the process.
        let _ = log.filter.reload(detail.0);
    }
}

/// Lines of the log after the one with this number, the oldest first, with their own numbers. The last ones are kept; a number
/// that no line has had yet is that of an earlier process, and all lines follow it.
pub fn lines_after(number: u64) -> Vec<(u64, String)> {
    let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    recent.after(number)
}

/// The format of the log, once it was started.
pub fn format() -> Option<Format> {
    LOG.get().map(|log| log.format)
}

/// On a terminal, unless its user disabled colours: <https://no-color.org>.
fn has_colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && io::stderr().is_terminal()
}

/// The last lines of the log.
#[derive(Debug)]
struct RecentLines {
    lines: VecDeque<String>,
    /// Number of lines so far.
    count: u64,
}

static RECENT: Mutex<RecentLines> = Mutex::new(RecentLines {
    lines: VecDeque::new(),
    count: 0,
});
const RECENT_LINES: usize = 500;
const LONGEST_RECENT: usize = 2000;

impl RecentLines {
    fn add(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST_RECENT)]);
        self.lines.push_back(without_colours(text.trim_end()));
        self.count += 1;
        if self.lines.len() > RECENT_LINES {
            self.lines.pop_front();
        }
    }

    fn after(&self, number: u64) -> Vec<(u64, String)> {
        let first = self.count - self.lines.len() as u64 + 1;
        let number = if number > self.count { 0 } else { number };
        let numbered = (first..).zip(&self.lines);
        let newer = numbered.filter(|(at, _)| *at > number);
        newer.map(|(at, line)| (at, line.clone())).collect()
    }
}

/// Escapes of a terminal, up to the letter that ends each.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        text + end.map_or("", |end| &part[end + 1..])
    })
}

/// Writes each event as one line. Newlines in input from peers would otherwise forge lines of the log;
/// `tracing_subscriber` escapes only control characters that terminals interpret.
#[derive(Debug, Clone, Copy)]
struct Lines;

/// An event, written in one call.
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
        let escaped = one_line(event);
        let line = escaped.as_deref().unwrap_or(event);
        RECENT
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(line);
        io::stderr().write_all(line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The event with inner control characters escaped; `None` if it has none.
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
    use tracing::Level;

    use super::{Detail, RECENT_LINES, RecentLines, one_line};

    #[test]
    fn rust_log_names_a_level_or_targets() {
        let detail = Detail::parse("muster=debug,hyper=info").unwrap();
        assert!(detail.0.would_enable("muster_worker::link", &Level::DEBUG));
        assert!(!detail.0.would_enable("hyper", &Level::DEBUG));
        let all = Detail::parse("trace").unwrap();
        assert!(all.0.would_enable("any", &Level::TRACE));
        assert!(Detail::parse("muster=louder").is_none());
    }

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

    #[test]
    fn the_last_lines_are_kept_with_their_numbers_and_without_colours() {
        let mut recent = RecentLines {
            lines: Default::default(),
            count: 0,
        };
        recent.add(b"\x1b[2m12:00\x1b[0m \x1b[32m INFO\x1b[0m first\n");
        assert_eq!(recent.after(0), [(1, "12:00  INFO first".to_owned())]);
        for line in 2..=RECENT_LINES + 3 {
            recent.add(format!("line {line}\n").as_bytes());
        }
        let lines = recent.after(0);
        assert_eq!(lines.len(), RECENT_LINES);
        assert_eq!(lines[0], (4, "line 4".to_owned()));
        let last = RECENT_LINES as u64 + 3;
        assert_eq!(recent.after(last - 1), [(last, format!("line {last}"))]);
        assert_eq!(recent.after(last), []);
        assert_eq!(recent.after(last + 1).len(), RECENT_LINES);
    }
}
