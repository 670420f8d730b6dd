//! Progress of a generation: a bar on a terminal, a line for each tenth elsewhere, all on standard error.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::output;

const TEMPLATE: &str = "[{wide_bar}] step {pos} of {len}, {msg}";

/// Progress of a generation in steps.
pub struct StepMeter {
    started: Instant,
    shown: StepDisplay,
}

enum StepDisplay {
    Nothing,
    Bar(ProgressBar),
    /// The tenths that were shown.
    Lines(u32),
}

impl StepMeter {
    pub fn new(is_shown: bool) -> Self {
        let style = || ProgressStyle::with_template(TEMPLATE);
        let style = || style().unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            started: Instant::now(),
            shown: match (is_shown, stderr().is_terminal()) {
                (false, _) => StepDisplay::Nothing,
                (true, false) => StepDisplay::Lines(0),
                (true, true) => {
                    let bar = ProgressBar::new(1).with_style(style().progress_chars("=> "));
                    StepDisplay::Bar(bar.with_message("starting"))
                }
            },
        }
    }

    pub fn step(&mut self, at: u32, of: u32) {
        let left = left(self.started.elapsed(), at, of);
        match &mut self.shown {
            StepDisplay::Nothing => {}
            StepDisplay::Bar(bar) => {
                bar.set_length(of.into());
                bar.set_position(at.into());
                bar.set_message(left);
            }
            StepDisplay::Lines(tenths) => {
                let now = at * 10 / of.max(1);
                if now > *tenths {
                    *tenths = now;
                    output::aside(format!("step {at} of {of}, {left}"));
                }
            }
        }
    }

    /// Clears the bar for further output.
    pub fn end(&self) {
        if let StepDisplay::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

/// How long the other steps take at the pace so far. The image is decoded after the last one.
fn left(elapsed: Duration, at: u32, of: u32) -> String {
    match (at, of.saturating_sub(at)) {
        (0, _) => "starting".to_owned(),
        (_, 0) => "decoding".to_owned(),
        (done, left) => {
            let seconds = (elapsed * left / done).as_secs_f64();
            match seconds < 90.0 {
                true => format!("{seconds:.0} s left"),
                false => format!("{:.0} min left", seconds / 60.0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_that_of_the_steps_so_far() {
        let ten = Duration::from_secs(10);
        assert_eq!(left(ten, 5, 20), "30 s left");
        assert_eq!(left(ten, 1, 100), "16 min left");
        assert_eq!(left(ten, 20, 20), "decoding");
        assert_eq!(left(ten, 0, 20), "starting");
    }
}
