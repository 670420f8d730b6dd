//! Measurements for rules: time, programs, load, people and GPUs.

use std::fs;

use chrono::{Datelike, Local, Timelike};
use tokio::sync::watch;

use super::rules::{GpuUse, MachineUse};
use crate::hardware::{GpuLoad, InputWatch, MachinePower, follow_gpus};
use muster_config::OwnerConfig;

/// Measures the machine repeatedly, as far as rules need it.
pub struct MachineWatch {
    gpus: watch::Receiver<Vec<GpuLoad>>,
    /// Ticks of all processors and of this process at the last check.
    ticks: Option<Ticks>,
    input: InputWatch,
    /// Opened by the first check that needs it.
    power: Option<MachinePower>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    all: u64,
    own: u64,
}

impl MachineWatch {
    pub fn new() -> Self {
        Self {
            gpus: follow_gpus(),
            ticks: None,
            input: InputWatch::default(),
            power: None,
        }
    }

    pub fn look(&mut self, config: &OwnerConfig) -> MachineUse {
        let now = Local::now();
        let day = now.weekday().num_days_from_monday() as usize;
        let wants_gpus = config.others_gpu_memory.is_some() || config.most_heat.is_some();
        MachineUse {
            time: Some((day, now.hour() * 60 + now.minute())),
            programs: match config.pause_for.is_empty() {
                true => Vec::new(),
                false => programs(),
            },
            others_load: config.others_load.and_then(|_| self.others_load()),
            idle: config.idle_for.and_then(|_| self.input.idle()),
            gpus: match wants_gpus {
                true => self.gpus.borrow().iter().map(gpu_use).collect(),
                false => Vec::new(),
            },
            watts: config.most_watts.and_then(|_| self.watts()),
        }
    }

    fn watts(&mut self) -> Option<f64> {
        let power = self.power.get_or_insert_with(MachinePower::open);
        power.watts(&self.gpus.borrow())
    }

    fn others_load(&mut self) -> Option<f64> {
        let now = ticks()?;
        let before = self.ticks.replace(now)?;
        let since = |of: fn(&Ticks) -> u64| of(&now).saturating_sub(of(&before));
        let (busy, all, own) = (since(|it| it.busy), since(|it| it.all), since(|it| it.own));
        (all > 0).then(|| busy.saturating_sub(own) as f64 / all as f64)
    }
}

fn gpu_use(gpu: &GpuLoad) -> GpuUse {
    let processes = gpu.processes.iter();
    let others = processes.filter(|process| process.pid != std::process::id());
    GpuUse {
        others_bytes: others.filter_map(|process| process.memory_bytes).sum(),
        celsius: gpu.celsius,
    }
}

/// The names of all programs that run.
fn programs() -> Vec<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_process))
        .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
}

fn ticks() -> Option<Ticks> {
    let all = fs::read_to_string("/proc/stat").ok()?;
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    ticks_of(&all, &own)
}

fn ticks_of(all: &str, own: &str) -> Option<Ticks> {
    let line = all.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Vec<u64> = line
        .split_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in the first two.
    let of_all = numbers.iter().take(8);
    let idle: u64 = numbers.iter().skip(3).take(2).sum();
    let all: u64 = of_all.sum();
    // The name of the program, in parentheses, may hold spaces.
    let (_, own) = own.rsplit_once(") ")?;
    let fields: Vec<&str> = own.split_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Ticks {
        busy: all.checked_sub(idle)?,
        all,
        own: field(11)? + field(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_those_of_all_and_of_this_process() {
        let all = "cpu  100 5 20 800 50 1 2 3 40 5\ncpu0 1 2 3\n";
        let own = "42 (a (b) c) S 1 42 42 0 -1 4194560 100 0 0 0 7 9 0 0 20 0 1 0";
        let found = ticks_of(all, own);
        assert_eq!(
            found,
            Some(Ticks {
                busy: 131,
                all: 981,
                own: 16
            })
        );
        assert_eq!(ticks_of("", own), None);
        assert_eq!(ticks_of(all, "42 (a"), None);
    }

    #[test]
    fn this_program_is_among_those_that_run() {
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        assert!(programs().contains(&name.trim_end().to_owned()));
    }
}
