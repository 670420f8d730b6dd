//! `worker bench text`: prefill and decode, driven as the engine drives a decoder, step by step.

mod driver;
mod report;
mod room;
mod write;

use std::fs;
use std::path::{Path, PathBuf};

use candle_core::Device;

use self::driver::{Course, Driver, Phase};
use self::report::{Report, Run};
use super::figures::Figure;
use super::limits::Limits;
use super::memory;
use super::place::{Place, first_line};
use crate::cli::meter::Meter;
use crate::cli::{Exit, Failure, output};
use crate::config::Config;
use crate::kernels::KvDtype;
use crate::networks::text::{Decoder, DecoderSpec, LoadOptions, Synthetic, SyntheticQuant};
use crate::networks::weights::{Checkpoint, CheckpointError};

/// Measure text generation: tokens per second, and the share of this machine's limits.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A .gguf file, or a model folder with safetensors.
    #[arg(value_name = "FILE", required_unless_present = "synthetic")]
    pub file: Option<PathBuf>,
    /// Measure random weights in the shape of a known model, instead of a file.
    #[arg(long, value_name = "SHAPE", conflicts_with = "file")]
    pub synthetic: Option<String>,
    /// Quantization of the random weights.
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "q4_k_m",
        requires = "synthetic"
    )]
    pub quant: SyntheticQuant,
    /// Write the random weights to a GGUF file for other programs, and measure nothing.
    #[arg(long, value_name = "FILE", requires = "synthetic")]
    pub write: Option<PathBuf>,
    /// Replace the file of --write if it exists.
    #[arg(long, requires = "write")]
    pub force: bool,
    /// Device to run on: cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu", value_name = "DEVICE")]
    pub device: Place,
    /// Prompt lengths to measure, separated by commas.
    #[arg(
        long,
        value_name = "TOKENS",
        value_delimiter = ',',
        default_value = "128,512"
    )]
    pub prefill: Vec<usize>,
    /// Numbers of streams to decode at once, separated by commas.
    #[arg(
        long,
        value_name = "STREAMS",
        value_delimiter = ',',
        default_value = "1,8"
    )]
    pub batch: Vec<usize>,
    /// Tokens in each stream's context before decoding is measured.
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    pub context: usize,
    /// Decoding steps per measurement.
    #[arg(long, default_value_t = 32)]
    pub steps: usize,
    /// Number of measurements; the report shows the median.
    #[arg(long, default_value_t = 5)]
    pub repeat: usize,
    /// How keys and values are stored: f32, f16, bf16 or q8_0. Default: as serving stores them.
    #[arg(long, value_name = "TYPE", value_parser = kv_dtype)]
    pub kv: Option<KvDtype>,
    /// A first impression within seconds: one short prompt, one stream, few steps.
    #[arg(long, conflicts_with_all = ["prefill", "batch", "context", "steps", "repeat", "write"])]
    pub quick: bool,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "\
Examples:
  worker bench text model.gguf
  worker bench text model.gguf --quick
  worker bench text --synthetic llama-3.2-1b --quant q8_0 --prefill 512 --batch 1,8,32
  worker bench text model.gguf --context 8192 --kv q8_0
  worker bench text --synthetic llama-3.2-1b --quant q4_k_m --write model.gguf";

pub fn run(args: &Args, config: &Config, is_shown: bool) -> Result<(), Failure> {
    let args = &match args.quick {
        true => args.clone().shortened(),
        false => args.clone(),
    };
    check(args)?;
    let is_shown = is_shown && !args.json;
    match (&args.synthetic, &args.write) {
        (Some(shape), Some(file)) => {
            let made = Synthetic::new(spec(shape)?, args.quant);
            write::write(made, file, args.force, is_shown)
        }
        _ => measure(args, config, is_shown),
    }
}

impl Args {
    /// So little that a model of a billion weights is measured in some seconds on two cores.
    fn shortened(self) -> Self {
        Self {
            prefill: vec![64],
            batch: vec![1],
            context: 64,
            steps: 8,
            repeat: 3,
            ..self
        }
    }
}

fn kv_dtype(name: &str) -> Result<KvDtype, String> {
    KvDtype::named(name).ok_or_else(|| {
        let names = KvDtype::ALL.map(KvDtype::name).join(", ");
        format!("expected one of {names}")
    })
}

/// More is probably a typing error, and the products of such numbers do not overflow.
const MOST: usize = 1 << 24;

/// Checks that clap cannot express.
fn check(args: &Args) -> Result<(), Failure> {
    let counts =
        args.prefill
            .iter()
            .chain(&args.batch)
            .chain([&args.context, &args.steps, &args.repeat]);
    let mut wrong = counts.filter(|count| !(1..=MOST).contains(*count));
    match wrong.next() {
        Some(found) => Err(Failure::new(
            Exit::Usage,
            format!(
                "numbers of tokens, streams, steps and repeats must be from 1 to {MOST}, found {found}"
            ),
        )),
        None => Ok(()),
    }
}

