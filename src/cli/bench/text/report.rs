//! Reports of `worker bench text`: a table for people, the same figures as JSON.

use serde::Serialize;

use super::driver::{Course, Phase};
use crate::cli::bench::figures::Figure;
use crate::cli::bench::limits::Limits;
use crate::networks::text::StepCost;

#[derive(Debug, Serialize)]
pub struct Report {
    pub model: String,
    pub device: String,
    /// How keys and values were stored.
    pub kv: &'static str,
    pub weight_bytes: u64,
    pub file_bytes: Option<u64>,
    /// Resident memory after the measurements: weights, contexts and everything else.
    pub resident_bytes: Option<u64>,
    pub course: Course,
    pub repeat: usize,
    pub limits: Limits,
    pub runs: Vec<Run>,
}

#[derive(Debug, Serialize)]
pub struct Run {
    pub name: String,
    pub phase: Phase,
    pub tokens_per_second: Figure,
    /// Lower bound of the memory traffic of a step.
    pub bytes_per_step: u64,
    pub operations_per_step: u64,
    pub reached: Reached,
}

/// Shares of the machine's limits reached at the median speed. `None` above 100 %: then the measured limit did not
/// bound this run, since cached weights are read faster than memory, and integer products can be faster than float
/// ones.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Reached {
    pub memory: Option<f64>,
    pub operations: Option<f64>,
}

fn share(found: f64, limit: f64) -> Option<f64> {
    Some(found / limit).filter(|share| *share <= 1.0)
}

impl Run {
    pub fn new(phase: Phase, speed: Figure, step: StepCost, limits: &Limits) -> Self {
        let steps_per_second = speed.median / phase.tokens_per_step() as f64;
        Self {
            name: phase.name(),
            phase,
            tokens_per_second: speed,
            bytes_per_step: step.bytes,
            operations_per_step: step.operations,
            reached: Reached {
                memory: share(
                    step.bytes as f64 * steps_per_second,
                    limits.bytes_per_second,
                ),
                operations: share(
                    step.operations as f64 * steps_per_second,
                    limits.operations_per_second,
                ),
            },
        }
    }

    fn line(&self) -> String {
        format!(
            "{:<14} {:>9.1} {:>6.1} % {:>10} {:>10} {:>10} {:>10}",
            self.name,
            self.tokens_per_second.median,
            100.0 * self.tokens_per_second.spread(),
            mega(self.bytes_per_step),
            giga(self.operations_per_step),
            percent(self.reached.memory),
            percent(self.reached.operations),
        )
    }
}

impl Report {
    pub fn table(&self) -> String {
        let head = format!(
            "{:<14} {:>9} {:>8} {:>10} {:>10} {:>10} {:>10}",
            "", "tok/s", "+-", "MB/step", "Gop/step", "memory", "products"
        );
        let runs = self.runs.iter().map(Run::line);
        let lines = [self.first_line(), self.limits_line(), String::new(), head];
        lines
            .into_iter()
            .chain(runs)
            .chain([self.notes()])
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn first_line(&self) -> String {
        let weights = mega(self.weight_bytes);
        format!(
            "{} on {}: {weights} MB of weights, {} keys and values",
            self.model, self.device, self.kv
        )
    }

    fn limits_line(&self) -> String {
        format!(
            "limits of this machine: memory {:.1} GB/s, products {:.0} Gop/s, {} threads",
            self.limits.bytes_per_second / 1e9,
            self.limits.operations_per_second / 1e9,
            self.limits.threads,
        )
    }

    fn notes(&self) -> String {
        let Course { context, steps } = self.course;
        let memory = self.resident_bytes.map_or_else(String::new, |bytes| {
            format!("; {} MB in memory", mega(bytes))
        });
        let ratio = self.resident_bytes.zip(self.file_bytes);
        let ratio = ratio.map_or_else(String::new, |(held, file)| {
            format!(", {:.2} times the file", held as f64 / file as f64)
        });
        let is_over = |run: &Run| run.reached.memory.and(run.reached.operations).is_none();
        let over = match self.runs.iter().any(is_over) {
            true => "\n-: faster than the measured limit, so not limited by it",
            false => "",
        };
        format!(
            "\ndecode: {steps} steps after {context} tokens of context; median of {}{memory}{ratio}{over}",
            self.repeat
        )
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}

fn mega(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

fn giga(operations: u64) -> String {
    format!("{:.2}", operations as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(phase: Phase, median: f64) -> Run {
        let limits = Limits {
            threads: 2,
            bytes_per_second: 30e9,
            operations_per_second: 300e9,
        };
        let step = StepCost {
            bytes: 1_000_000_000,
            operations: 3_000_000_000,
        };
        Run::new(phase, Figure::of(vec![median]).unwrap(), step, &limits)
    }

    fn is_about(share: Option<f64>, expected: f64) -> bool {
        share.is_some_and(|share| (share - expected).abs() < 1e-9)
    }

    #[test]
    fn one_stream_reads_everything_for_each_token() {
        let reached = run(Phase::Decode(1), 15.0).reached;
        assert!(is_about(reached.memory, 0.5));
        assert!(is_about(reached.operations, 0.15));
    }

    #[test]
    fn streams_share_what_a_step_reads() {
        assert!(is_about(run(Phase::Decode(8), 120.0).reached.memory, 0.5));
        assert!(is_about(
            run(Phase::Prefill(128), 128.0).reached.memory,
            1.0 / 30.0
        ));
    }

    #[test]
    fn a_measured_limit_that_is_exceeded_is_none() {
        let run = run(Phase::Decode(1), 45.0);
        assert_eq!(run.reached.memory, None);
        assert!(is_about(run.reached.operations, 0.45));
        assert!(!run.line().contains("150"), "{}", run.line());
    }

    #[test]
    fn a_line_names_its_phase_and_its_shares() {
        let line = run(Phase::Decode(1), 15.0).line();
        assert!(
            line.starts_with("decode 1 ") && line.contains("15.0") && line.contains("50 %"),
            "{line}"
        );
    }
}
