//! `worker bench image`: a step with guidance and the decoding of an image, with random weights in a known shape.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::figures::Figure;
use super::limits::Limits;
use super::memory;
use super::place::{Place, first_line};
use crate::cli::{Exit, Failure, output};
use crate::networks::image::{ImageBench, SyntheticImage};

/// Measure drawing: seconds per step and per image, and the share of this machine's limits.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DrawingBenchArgs {
    /// Shape of the random weights: sd15 or sdxl.
    #[arg(long, value_name = "SHAPE", default_value = "sd15", value_parser = shape)]
    pub synthetic: SyntheticImage,
    /// Size of the image; default: that of the shape.
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = size)]
    pub size: Option<[u32; 2]>,
    /// Device to run on: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub device: Place,
    /// Number of measurements; the report shows the median.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub repeat: u16,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  worker bench image
  worker bench image --synthetic sdxl --size 512x512 --repeat 1";

#[derive(Debug, Serialize)]
struct ImageBenchReport {
    shape: &'static str,
    device: String,
    width: u32,
    height: u32,
    repeat: u16,
    limits: Limits,
    /// One step with guidance: two passes at once.
    step: DrawingFigure,
    decode: DrawingFigure,
    /// What the process held after the measurements.
    resident_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct DrawingFigure {
    seconds: Figure,
    operations: u64,
    operations_per_second: f64,
    /// Of the machine's limit; none where more was reached than was measured to be possible.
    share: Option<f64>,
}

fn shape(name: &str) -> Result<SyntheticImage, String> {
    let mut all = SyntheticImage::ALL.into_iter();
    all.find(|shape| shape.name() == name).ok_or_else(|| {
        let names = SyntheticImage::ALL.map(SyntheticImage::name).join(", ");
        format!("expected one of {names}")
    })
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let side = |text: &str| {
        let side = text.parse().ok()?;
        (64..=2048_u32).contains(&side).then_some(side)
    };
    let sides = text.split_once('x');
    let sides = sides.and_then(|(width, height)| Some([side(width)?, side(height)?]));
    let fits = |sides: &[u32; 2]| sides.iter().all(|side| side.is_multiple_of(64));
    sides
        .filter(fits)
        .ok_or_else(|| "expected WIDTHxHEIGHT with multiples of 64 from 64 to 2048".to_owned())
}

pub fn run(args: &DrawingBenchArgs, is_shown: bool) -> Result<(), Failure> {
    let device = args.device.open()?;
    let failed = |error: &candle_core::Error| {
        let message = format!("measuring failed: {}", first_line(error));
        Failure::new(Exit::Failed, message)
    };
    let side = args.synthetic.side();
    let size @ [width, height] = args.size.unwrap_or([side, side]);
    if is_shown && !args.json {
        output::aside(format!("making up weights of {}", args.synthetic.name()));
    }
    let bench = ImageBench::new(args.synthetic, &device).map_err(|flaw| {
        Failure::new(
            Exit::Failed,
            flaw.in_file(Path::new("random weights")).to_string(),
        )
    })?;
    let timed = |work: &dyn Fn() -> candle_core::Result<()>| {
        work()?;
        let mut seconds = Vec::new();
        for _ in 0..args.repeat {
            let began = Instant::now();
            work()?;
            seconds.push(began.elapsed().as_secs_f64());
        }
        Ok(seconds)
    };
    let step = timed(&|| bench.step(size)).map_err(|error| failed(&error))?;
    let decode = timed(&|| bench.decode(size)).map_err(|error| failed(&error))?;
    // Before the machine's limits are measured, which takes memory of its own.
    let resident_bytes = memory::resident_bytes();
    let limits = Limits::measure(&device).map_err(|error| failed(&error))?;
    let part = |seconds: Vec<f64>, operations: u64| {
        let seconds = Figure::of(seconds)?;
        let operations_per_second = operations as f64 / seconds.median;
        let share = operations_per_second / limits.operations_per_second;
        Some(DrawingFigure {
            seconds,
            operations,
            operations_per_second,
            share: Some(share).filter(|share| *share <= 1.0),
        })
    };
    let parts =
        part(step, bench.step_operations(size)).zip(part(decode, bench.decode_operations(size)));
    let (step, decode) =
        parts.ok_or_else(|| Failure::new(Exit::Failed, "nothing was measured".to_owned()))?;
    let report = ImageBenchReport {
        shape: args.synthetic.name(),
        device: args.device.to_string(),
        width,
        height,
        repeat: args.repeat,
        limits,
        step,
        decode,
        resident_bytes,
    };
    match args.json {
        true => output::json(&report),
        false => output::line(report.table()),
    }
}

impl ImageBenchReport {
    fn table(&self) -> String {
        let steps = 20.0 * self.step.seconds.median + self.decode.seconds.median;
        let memory = self.resident_bytes.map_or(String::new(), |bytes| {
            format!("\nmemory of the process: {} MB", bytes / 1_000_000)
        });
        format!(
            "{} on {}, {} x {}, f32, median of {}\n\
             limits of this machine: memory {:.1} GB/s, products {:.0} Gop/s, {} threads\n\n\
             {:<20} {:>9} {:>7} {:>9} {:>9} {:>9}\n{}\n{}\n\n\
             an image of 20 steps: {steps:.0} s{memory}",
            self.shape,
            self.device,
            self.width,
            self.height,
            self.repeat,
            self.limits.bytes_per_second / 1e9,
            self.limits.operations_per_second / 1e9,
            self.limits.threads,
            "",
            "seconds",
            "+-",
            "Gop",
            "Gop/s",
            "share",
            self.step.line("step with guidance"),
            self.decode.line("decoding"),
        )
    }
}

impl DrawingFigure {
    fn line(&self, name: &str) -> String {
        let share = self
            .share
            .map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share));
        format!(
            "{name:<20} {:>9.2} {:>5.1} % {:>9.0} {:>9.0} {share:>9}",
            self.seconds.median,
            100.0 * self.seconds.spread(),
            self.operations as f64 / 1e9,
            self.operations_per_second / 1e9,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_multiples_of_64() {
        assert_eq!(size("512x768"), Ok([512, 768]));
        for wrong in ["512", "500x512", "0x64", "64x4096", "axb", "64x"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