fn measure(args: &Args, config: &Config, is_shown: bool) -> Result<(), Failure> {
    let phases = phases(args);
    let device = args.device.open()?;
    let course = Course {
        context: args.context,
        steps: args.steps,
    };
    room::check(args, course, &phases, config)?;
    let decoder = decoder(args, &device, is_shown)?;
    let mut driver =
        Driver::new(decoder, args.kv, course, &phases).map_err(|error| failed(&error))?;
    let speeds = speeds(&mut driver, &phases, args.repeat).map_err(|error| failed(&error))?;
    // Before the machine's limits are measured, which takes memory of its own.
    let resident_bytes = memory::resident_bytes();
    let limits = Limits::measure(&device).map_err(|error| failed(&error))?;
    let runs = phases.iter().zip(speeds);
    let runs = runs.filter_map(|(phase, speeds)| {
        Some(Run::new(
            *phase,
            Figure::of(speeds)?,
            driver.cost(*phase),
            &limits,
        ))
    });
    show(
        args,
        &Report {
            model: model_name(args),
            device: args.device.to_string(),
            kv: driver.kv().name(),
            weight_bytes: driver.decoder().weight_bytes(),
            file_bytes: args.file.as_deref().and_then(file_bytes),
            resident_bytes,
            course,
            repeat: args.repeat,
            runs: runs.collect(),
            limits,
        },
    )
}

fn phases(args: &Args) -> Vec<Phase> {
    let prefill = args.prefill.iter().copied().map(Phase::Prefill);
    prefill
        .chain(args.batch.iter().copied().map(Phase::Decode))
        .collect()
}

/// A decoder of no longer context than is measured: a GPU holds a table as long as that.
fn decoder(args: &Args, device: &Device, is_shown: bool) -> Result<Decoder, Failure> {
    let context = room::longest(args);
    if let Some(shape) = &args.synthetic {
        let spec = spec(shape)?;
        let context = context.min(spec.context);
        let spec = DecoderSpec { context, ..spec };
        let title = format!("generating random weights for {shape}");
        return metered(title, is_shown, |progress| {
            Decoder::synthetic(spec, args.quant, device, progress)
        });
    }
    let file = args.file.as_deref().unwrap_or(Path::new(""));
    let checkpoint = Checkpoint::open(file)?;
    let options = LoadOptions {
        context: Some(context),
        ..LoadOptions::default()
    };
    metered(
        format!("loading {}", file.display()),
        is_shown,
        |progress| Decoder::load(&checkpoint, device, &options, progress),
    )
}

/// Builds a decoder and reports its progress.
fn metered(
    title: String,
    is_shown: bool,
    make: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<Decoder, CheckpointError>,
) -> Result<Decoder, Failure> {
    let meter = Meter::new(title, is_shown);
    let made = make(&mut |done, total| meter.set(done, total));
    meter.end();
    Ok(made?)
}

fn spec(shape: &str) -> Result<DecoderSpec, Failure> {
    DecoderSpec::named(shape).ok_or_else(|| {
        let known: Vec<_> = DecoderSpec::names().collect();
        Failure::new(
            Exit::Usage,
            format!("unknown shape {shape}; known shapes: {}", known.join(", ")),
        )
    })
}

/// Measures phases in turn, so that disturbances affect all of them alike, after a warm-up run of each.
fn speeds(
    driver: &mut Driver,
    phases: &[Phase],
    repeat: usize,
) -> candle_core::Result<Vec<Vec<f64>>> {
    let mut speeds = vec![Vec::new(); phases.len()];
    for phase in phases {
        driver.measure(*phase)?;
    }
    for _ in 0..repeat {
        for (phase, speeds) in phases.iter().zip(&mut speeds) {
            speeds.push(driver.measure(*phase)?);
        }
    }
    Ok(speeds)
}

fn show(args: &Args, report: &Report) -> Result<(), Failure> {
    match args.json {
        true => output::json(report),
        false => output::line(report.table()),
    }
}

fn model_name(args: &Args) -> String {
    match (&args.synthetic, &args.file) {
        (Some(shape), _) => format!("{shape} {} (random weights)", args.quant),
        (None, Some(file)) => file.display().to_string(),
        (None, None) => String::new(),
    }
}

fn file_bytes(file: &Path) -> Option<u64> {
    let metadata = fs::metadata(file).ok()?;
    metadata.is_file().then_some(metadata.len())
}

fn failed(error: &candle_core::Error) -> Failure {
    Failure::new(Exit::Failed, first_line(error))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn a_decoder_is_made_for_the_longest_sequence_that_is_measured() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tiny-llama");
        for subject in [&["--synthetic", "tiny"][..], &[file]] {
            for (lengths, longest) in [
                (["--prefill=40,20", "--context=33", "--steps=2"], 40),
                (["--prefill=20", "--context=33", "--steps=9"], 42),
            ] {
                let words = [&["bench"], subject, &lengths].concat();
                let args = Line::try_parse_from(words).unwrap().args;
                let decoder = decoder(&args, &Device::Cpu, false).unwrap();
                assert_eq!(decoder.spec().context, longest);
            }
        }
    }

    #[test]
    fn an_unknown_shape_is_answered_with_the_known_ones() {
        let failure = spec("llama-9").unwrap_err();
        assert_eq!(failure.exit(), Some(Exit::Usage));
        assert!(failure.to_string().contains("llama-3.2-1b"), "{failure}");
    }
}
