//! The checks of `worker doctor`.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Check;
use crate::cli::failure::to_fit;
use crate::cli::place::Place;
use crate::cli::{Failure, quantity};
use crate::config::{Config, Exposure};
use crate::daemon::locate::Located;
use crate::daemon::{DaemonError, Devices, WantedModel};
use crate::hardware::{self, InputSources, Machine, Memory};
use crate::runtime::LoadError;
use crate::runtime::{GpuTrial, gpu_faults, gpu_trials};

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
pub fn device(config: &Config, machine: &Machine) -> (Check, Option<Devices>) {
    const NAME: &str = "device";
    let devices = match Devices::start(config, machine) {
        Ok(devices) => devices,
        Err(failure) => {
            let check = Check::fail(NAME, failure, "set another engine.device");
            return (check, None);
        }
    };
    let found = devices.placement().to_owned();
    let check = match (devices.refusals(), cfg!(feature = "cuda")) {
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
    };
    (check, Some(devices))
}

/// Results of the kernel self-tests on the opened GPUs.
pub fn kernels() -> Vec<Check> {
    const NAME: &str = "GPU kernels";
    let checks = gpu_trials().into_iter().map(|trial| {
        let GpuTrial { gpu, kernels, .. } = trial;
        let when = match trial.is_kept {
            true => "at an earlier start with this driver and program",
            false => "now",
        };
        match trial.faults.as_slice() {
            [] => Check::ok(
                NAME,
                format!(
                    "{kernels} kinds of kernels of GPU {gpu} agree with the CPU (tried {when})"
                ),
            ),
            faults => Check::warn(
                NAME,
                format!(
                    "GPU {gpu} fails the test of {}: a slower way is taken (tried {when})",
                    faults.join(", ")
                ),
                "install another driver; report the GPU with `worker probe`",
            ),
        }
    });
    checks.collect()
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

/// The sources of user input for `owner.idle_for`.
pub fn input(sources: InputSources) -> Check {
    let name = "keyboard, mouse";
    let advice = "name the programs of people at the machine in owner.pause_for";
    if sources.are_none() {
        let found = "owner.idle_for has no effect: no terminal, keyboard or mouse can be read here";
        return Check::warn(name, found, advice);
    }
    match sources.have_keyboards() {
        true => Check::ok(name, sources),
        false => {
            let found = format!("{sources} can be read, and no keyboard or mouse");
            Check::warn(name, found, advice)
        }
    }
}

/// Each configured model: whether its files are complete, valid, and fit beside the others, on its device.
pub async fn models(config: &Config, devices: &Devices) -> Vec<Check> {
    if config.models.serve.0.is_empty() {
        return vec![Check::warn(
            "models",
            "no model configured",
            "add models to models.serve; `worker init` writes a configuration with models",
        )];
    }
    let place = match Place::open(config) {
        Ok(place) => place,
        Err(failure) => return vec![Check::fail("models", failure, "correct the catalog entry")],
    };
    let serve = &config.models.serve.0;
    let located = serve
        .iter()
        .map(|wanted| place.locate(wanted).map_err(Failure::from));
    let located: Vec<Result<Located, Failure>> = located.collect();
    let mut checks = Vec::new();
    let mut names = BTreeSet::new();
    for (at, wanted) in serve.iter().enumerate() {
        let following = serve.iter().zip(&located).skip(at + 1);
        let following =
            following.filter_map(|(name, one)| Some((name.as_str(), one.as_ref().ok()?)));
        let following: Vec<WantedModel<'_>> = following.collect();
        let reserved = match &located[at] {
            Ok(located) if !names.insert(located.name.clone()) => {
                let name = located.name.clone();
                let twice = Failure::from(LoadError::AlreadyLoaded { name });
                checks.push(failed(
                    wanted,
                    &twice.hint("list each model once in models.serve"),
                ));
                continue;
            }
            Ok(located) => devices.reserve_before(wanted, located, &following).await,
            Err(failure) => {
                checks.push(failed(wanted, failure));
                continue;
            }
        };
        checks.push(match reserved {
            Err(DaemonError::DoesNotFit { refusal, .. }) => Check::fail(
                "models",
                format!("{wanted} {refusal}"),
                to_fit(&refusal, "serve a smaller model or quantization"),
            ),
            Err(failure) => failed(wanted, &Failure::from(failure)),
            Ok(reserved) => {
                let parts = reserved.iter().map(|(place, fit)| match devices.count() {
                    1 => fit.to_string(),
                    _ => format!("{fit} on {place}"),
                });
                let parts: Vec<String> = parts.collect();
                Check::ok("models", format!("{wanted} takes {}", parts.join("; ")))
            }
        });
    }
    let shares = devices.shares().await;
    let shares = shares.iter().filter(|shares| shares.weight_bytes > 0);
    checks.extend(shares.map(|shares| Check::ok("memory of models", shares)));
    checks
}

/// Whether the files of each configured model are on this machine.
pub fn files(config: &Config) -> Vec<Check> {
    let place = match Place::open(config) {
        Ok(place) => place,
        Err(failure) => return vec![Check::fail("models", failure, "correct the catalog entry")],
    };
    let wanted = config.models.serve.0.iter();
    let checks = wanted.map(|wanted| match place.locate(wanted) {
        Ok(_) => Check::ok("models", format!("{wanted} is on disk")),
        Err(error) => failed(wanted, &Failure::from(error)),
    });
    checks.collect()
}

fn failed(wanted: &str, failure: &Failure) -> Check {
    let advice = failure.advice();
    let advice = advice.unwrap_or("`worker models verify` checks the files");
    Check::fail("models", format!("{wanted}: {failure}"), advice.to_owned())
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
    fn a_machine_whose_keyboard_cannot_be_read_is_worth_a_warning() {
        let sources = InputSources {
            terminals: 3,
            ..InputSources::default()
        };
        let check = |sources| {
            let check = input(sources);
            (check.verdict, check.finding)
        };
        let (verdict, found) = check(sources);
        assert!(verdict == Verdict::Warn && found.contains("no keyboard"));
        let (verdict, found) = check(InputSources::default());
        assert!(verdict == Verdict::Warn && found.contains("no effect"));
        let (verdict, _) = check(InputSources {
            usb_devices: 2,
            ..sources
        });
        assert_eq!(verdict, Verdict::Ok);
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
