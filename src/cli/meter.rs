//! How far long work is: a bar on a terminal, a line now and then elsewhere. All of it on standard error.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use super::{output, quantity};
use crate::telemetry::{self, Format};

const TEMPLATE: &str =
    "{msg}\n[{wide_bar}] {binary_bytes} of {binary_total_bytes} {binary_bytes_per_sec} {eta}";

/// How every bar of bytes looks.
pub fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template(TEMPLATE);
    style
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

/// Progress of work in bytes.
pub struct Meter {
    /// `loading qwen3-0.6b`
    what: String,
    shown: Shown,
}

enum Shown {
    Nothing,
    Bar(ProgressBar),
    Lines(Mutex<Steps>),
}

impl Meter {
    pub fn new(what: String, is_shown: bool) -> Self {
        let is_log = telemetry::format() == Some(Format::Json);
        let shown = match (is_shown, stderr().is_terminal() && !is_log) {
            (false, _) => Shown::Nothing,
            (true, false) => Shown::Lines(Mutex::default()),
            (true, true) => {
                let bar = ProgressBar::new(0).with_style(style());
                Shown::Bar(bar.with_message(what.clone()))
            }
        };
        Self { what, shown }
    }

    pub fn set(&self, done: u64, total: u64) {
        match &self.shown {
            Shown::Nothing => {}
            Shown::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
            }
            Shown::Lines(steps) => {
                let mut steps = steps.lock();
                if let Some(percent) = steps.passed(done, total) {
                    let total = quantity::bytes(total);
                    output::aside(format!("{}: {percent} % of {total}", self.what));
                }
            }
        }
    }

    /// Clears the bar for further output.
    pub fn end(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// Smaller files are loaded before a progress report is useful.
const LEAST_BYTES: u64 = 256 << 20;

/// Tenths of the work, each reported once except the last, which the result reports.
#[derive(Default)]
struct Steps {
    told: u64,
}

impl Steps {
    /// The hundredths to tell now.
    fn passed(&mut self, done: u64, total: u64) -> Option<u64> {
        let tenths = done.saturating_mul(10).checked_div(total)?;
        let is_worth_it = total >= LEAST_BYTES && tenths < 10;
        (is_worth_it && tenths > self.told).then(|| {
            self.told = tenths;
            tenths * 10
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reported steps of a download in this many pieces.
    fn check(total: u64, pieces: u64, expected: &[u64]) {
        let mut steps = Steps::default();
        let told = (0..=pieces).filter_map(|piece| steps.passed(total / pieces * piece, total));
        assert_eq!(told.collect::<Vec<_>>(), expected, "{total} in {pieces}");
    }

    #[test]
    fn large_work_is_told_in_tenths_and_small_work_not_at_all() {
        check(40 << 30, 40 << 10, &[10, 20, 30, 40, 50, 60, 70, 80, 90]);
        check(1 << 30, 4, &[20, 50, 70]);
        check(1 << 30, 1, &[]);
        check(255 << 20, 255, &[]);
    }

    #[test]
    fn nothing_to_do_is_not_told() {
        assert_eq!(Steps::default().passed(0, 0), None);
    }
}
