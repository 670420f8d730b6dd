//! Parts of a job, timed separately and compared with the machine's limits.

use std::time::Instant;

use candle_core::Device;
use serde::Serialize;

use super::figures::Figure;
use super::limits::Limits;
use super::memory;
use super::place::first_line;
use crate::cli::{Exit, Failure};

/// A part and how to do it once.
pub struct TimedPart<'a> {
    pub name: &'a str,
    /// Multiplications and additions.
    pub operations: u64,
    pub work: &'a dyn Fn() -> candle_core::Result<()>,
}

#[derive(Debug, Serialize)]
pub struct PartsReport {
    pub limits: Limits,
    pub parts: Vec<PartFigure>,
    /// Memory of the process after the measurements.
    pub resident_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct PartFigure {
    pub name: String,
    pub seconds: Figure,
    pub operations: u64,
    pub operations_per_second: f64,
    /// Share of the machine's limit; `None` above 100 %.
    pub share: Option<f64>,
}

/// Each part once for warmth, then `repeat` times.
pub fn measure(
    parts: &[TimedPart<'_>],
    repeat: u16,
    device: &Device,
) -> Result<PartsReport, Failure> {
    let failed = |error: candle_core::Error| {
        let message = format!("measuring failed: {}", first_line(&error));
        Failure::new(Exit::Failed, message)
    };
    let mut times = Vec::new();
    for part in parts {
        (part.work)().map_err(failed)?;
        let mut seconds = Vec::new();
        for _ in 0..repeat {
            let began = Instant::now();
            (part.work)().map_err(failed)?;
            seconds.push(began.elapsed().as_secs_f64());
        }
        times.push(seconds);
    }
    // Before the machine's limits are measured, which takes memory of its own.
    let resident_bytes = memory::resident_bytes();
    let limits = Limits::measure(device).map_err(failed)?;
    let figures = parts.iter().zip(times).filter_map(|(part, seconds)| {
        let seconds = Figure::of(seconds)?;
        let operations_per_second = part.operations as f64 / seconds.median;
        let share = operations_per_second / limits.operations_per_second;
        Some(PartFigure {
            name: part.name.to_owned(),
            seconds,
            operations: part.operations,
            operations_per_second,
            share: Some(share).filter(|share| *share <= 1.0),
        })
    });
    Ok(PartsReport {
        parts: figures.collect(),
        limits,
        resident_bytes,
    })
}

impl PartsReport {
    pub fn seconds_of(&self, name: &str) -> f64 {
        let part = self.parts.iter().find(|part| part.name == name);
        part.map_or(0.0, |part| part.seconds.median)
    }

    /// `first` and `last` are lines around the table.
    pub fn table(&self, first: &str, last: &str) -> String {
        let limits = format!(
            "limits of this machine: memory {:.1} GB/s, products {:.0} Gop/s, {} threads",
            self.limits.bytes_per_second / 1e9,
            self.limits.operations_per_second / 1e9,
            self.limits.threads,
        );
        let head = format!(
            "{:<26} {:>9} {:>7} {:>9} {:>9} {:>9}",
            "", "seconds", "+-", "Gop", "Gop/s", "share"
        );
        let memory = self
            .resident_bytes
            .map(|bytes| format!("memory of the process: {} MB", bytes / 1_000_000));
        let lines = [first.to_owned(), limits, String::new(), head];
        let parts = self.parts.iter().map(PartFigure::line);
        let rest = [String::new(), last.to_owned()];
        let lines = lines.into_iter().chain(parts).chain(rest).chain(memory);
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl PartFigure {
    fn line(&self) -> String {
        let share = self
            .share
            .map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        format!(
            "{:<26} {:>9.3} {:>5.1} % {:>9.1} {:>9.0} {share:>9}",
            self.name,
            self.seconds.median,
            100.0 * self.seconds.spread(),
            self.operations as f64 / 1e9,
            self.operations_per_second / 1e9,
        )
    }
}
