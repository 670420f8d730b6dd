//! Hardware detection: plain data, read once, independent of models. The GPUs' load is read repeatedly.
//!
//! `probe()` never fails: unreadable values are absent, and `notes` has the reason for the owner. Limits of this
//! process (affinity, control groups, `CUDA_VISIBLE_DEVICES`) apply: hardware that it cannot use is left out.

mod cpu;
mod disk;
mod gpus;
mod input;
mod memory;
mod nvml;
mod power;
pub mod readings;
mod visible;

pub use disk::{Disk, disk, is_writable};
pub use gpus::follow as follow_gpus;
pub use input::{InputSources, InputWatch};
pub use power::{MachinePower, PowerReading, ProcessorPower};
pub use visible::CudaEnvironment;

use std::time::Duration;

use readings::{Graphics, NoDriver, Readings};

/// The machine's hardware.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub cpu: Cpu,
    pub memory: Memory,
    pub gpus: Vec<Gpu>,
    /// Version of the NVIDIA driver, and the newest CUDA it supports, if a driver exists.
    pub driver: Option<Driver>,
    /// Notes for the owner: no driver, an unreadable GPU, and so on.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    pub model: String,
    /// Threads this process may use (affinity and cgroup limits counted in).
    pub threads: usize,
    /// Instruction sets the kernels care about, e.g. `avx2`, `avx512-vnni`.
    pub features: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    pub total_bytes: u64,
    pub available_bytes: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Driver {
    pub version: String,
    pub cuda: Option<(u32, u32)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// The number that CUDA knows it by.
    pub index: u32,
    pub name: String,
    pub uuid: Option<String>,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    pub compute_capability: Option<(u32, u32)>,
    /// The reason why models cannot run on it, and the remedy.
    pub obstacle: Option<String>,
    pub power_watts: Option<f64>,
    pub power_limit_watts: Option<f64>,
    pub temperature_celsius: Option<u32>,
    pub processes: Vec<GpuProcess>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProcess {
    pub pid: u32,
    pub name: Option<String>,
    pub memory_bytes: Option<u64>,
}

/// The state of a GPU at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuLoad {
    pub name: String,
    pub memory_total_bytes: u64,
    pub memory_free_bytes: u64,
    /// The proportion of recent time that the GPU was busy.
    pub utilization: Option<f64>,
    pub watts: Option<f64>,
    pub celsius: Option<u32>,
    /// Energy since the driver was loaded, where the GPU counts it.
    pub joules: Option<f64>,
    pub processes: Vec<GpuProcess>,
}

impl GpuLoad {
    /// The energy since an earlier reading: by the GPU's counter or, without one, its power times the time.
    pub fn joules_since(&self, before: Option<&Self>, passed: Duration) -> Option<f64> {
        match (before.and_then(|before| before.joules), self.joules) {
            (Some(before), Some(now)) if now >= before => Some(now - before),
            _ => self.watts.map(|watts| watts * passed.as_secs_f64()),
        }
    }
}

/// Reads the machine.
pub fn probe() -> Machine {
    assemble(cpu::read(), memory::read(), nvml::read())
}

/// The machine that these readings describe.
pub fn assemble(cpu: Cpu, memory: Memory, nvml: Result<Readings, NoDriver>) -> Machine {
    let Graphics {
        driver,
        gpus,
        notes,
    } = readings::graphics(nvml);
    Machine {
        cpu,
        memory,
        gpus,
        driver,
        notes,
    }
}
