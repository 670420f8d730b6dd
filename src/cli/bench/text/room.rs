//! Whether a benchmark fits: into the model's context and, counted as for serving, into memory.

use std::path::Path;

use super::driver::{Course, Phase};
use super::{Args, model_name, spec};
use crate::cli::bench::place::Place;
use crate::cli::failure::to_fit;
use crate::cli::{Exit, Failure};
use crate::config::{Config, OwnerConfig};
use crate::daemon::fit::{Needs, NoDevice, Room, Wishes, fit, room};
use crate::daemon::{DaemonError, needs};
use crate::hardware::{self, Machine};
use crate::kernels::PAGE_TOKENS;
use crate::networks::text::Synthetic;
use crate::networks::weights::TensorSource;
use crate::runtime::{DeviceChoice, EngineLimits, Footprint, ModelSource};

/// Refuses a benchmark that does not fit, before anything is loaded.
pub fn check(
    args: &Args,
    course: Course,
    phases: &[Phase],
    config: &Config,
) -> Result<(), Failure> {
    let has_cuda = cfg!(feature = "cuda");
    let room = left(&hardware::probe(), args.device, &config.owner, has_cuda)
        .map_err(DaemonError::from)?;
    let needs = needed(args, &room)?;
    check_context(needs.context, args)?;
    let pages = phases.iter().map(|phase| course.pages(*phase)).max();
    let tokens = (pages.unwrap_or(0) * PAGE_TOKENS) as u64;
    let wishes = Wishes {
        context: Some(longest(args)),
        kv_bytes: Some(tokens.saturating_mul(needs.kv_bytes_per_token)),
        ..Wishes::default()
    };
    match fit(needs, wishes, &room) {
        Ok(_) => Ok(()),
        Err(refusal) => Err(Failure::unavailable(format!(
            "{} does not fit: it {refusal}",
            model_name(args)
        ))
        .hint(to_fit(
            &refusal,
            "choose a smaller quantization, or lower --context or --batch",
        ))),
    }
}

/// Free memory of the opened device. `None` for a device unknown to NVML, where only CUDA can tell.
fn left(
    machine: &Machine,
    place: Place,
    owner: &OwnerConfig,
    has_cuda: bool,
) -> Result<Room, NoDevice> {
    match (room(machine, place.setting(), owner, has_cuda), place) {
        (Err(NoDevice::Missing { .. }), Place::Cuda(number)) => Ok(Room {
            device: DeviceChoice::Cuda(number),
            place: place.to_string(),
            free_bytes: u64::MAX,
            kept_bytes: 0,
        }),
        (room, _) => room,
    }
}

/// The most tokens of any sequence.
pub fn longest(args: &Args) -> usize {
    let prompts = args.prefill.iter().copied();
    prompts.fold(args.context + args.steps, usize::max)
}

fn check_context(context: usize, args: &Args) -> Result<(), Failure> {
    match Some(longest(args)).filter(|longest| *longest > context) {
        Some(longest) => Err(Failure::new(
            Exit::Usage,
            format!("measuring needs {longest} tokens of context and the model takes {context}"),
        )),
        None => Ok(()),
    }
}

/// Engine limits that allow this much at once.
fn limits(args: &Args) -> EngineLimits {
    let largest = |counts: &[usize]| counts.iter().copied().max().unwrap_or(1);
    EngineLimits {
        max_running: largest(&args.batch),
        prefill_chunk: largest(&args.prefill).max(args.context),
        ..EngineLimits::default()
    }
}

fn needed(args: &Args, room: &Room) -> Result<Needs, Failure> {
    let limits = limits(args);
    if let Some(shape) = &args.synthetic {
        let made = Synthetic::new(spec(shape)?, args.quant);
        let footprint = Footprint::of_synthetic(&made, args.kv, room.device, &limits);
        return Ok(footprint.map_err(DaemonError::from)?.into());
    }
    let file = args.file.as_deref().unwrap_or(Path::new(""));
    let source = ModelSource {
        kv: args.kv,
        ..ModelSource::new(file)
    };
    Ok(needs(&source, room, &limits)?)
}

/// Size of the weights' file.
pub fn weight_bytes(made: &Synthetic) -> u64 {
    made.headers().iter().map(|header| header.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Sources;

    #[test]
    fn a_device_that_only_cuda_knows_is_not_refused() {
        let sources = Sources {
            environment: [("HOME".to_owned(), "/home/ada".to_owned())].into(),
            ..Sources::default()
        };
        let owner = Config::load(&sources).unwrap().config.owner;
        let machine = Machine {
            gpus: Vec::new(),
            ..hardware::probe()
        };
        let found = left(&machine, Place::Cuda(0), &owner, true).unwrap();
        assert_eq!(found.device, DeviceChoice::Cuda(0));
        assert_eq!(found.left_bytes(), u64::MAX);
        let found = left(&machine, Place::Cpu, &owner, true).unwrap();
        assert_eq!(found.device, DeviceChoice::Cpu);
        assert!(left(&machine, Place::Cuda(0), &owner, false).is_err());
    }
}
