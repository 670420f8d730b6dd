//! What is looked at, and when it is well.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Check;
use crate::cli::failure::to_fit;
use crate::cli::place::Place;
use crate::cli::{Failure, quantity};
use crate::config::{Config, Exposure};
use crate::daemon::fit::{Fit, Wishes, fit, room};
use crate::daemon::locate::LocatedSource;
use crate::daemon::{DaemonError, Device, kv_dtype, limits, needs, shared};
use crate::hardware::{self, Machine, Memory};
use crate::runtime::gpu_faults;
use crate::runtime::{LoadError, ModelSource, SharedWeights};

const GIB: u64 = 1 << 30;

/// No clock that is right shows a time before this program was written.
const WRITTEN: Duration = Duration::from_secs(1_767_225_600); // 2026-01-01

/// Nor one that this program will not live to see.
const FAR: Duration = Duration::from_secs(4_102_444_800); // 2100-01-01

pub fn configuration(file: Option<&Path>, warnings: &[String]) -> Check {
    let found = match file {
        Some(file) => format!("{} is valid", file.display()),
        None => "defaults and environment only; use --config FILE to check a file".to_owned(),
    };
    match warnings {
        [] => Check::ok("configuration", found),
        some => Check::warn(
            "configuration",
            some.join("; "),
            "correct or unset these variables",
        ),
    }
}

/// Files with secrets that others can read.
pub fn secrets(exposures: &[Exposure]) -> Vec<Check> {
    let exposed = exposures.iter();
    exposed
        .map(|one| Check::fail("secrets", one, one.remedy()))
        .collect()
}

pub fn graphics(machine: &Machine, has_cuda: bool) -> Check {
    let driver = machine
        .driver
        .as_ref()
        .map(|driver| driver.version.as_str());
    let names: Vec<&str> = machine.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    match (driver, names.as_slice()) {
        (_, []) => {
            let found = machine.notes.join("; ");
            Check::warn(
                "GPUs",
                found,
                "with an NVIDIA GPU, install its driver; without one, models run on the CPU",
            )
        }
        (driver, names) => {
            let found = format!(
                "{}, driver {}",
                names.join(", "),
                driver.unwrap_or("unknown")
            );
            match has_cuda {
                true => Check::ok("GPUs", found),
                false => Check::warn(
                    "GPUs",
                    format!("{found}; this build runs models on the CPU only"),
                    "build with `--features cuda`",
                ),
            }
        }
    }
}

/// Opens the device that models go to, which computes something on it.
pub fn device(config: &Config, machine: &Machine) -> Check {
    const NAME: &str = "device";
    let device = match Device::start(config, machine) {
        Ok(device) => device,
        Err(failure) => return Check::fail(NAME, failure, "set another engine.device"),
    };
    let found = device.placement(machine);
    match (device.refusals(), cfg!(feature = "cuda")) {
        ([], true)
            if gpu_faults().is_empty() && machine.gpus.iter().all(|gpu| gpu.obstacle.is_none()) =>
        {
            Check::ok(NAME, found)
        }
        ([], _) if machine.gpus.is_empty() => Check::ok(NAME, found),
        _ => Check::warn(
            NAME,
            found,
            "`worker probe` shows driver and GPUs; docs/owners.md names what GPUs need",
        ),
    }
}

pub fn memory(memory: Memory) -> Check {
    let found = quantity::free_of(memory.available_bytes, memory.total_bytes);
    match memory.available_bytes {
        0..GIB => Check::warn(
            "memory",
            found,
            "only the smallest models fit; close other programs",
        ),
        _ => Check::ok("memory", found),
    }
}

pub fn disk(name: &'static str, folder: &Path) -> Check {
    let disk = match hardware::disk(folder) {
        Ok(disk) => disk,
        Err(error) => {
            return Check::fail(
                name,
                format!("{}: {error}", folder.display()),
                "choose another folder in the configuration",
            );
        }
    };
    let found = format!(
        "{} in {}",
        quantity::free_of(disk.free_bytes, disk.total_bytes),
        folder.display()
    );
    if !hardware::is_writable(folder) {
        let found = format!("{} is not writable", folder.display());
        return Check::fail(
            name,
            found,
            "change its permissions, or choose another folder in the configuration",
        );
    }
    match disk.free_bytes / GIB {
        0 => Check::warn(
            name,
            found,
            "free disk space, or choose a folder on another disk in the configuration",
        ),
        _ => Check::ok(name, found),
    }
}

