//! How a pull looks: a bar on a terminal, a line now and then elsewhere. All of it on standard error.

use std::{
    collections::HashMap,
    io::{IsTerminal, Write, stderr},
};

use indicatif::ProgressBar;
use parking_lot::Mutex;

use crate::{
    cli::{meter, quantity},
    hub::{Event, Progress, Unwatched},
    telemetry::{self, Format},
};

/// The progress display for the type of standard error.
pub fn progress(quiet: bool) -> Box<dyn Progress> {
    let is_log = telemetry::format() == Some(Format::Json);
    match (quiet, stderr().is_terminal() && !is_log) {
        (true, _) => Box::new(Unwatched),
        (false, true) => Box::new(Bar::new()),
        (false, false) => Box::new(Lines::default()),
    }
}

struct Bar {
    bar: ProgressBar,
    /// Bytes received of each file, to subtract when its download restarts.
    received: Mutex<HashMap<String, u64>>,
}

impl Bar {
    fn new() -> Self {
        Self {
            bar: ProgressBar::new(0).with_style(meter::style()),
            received: Mutex::default(),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar {
    fn report(&self, event: Event<'_>) {
        let mut received = self.received.lock();
        match event {
            Event::Planned {
                wanted_bytes,
                present_bytes,
                ..
            } => {
                self.bar.set_length(wanted_bytes + present_bytes);
                self.bar.set_position(present_bytes);
                self.bar.reset_eta();
            }
            Event::Received { file, bytes } => {
                *received.entry(file.to_string()).or_default() += bytes;
                self.bar.inc(bytes);
            }
            Event::Started {
                file,
                present_bytes,
                ..
            } => {
                received.insert(file.to_string(), present_bytes);
                self.bar.set_message(file.to_string());
            }
            Event::Restarted { file, .. } => {
                let lost = received.remove(file.as_str()).unwrap_or_default();
                self.bar
                    .set_position(self.bar.position().saturating_sub(lost));
            }
            Event::Verifying { file } => self
                .bar
                .set_message(format!("{file}: verifying the checksum")),
            _ => {}
        }
        if let Some(words) = words(event) {
            self.bar.suspend(|| line(&words));
        }
    }
}

/// Interval of progress lines, in percent.
const STEP_PERCENT: u64 = 10;

#[derive(Default)]
struct Lines(Mutex<Tally>);

#[derive(Default)]
struct Tally {
    total: u64,
    present: u64,
    /// The last reported step.
    told: u64,
}

impl Progress for Lines {
    fn report(&self, event: Event<'_>) {
        let mut tally = self.0.lock();
        match event {
            Event::Planned {
                wanted_bytes,
                present_bytes,
                files,
            } => {
                tally.total = wanted_bytes + present_bytes;
                tally.present = present_bytes;
                tally.told = tally.step();
                line(&format!(
                    "{}, {}: {} to download, {} on disk",
                    quantity::count(files as u64, "file"),
                    quantity::bytes(tally.total),
                    quantity::bytes(wanted_bytes),
                    quantity::bytes(present_bytes)
                ));
            }
            Event::Received { file, bytes } => {
                tally.present += bytes;
                if tally.step() > tally.told {
                    tally.told = tally.step();
                    line(&format!("{} %  {file}", tally.told * STEP_PERCENT));
                }
            }
            _ => {}
        }
        if let Some(words) = words(event) {
            line(&words);
        }
    }
}

impl Tally {
    fn step(&self) -> u64 {
        let hundredths = self.present.min(self.total).saturating_mul(100);
        hundredths.checked_div(self.total).unwrap_or(0) / STEP_PERCENT
    }
}

/// The line for an event that deserves one, on a terminal too.
fn words(event: Event<'_>) -> Option<String> {
    match event {
        Event::Waiting { what, why, wait } => {
            let seconds = wait.as_secs_f64();
            Some(format!("{what}: {why}; retrying in {seconds:.1} s"))
        }
        Event::Restarted { file, why } => Some(format!("{file}: restarting the download: {why}")),
        Event::Locked { file } => Some(format!(
            "{file}: waiting for another process to download it"
        )),
        Event::Removed {
            repository, bytes, ..
        } => Some(format!(
            "removed files of {repository} that were not used for the longest time, {}, to keep to hub.disk",
            quantity::bytes(bytes)
        )),
        _ => None,
    }
}

fn line(words: &str) {
    // A closed standard error is ignored.
    match telemetry::format() {
        Some(Format::Json) => tracing::info!("{words}"),
        _ => {
            let _ = writeln!(stderr().lock(), "{words}");
        }
    }
}
