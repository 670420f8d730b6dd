//! `worker bench video`: one block of Wan and the decoding of a clip, with random weights.

use std::path::Path;

use serde_json::json;

use super::parts::{TimedPart, measure};
use super::place::Place;
use crate::cli::{Exit, Failure, output};
use crate::networks::video::{SyntheticVideo, VideoBench};

/// Measure filming: one block of a network and the decoding of a clip, with random weights, and the share of this
/// machine's limits.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct FilmingBenchArgs {
    /// Shape of the random weights: wan-2.1-t2v-1.3b.
    #[arg(long, value_name = "SHAPE", default_value = "wan-2.1-t2v-1.3b", value_parser = shape)]
    pub synthetic: SyntheticVideo,
    /// Size of the video.
    #[arg(long, value_name = "WIDTHxHEIGHT", default_value = "256x256", value_parser = size)]
    pub size: [u32; 2],
    /// Frames of the video, four for each latent behind the first.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=161))]
    pub frames: u32,
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
  worker bench video
  worker bench video --size 480x272 --frames 33 --repeat 1";

const BLOCK: &str = "one block";
const DECODING: &str = "decoding";

fn shape(name: &str) -> Result<SyntheticVideo, String> {
    let mut all = SyntheticVideo::ALL.into_iter();
    all.find(|shape| shape.name() == name).ok_or_else(|| {
        let names = SyntheticVideo::ALL.map(SyntheticVideo::name).join(", ");
        format!("expected one of {names}")
    })
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let side = |text: &str| {
        let side: u32 = text.parse().ok()?;
        ((16..=1280).contains(&side) && side.is_multiple_of(16)).then_some(side)
    };
    let sides = text.split_once('x');
    let sides = sides.and_then(|(width, height)| Some([side(width)?, side(height)?]));
    sides.ok_or_else(|| "expected WIDTHxHEIGHT with multiples of 16 from 16 to 1280".to_owned())
}

pub fn run(args: &FilmingBenchArgs, is_shown: bool) -> Result<(), Failure> {
    let device = args.device.open()?;
    let shape = args.synthetic;
    if is_shown && !args.json {
        let name = shape.name();
        output::aside(format!(
            "making up weights of one block of {name} and of its autoencoder"
        ));
    }
    let bench = VideoBench::new(shape, &device).map_err(|flaw| {
        let failed = flaw.in_file(Path::new("random weights"));
        Failure::new(Exit::Failed, failed.to_string())
    })?;
    let [width, height] = args.size;
    let video = [args.frames, height, width];
    let parts = [
        TimedPart {
            name: BLOCK,
            operations: bench.block_operations(video),
            work: &|| bench.block(video),
        },
        TimedPart {
            name: DECODING,
            operations: bench.decode_operations(video),
            work: &|| bench.decode(video),
        },
    ];
    let report = measure(&parts, args.repeat, &device)?;
    if args.json {
        return output::json(&json!({
            "shape": shape.name(),
            "device": args.device.to_string(),
            "width": width,
            "height": height,
            "frames": args.frames,
            "repeat": args.repeat,
            "report": report,
        }));
    }
    output::line(report.table(
        &format!(
            "{} on {}, {width} x {height}, {} frames, {}, median of {}",
            shape.name(),
            args.device,
            args.frames,
            args.device.weight_type(),
            args.repeat
        ),
        "a step of the whole network is 30 blocks, twice with guidance",
    ))
}
