//! `worker bench audio`: hearing a window of 30 s and writing about it, or layers and decoding of music, with random weights
//! in a known shape.

use std::path::Path;

use serde_json::json;

use super::parts::{TimedPart, measure};
use super::place::{Place, first_line};
use crate::cli::{Exit, Failure, output};
use crate::networks::sound::{HearingBench, MusicBench, SyntheticHearing, SyntheticMusic};
use crate::networks::weights::Flaw;

/// Measure hearing (seconds per window of sound and per token) or music (two layers, and decoding), and the share of this
/// machine's limits.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct AudioBenchArgs {
    /// Shape of the random weights: whisper-tiny, whisper-base, whisper-small, whisper-large-v3-turbo or ace-step-1.5.
    #[arg(long, value_name = "SHAPE", default_value = "whisper-base", value_parser = shape)]
    pub synthetic: AudioShape,
    /// Tokens that are written about a window, 100 by default; of hearing only.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=448))]
    pub tokens: Option<u32>,
    /// Seconds of music, 10 by default; of music only.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=300))]
    pub seconds: Option<u32>,
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

/// A shape of a model that hears, or of one that makes music.
#[derive(Debug, Clone, Copy)]
pub enum AudioShape {
    Hearing(SyntheticHearing),
    Music(SyntheticMusic),
}

const EXAMPLES: &str = "\
Examples:
  worker bench audio
  worker bench audio --synthetic whisper-large-v3-turbo --repeat 1
  worker bench audio --synthetic ace-step-1.5 --seconds 30 --repeat 1";

const HEARING: &str = "hearing 30 s";
const WRITING: &str = "writing";
const LAYERS: &str = "two layers";
const DECODING: &str = "decoding";
const WINDOW_SECONDS: f64 = 30.0;
const TOKENS: u32 = 100;
const SECONDS: u32 = 10;

fn shape(name: &str) -> Result<AudioShape, String> {
    let hearing = SyntheticHearing::ALL.map(AudioShape::Hearing);
    let music = SyntheticMusic::ALL.map(AudioShape::Music);
    let all = || hearing.into_iter().chain(music);
    all().find(|shape| shape.name() == name).ok_or_else(|| {
        let names = all().map(AudioShape::name).collect::<Vec<_>>().join(", ");
        format!("expected one of {names}")
    })
}

impl AudioShape {
    fn name(self) -> &'static str {
        match self {
            Self::Hearing(shape) => shape.name(),
            Self::Music(shape) => shape.name(),
        }
    }
}

pub fn run(args: &AudioBenchArgs, is_shown: bool) -> Result<(), Failure> {
    if is_shown && !args.json {
        output::aside(format!("making up weights of {}", args.synthetic.name()));
    }
    let needless = |option: &str| {
        let message = format!("{} takes no {option}", args.synthetic.name());
        Err(Failure::new(Exit::Usage, message))
    };
    match (args.synthetic, args.tokens, args.seconds) {
        (AudioShape::Hearing(shape), tokens, None) => hear(shape, tokens.unwrap_or(TOKENS), args),
        (AudioShape::Music(shape), None, seconds) => {
            make_music(shape, seconds.unwrap_or(SECONDS), args)
        }
        (AudioShape::Hearing(_), _, Some(_)) => needless("--seconds"),
        (AudioShape::Music(_), Some(_), _) => needless("--tokens"),
    }
}

fn hear(shape: SyntheticHearing, tokens: u32, args: &AudioBenchArgs) -> Result<(), Failure> {
    let device = args.device.open()?;
    let bench = HearingBench::new(shape, &device).map_err(not_made_up)?;
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
            operations: bench.write_operations(tokens),
            work: &|| bench.write(&states, tokens),
        },
    ];
    let report = measure(&parts, args.repeat, &device)?;
    if args.json {
        return output::json(&json!({
            "shape": shape.name(),
            "device": args.device.to_string(),
            "tokens": tokens,
            "repeat": args.repeat,
            "report": report,
        }));
    }
    let window = report.seconds_of(HEARING) + report.seconds_of(WRITING);
    output::line(report.table(
        &args.title(&format!("{tokens} tokens a window")),
        &format!("{:.1} times as fast as the sound", WINDOW_SECONDS / window),
    ))
}

fn make_music(shape: SyntheticMusic, seconds: u32, args: &AudioBenchArgs) -> Result<(), Failure> {
    let device = args.device.open()?;
    let bench = MusicBench::new(shape, &device).map_err(not_made_up)?;
    let parts = [
        TimedPart {
            name: LAYERS,
            operations: bench.layer_operations(seconds),
            work: &|| bench.layers(seconds),
        },
        TimedPart {
            name: DECODING,
            operations: bench.decode_operations(seconds),
            work: &|| bench.decode(seconds),
        },
    ];
    let report = measure(&parts, args.repeat, &device)?;
    if args.json {
        return output::json(&json!({
            "shape": shape.name(),
            "device": args.device.to_string(),
            "seconds": seconds,
            "repeat": args.repeat,
            "report": report,
        }));
    }
    output::line(report.table(
        &args.title(&format!("{seconds} s of music")),
        "a step of the whole network is 24 layers, a song 8 steps",
    ))
}

fn not_made_up(flaw: Flaw) -> Failure {
    let failed = flaw.in_file(Path::new("random weights"));
    Failure::new(Exit::Failed, failed.to_string())
}

impl AudioBenchArgs {
    fn title(&self, amount: &str) -> String {
        format!(
            "{} on {}, {amount}, {}, median of {}",
            self.synthetic.name(),
            self.device,
            self.device.weight_type(),
            self.repeat
        )
    }
}
