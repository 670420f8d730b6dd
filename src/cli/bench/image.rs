//! `worker bench image`: a step with guidance and the decoding of an image, or single blocks, with random weights in a known
//! shape.

use std::path::Path;

use serde_json::json;

use super::parts::PartsReport;
use super::parts::{TimedPart, measure};
use super::place::Place;
use crate::cli::{Exit, Failure, output};
use crate::networks::image::{BlockBench, ImageBench, SyntheticImage};
use crate::networks::weights::Flaw;

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
    /// Measure one block of each kind and size instead of whole passes.
    #[arg(long)]
    pub blocks: bool,
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
  worker bench image --synthetic sdxl --size 512x512 --repeat 1
  worker bench image --synthetic sdxl --blocks";

const STEP: &str = "step with guidance";
const DECODING: &str = "decoding";
/// Steps of a usual image.
const STEPS: f64 = 20.0;

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
    let shape = args.synthetic;
    let size = args.size.unwrap_or([shape.side(); 2]);
    if is_shown && !args.json {
        output::aside(format!("making up weights of {}", shape.name()));
    }
    if args.blocks {
        let bench = &BlockBench::new(shape, size, &device).map_err(failure)?;
        let passes: Vec<_> = bench.parts().collect();
        let works = (0..passes.len()).map(|index| move || bench.pass(index));
        let works: Vec<_> = works.collect();
        let parts = passes.iter().zip(&works);
        let parts = parts.map(|((name, operations), work)| TimedPart {
            name,
            operations: *operations,
            work,
        });
        let parts: Vec<_> = parts.collect();
        let report = measure(&parts, args.repeat, &device)?;
        return show(args, size, &report, "one block of each kind, with guidance");
    }
    let bench = ImageBench::new(shape, &device).map_err(failure)?;
    let parts = [
        TimedPart {
            name: STEP,
            operations: bench.step_operations(size),
            work: &|| bench.step(size),
        },
        TimedPart {
            name: DECODING,
            operations: bench.decode_operations(size),
            work: &|| bench.decode(size),
        },
    ];
    let report = measure(&parts, args.repeat, &device)?;
    let whole = STEPS * report.seconds_of(STEP) + report.seconds_of(DECODING);
    let whole = format!("an image of {STEPS} steps: {whole:.1} s");
    show(args, size, &report, &whole)
}

fn failure(flaw: Flaw) -> Failure {
    let failed = flaw.in_file(Path::new("random weights"));
    Failure::new(Exit::Failed, failed.to_string())
}

/// `last` is a line below the table.
fn show(
    args: &DrawingBenchArgs,
    [width, height]: [u32; 2],
    report: &PartsReport,
    last: &str,
) -> Result<(), Failure> {
    let shape = args.synthetic;
    if args.json {
        return output::json(&json!({
            "shape": shape.name(),
            "device": args.device.to_string(),
            "width": width,
            "height": height,
            "repeat": args.repeat,
            "report": report,
        }));
    }
    output::line(report.table(
        &format!(
            "{} on {}, {width} x {height}, {}, median of {}",
            shape.name(),
            args.device,
            args.device.weight_type(),
            args.repeat
        ),
        last,
    ))
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
