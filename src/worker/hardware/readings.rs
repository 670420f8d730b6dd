//! Interprets NVML's values about GPUs. Pure: tests use made-up machines.

use super::{CudaEnvironment, Driver, Gpu, GpuProcess};

/// All values that NVML reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Readings {
    pub driver_version: Option<String>,
    /// 13000 for CUDA 13.0.
    pub cuda_version: Option<i32>,
    /// By index; for a GPU that could not be opened, the reason.
    pub cards: Vec<Result<CardReading, String>>,
    /// The slice of a GPU that the environment selects.
    pub slice: Option<Result<CardReading, String>>,
    pub environment: CudaEnvironment,
}

/// NVML's values of a GPU. Unavailable ones are `None`: cheap GPUs have no power sensor, containers hide processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CardReading {
    pub name: Option<String>,
    pub uuid: Option<String>,
    /// Total and free bytes.
    pub memory: Option<(u64, u64)>,
    pub compute_capability: Option<(i32, i32)>,
    pub power_milliwatts: Option<u32>,
    pub power_limit_milliwatts: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub processes: Vec<GpuProcess>,
}

/// The reason why NVML is unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoDriver {
    /// The library is not on this machine.
    NotInstalled,
    /// The library exists but the kernel module does not match, for example after an update without a restart.
    NotLoaded,
    Failed(String),
}

/// The part of a machine that NVML knows about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Graphics {
    pub driver: Option<Driver>,
    pub gpus: Vec<Gpu>,
    pub notes: Vec<String>,
}

/// The oldest GPUs that our kernels are compiled for: Ampere.
const LEAST_CAPABILITY: (u32, u32) = (8, 0);

/// The CUDA version of the toolkit that compiles them, and the first driver that runs it.
const LEAST_CUDA: (u32, u32) = (13, 0);
const LEAST_DRIVER: u32 = 580;

pub fn graphics(nvml: Result<Readings, NoDriver>) -> Graphics {
    match nvml {
        Ok(readings) => cards(readings),
        Err(reason) => Graphics {
            notes: vec![without_driver(&reason)],
            ..Graphics::default()
        },
    }
}

fn cards(readings: Readings) -> Graphics {
    let mut found = Graphics {
        driver: driver(&readings),
        ..Graphics::default()
    };
    if let Some(slice) = readings.slice {
        let name = readings.environment.slice().unwrap_or_default();
        found.notes.push(format!(
            "CUDA_VISIBLE_DEVICES names the MIG slice {name}: only this slice is used, as GPU 0"
        ));
        found.add(0, slice);
        return found;
    }
    if readings.cards.is_empty() {
        found
            .notes
            .push("the NVIDIA driver reports no GPU; models run on the CPU".to_owned());
    }
    let uuid = |card: &Result<CardReading, String>| card.as_ref().ok()?.uuid.clone();
    let uuids: Vec<_> = readings.cards.iter().map(uuid).collect();
    let shown = readings.environment.shown(&uuids);
    found
        .notes
        .extend(readings.environment.notes(&shown, uuids.len()));
    for (number, index) in (0..).zip(shown) {
        found.add(number, readings.cards[index].clone());
    }
    found
}

impl Graphics {
    fn add(&mut self, number: u32, card: Result<CardReading, String>) {
        match card.and_then(|card| gpu(number, card, self.driver.as_ref())) {
            Ok(gpu) => {
                if let Some(obstacle) = &gpu.obstacle {
                    let note = format!("GPU {number} ({}) cannot run models: {obstacle}", gpu.name);
                    self.notes.push(note);
                }
                self.gpus.push(gpu);
            }
            Err(reason) => self
                .notes
                .push(format!("GPU {number} is unusable: {reason}")),
        }
    }
}

fn driver(readings: &Readings) -> Option<Driver> {
    let version = readings.driver_version.clone()?;
    let cuda = readings
        .cuda_version
        .and_then(|version| u32::try_from(version).ok());
    Some(Driver {
        version,
        cuda: cuda.map(|version| (version / 1000, version % 1000 / 10)),
    })
}

/// A GPU is usable if its memory is known; everything else may be missing.
fn gpu(index: u32, card: CardReading, driver: Option<&Driver>) -> Result<Gpu, String> {
    let (total, free) = card.memory.ok_or("its memory size is unknown")?;
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    let compute_capability = card
        .compute_capability
        .and_then(|(major, minor)| Some((u32::try_from(major).ok()?, u32::try_from(minor).ok()?)));
    Ok(Gpu {
        index,
        name: card.name.unwrap_or_else(|| "NVIDIA GPU".to_owned()),
        uuid: card.uuid,
        memory_total_bytes: total,
        memory_free_bytes: free.min(total),
        obstacle: obstacle(compute_capability, driver),
        compute_capability,
        power_watts: card.power_milliwatts.map(watts),
        power_limit_watts: card.power_limit_milliwatts.map(watts),
        temperature_celsius: card.temperature_celsius,
        processes: card.processes,
    })
}

/// The reason why models cannot run on a GPU. Unknown properties are no reason: opening the device reports errors.
fn obstacle(capability: Option<(u32, u32)>, driver: Option<&Driver>) -> Option<String> {
    if let Some((major, minor)) = capability.filter(|found| *found < LEAST_CAPABILITY) {
        let (least, point) = LEAST_CAPABILITY;
        return Some(format!(
            "its compute capability is {major}.{minor}, and {least}.{point} is the least (Ampere: GeForce RTX 30, A100 and newer)"
        ));
    }
    let driver = driver?;
    let (major, minor) = driver.cuda.filter(|found| *found < LEAST_CUDA)?;
    Some(format!(
        "the driver {} runs CUDA up to {major}.{minor}; install driver {LEAST_DRIVER} or newer",
        driver.version
    ))
}

fn without_driver(reason: &NoDriver) -> String {
    match reason {
        NoDriver::NotInstalled => "no NVIDIA driver is installed; models run on the CPU".to_owned(),
        NoDriver::NotLoaded => {
            "the NVIDIA driver is installed but not loaded; models run on the CPU; after a driver update, restart the machine".to_owned()
        }
        NoDriver::Failed(what) => format!("querying the NVIDIA driver failed: {what}; models run on the CPU"),
    }
}