/// A clock that is far off makes every certificate look wrong.
pub fn clock(now: SystemTime) -> Check {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    match (WRITTEN..FAR).contains(&since) {
        true => Check::ok("clock", "plausible"),
        false => Check::fail(
            "clock",
            format!("the clock shows {} seconds after 1970", since.as_secs()),
            "set the system clock",
        ),
    }
}

/// Each configured model: whether its files are here, are sound, and fit beside those before it.
pub fn models(config: &Config, machine: &Machine) -> Vec<Check> {
    if config.models.serve.0.is_empty() {
        return vec![Check::warn(
            "models",
            "no model configured",
            "add models to models.serve; `worker init` writes a configuration with models",
        )];
    }
    let room = room(
        machine,
        config.engine.device,
        &config.owner,
        cfg!(feature = "cuda"),
    );
    let (place, whole) = match (Place::open(config), room) {
        (Err(failure), _) => {
            return vec![Check::fail("models", failure, "correct the catalog entry")];
        }
        (_, Err(missing)) => {
            return vec![Check::fail("models", missing, "set another engine.device")];
        }
        (Ok(place), Ok(room)) => (place, room),
    };
    let mut checks = Vec::new();
    let mut names = BTreeSet::new();
    let mut fitting: Vec<(Fit, Vec<SharedWeights>)> = Vec::new();
    for wanted in &config.models.serve.0 {
        let fitted = place
            .locate(wanted)
            .map_err(Failure::from)
            .and_then(|located| {
                if !names.insert(located.name.clone()) {
                    let twice = LoadError::AlreadyLoaded { name: located.name };
                    return Err(Failure::from(twice).hint("list each model once in models.serve"));
                }
                let shared = shared(&located)?;
                let models = fitting.iter().map(|(fit, shared)| (fit, shared.as_slice()));
                let room = whole.beside(models, &shared);
                let needs = match located.source {
                    LocatedSource::Text(source) => {
                        let source = ModelSource {
                            kv: kv_dtype(config),
                            ..*source
                        };
                        needs(&source, &room, &limits(config, room.device))?
                    }
                    LocatedSource::Media(source) => source.needs().map_err(DaemonError::from)?,
                };
                let fitted = fit(needs, Wishes::of(&config.engine, room.device), &room);
                Ok(fitted.map(|fit| (fit, shared)))
            });
        checks.push(match fitted {
            Err(failure) => {
                let advice = failure
                    .advice()
                    .unwrap_or("`worker models verify` checks the files")
                    .to_owned();
                Check::fail("models", format!("{wanted}: {failure}"), advice)
            }
            Ok(Err(refusal)) => Check::fail(
                "models",
                format!("{wanted} {refusal}"),
                to_fit(&refusal, "serve a smaller model or quantization"),
            ),
            Ok(Ok((fit, shared))) => {
                fitting.push((fit, shared));
                Check::ok("models", format!("{wanted} takes {fit}"))
            }
        });
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_clock_before_this_program_is_wrong() {
        let verdict = |secs| clock(UNIX_EPOCH + Duration::from_secs(secs)).verdict;
        assert_eq!(verdict(0), Verdict::Fail);
        assert_eq!(verdict(1_800_000_000), Verdict::Ok);
        assert_eq!(verdict(5_000_000_000), Verdict::Fail);
    }

    #[test]
    fn little_memory_is_worth_a_warning() {
        let verdict = |available_bytes| {
            memory(Memory {
                total_bytes: 8 * GIB,
                available_bytes,
            })
            .verdict
        };
        assert_eq!(verdict(GIB / 2), Verdict::Warn);
        assert_eq!(verdict(4 * GIB), Verdict::Ok);
    }
}
