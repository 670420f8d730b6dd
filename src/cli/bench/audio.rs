//! `worker bench audio`: hearing a window of 30 s and writing about it, with random weights in a known shape.

use std::path::Path;

use serde_json::json;

use super::parts::{TimedPart, measure};
use super::place::{Place, first_line};
use crate::cli::{Exit, Failure, output};
use crate::networks::sound::{HearingBench, SyntheticHearing};

/// Measure hearing: seconds per window of sound and per token, and the share of this machine's limits.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct HearingBenchArgs {
    /// Shape of the random weights: whisper-tiny, whisper-base, whisper-small or whisper-large-v3-turbo.
    #[arg(long, value_name = "SHAPE", default_value = "whisper-base", value_parser = shape)]
    pub synthetic: SyntheticHearing,
    /// Tokens that are written about a window.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=448))]
    pub tokens: u32,
    /// Device to run on: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub device: Place,
    /// Number of measurements; the report shows the median.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub repeat: u16,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  worker bench audio
  worker bench audio --synthetic whisper-large-v3-turbo --repeat 1";

const HEARING: &str = "hearing 30 s";
const WRITING: &str = "writing";
const WINDOW_SECONDS: f64 = 30.0;

fn shape(name: &str) -> Result<SyntheticHearing, String> {
    let mut all = SyntheticHearing::ALL.into_iter();
    all.find(|shape| shape.name() == name).ok_or_else(|| {
        let names = SyntheticHearing::ALL.map(SyntheticHearing::name).join(", ");
        format!("expected one of {names}")
    })
}

pub fn run(args: &HearingBenchArgs, is_shown: bool) -> Result<(), Failure> {
    let device = args.device.open()?;
    let shape = args.synthetic;
    if is_shown && !args.json {
        output::aside(format!("making up weights of {}", shape.name()));
    }
    let bench = HearingBench::new(shape, &device).map_err(|flaw| {
        let failed = flaw.in_file(Path::new("random weights"));
        Failure::new(Exit::Failed, failed.to_string())
    })?;
    let states = bench.encode().map_err(|error| {
        let message = format!("measuring failed: {}", first_line(&error));
        Failure::new(Exit::Failed, message)
    })?;
    let parts = [
        TimedPart {
            name: HEARING,
            operations: bench.encode_operations(),
            work: &|| bench.encode().map(drop),
        },
        TimedPart {
            name: WRITING,
            operations: bench.write_operations(args.tokens),
            work: &|| bench.write(&states, args.tokens),
        },
    ];
    let report = measure(&parts, args.repeat, &device)?;
    if args.json {
        return output::json(&json!({
            "shape": shape.name(),
            "device": args.device.to_string(),
            "tokens": args.tokens,
            "repeat": args.repeat,
            "report": report,
        }));
    }
    let window = report.seconds_of(HEARING) + report.seconds_of(WRITING);
    output::line(report.table(
        &format!(
            "{} on {}, {} tokens a window, {}, median of {}",
            shape.name(),
            args.device,
            args.tokens,
            args.device.weight_type(),
            args.repeat
        ),
        &format!("{:.1} times as fast as the sound", WINDOW_SECONDS / window),
    ))
}
