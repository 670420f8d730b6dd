//! Whether what is to be measured fits: into the model's context and, counted as for serving, into memory.

use std::path::Path;

use candle_core::DType;

use super::driver::{Course, Phase};
use super::{Args, model_name, spec};
use crate::cli::{Exit, Failure};
use crate::config::Config;
use crate::daemon::fit::{Needs, Room, USUAL_WORKSPACE_BYTES, Wishes, fit, room};
use crate::daemon::{DaemonError, needs};
use crate::hardware;
use crate::kernels::PAGE_TOKENS;
use crate::networks::text::{DecoderSpec, Synthetic, SyntheticQuant};
use crate::networks::weights::TensorSource;
use crate::runtime::{DeviceChoice, EngineLimits, ModelSource};

/// Refuses before anything is loaded what would not fit.
pub fn check(
    args: &Args,
    course: Course,
    phases: &[Phase],
    config: &Config,
) -> Result<(), Failure> {
    let machine = hardware::probe();
    let device = args.device.setting();
    let room =
        room(&machine, device, &config.owner, cfg!(feature = "cuda")).map_err(DaemonError::from)?;
    let needs = match &args.synthetic {
        Some(shape) => of_shape(&spec(shape)?, args.quant, &room),
        None => of_file(args, &room)?,
    };
    check_context(needs.context, args)?;
    let pages = phases.iter().map(|phase| course.pages(*phase)).max();
    let tokens = (pages.unwrap_or(0) * PAGE_TOKENS) as u64;
    let wishes = Wishes {
        kv_bytes: Some(tokens.saturating_mul(needs.kv_bytes_per_token)),
        ..Wishes::default()
    };
    match fit(needs, wishes, &room) {
        Ok(_) => Ok(()),
        Err(refusal) => Err(Failure::unavailable(format!(
            "{} does not fit: it {refusal}",
            model_name(args)
        ))
        .hint("a smaller quantization, --context or --batch may fit")),
    }
}

fn check_context(context: usize, args: &Args) -> Result<(), Failure> {
    let prompts = args.prefill.iter().copied();
    let longest = prompts.chain([args.context + args.steps]).max();
    match longest.filter(|longest| *longest > context) {
        Some(longest) => Err(Failure::new(
            Exit::Usage,
            format!("{longest} tokens were asked for and the model takes {context}"),
        )),
        None => Ok(()),
    }
}

fn of_file(args: &Args, room: &Room) -> Result<Needs, Failure> {
    let largest = |counts: &[usize]| counts.iter().copied().max().unwrap_or(1);
    let limits = EngineLimits {
        max_running: largest(&args.batch),
        prefill_chunk: largest(&args.prefill).max(args.context),
        ..EngineLimits::default()
    };
    let file = args.file.as_deref().unwrap_or(Path::new(""));
    Ok(needs(&ModelSource::new(file), room, &limits)?)
}

fn of_shape(spec: &DecoderSpec, quant: SyntheticQuant, room: &Room) -> Needs {
    let kv = match (room.device, quant) {
        (DeviceChoice::Cpu, SyntheticQuant::F32) => DType::F32,
        _ => DType::F16,
    };
    Needs {
        weight_bytes: weight_bytes(&Synthetic::new(spec.clone(), quant)),
        kv_bytes_per_token: spec.kv_bytes_per_token(kv),
        workspace_bytes: USUAL_WORKSPACE_BYTES,
        context: spec.context,
    }
}

pub fn weight_bytes(made: &Synthetic) -> u64 {
    made.headers().iter().map(|header| header.bytes).sum()
}
