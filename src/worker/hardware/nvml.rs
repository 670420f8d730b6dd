//! Queries NVML. Raw values are passed on; `readings` interprets them.

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml};

use super::readings::{CardReading, NoDriver, Readings};
use super::{CudaEnvironment, GpuLoad, GpuProcess};

/// An open handle of the GPUs for repeated queries: opening the library takes longer than hundreds of queries.
pub struct Cards {
    nvml: Nvml,
    /// GPUs that this process may use.
    shown: Vec<Known>,
}

/// NVML's identifier of a GPU.
enum Known {
    At(u32),
    /// A slice (MIG) of a GPU, by its UUID.
    Slice(String),
}

impl Cards {
    /// `None` without a working driver.
    pub fn open() -> Option<Self> {
        let nvml = open().ok()?;
        let count = nvml.device_count().unwrap_or(0);
        let uuid = |index| nvml.device_by_index(index).ok()?.uuid().ok();
        let uuids: Vec<_> = (0..count).map(uuid).collect();
        let environment = CudaEnvironment::read();
        let shown = match environment.slice() {
            Some(uuid) => vec![Known::Slice(uuid.to_owned())],
            None => {
                let indices = environment.shown(&uuids).into_iter();
                let indices = indices.filter_map(|index| u32::try_from(index).ok());
                indices.map(Known::At).collect()
            }
        };
        Some(Self { nvml, shown })
    }

    /// The current state of the GPUs, in order. A GPU that does not respond is left out.
    pub fn loads(&self) -> Vec<GpuLoad> {
        let devices = self.shown.iter().map(|known| known.open(&self.nvml));
        devices
            .filter_map(|device| load(&self.nvml, &device.ok()?))
            .collect()
    }
}

impl Known {
    fn open<'a>(&self, nvml: &'a Nvml) -> Result<Device<'a>, NvmlError> {
        match self {
            Self::At(index) => nvml.device_by_index(*index),
            Self::Slice(uuid) => nvml.device_by_uuid(uuid.as_str()),
        }
    }
}

fn load(nvml: &Nvml, device: &Device<'_>) -> Option<GpuLoad> {
    let memory = device.memory_info().ok()?;
    let rates = device.utilization_rates().ok();
    Some(GpuLoad {
        name: device.name().ok()?,
        memory_total_bytes: memory.total,
        memory_free_bytes: memory.free.min(memory.total),
        utilization: rates.map(|rates| f64::from(rates.gpu) / 100.0),
        watts: device.power_usage().ok().map(from_thousandths),
        celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        joules: device
            .total_energy_consumption()
            .ok()
            .map(|millijoules| millijoules as f64 / 1000.0),
        processes: processes(nvml, device),
    })
}

fn from_thousandths(value: u32) -> f64 {
    f64::from(value) / 1000.0
}

pub fn read() -> Result<Readings, NoDriver> {
    let nvml = open().map_err(why_not)?;
    let count = nvml.device_count().map_err(why_not)?;
    let environment = CudaEnvironment::read();
    let slice = environment.slice().map(str::to_owned);
    Ok(Readings {
        driver_version: nvml.sys_driver_version().ok(),
        cuda_version: nvml.sys_cuda_driver_version().ok(),
        cards: (0..count)
            .map(|index| card(&nvml, &Known::At(index)))
            .collect(),
        slice: slice.map(|uuid| card(&nvml, &Known::Slice(uuid))),
        environment,
    })
}

/// The library has a second name where only the driver, and no development package, is installed.
fn open() -> Result<Nvml, NvmlError> {
    Nvml::init().or_else(|error| match error {
        NvmlError::LibloadingError(_) => Nvml::builder()
            .lib_path("libnvidia-ml.so.1".as_ref())
            .init(),
        error => Err(error),
    })
}

fn why_not(error: NvmlError) -> NoDriver {
    match error {
        NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => NoDriver::NotInstalled,
        NvmlError::DriverNotLoaded => NoDriver::NotLoaded,
        error => NoDriver::Failed(error.to_string()),
    }
}

fn card(nvml: &Nvml, known: &Known) -> Result<CardReading, String> {
    let device = known.open(nvml).map_err(|error| error.to_string())?;
    Ok(CardReading {
        name: device.name().ok(),
        uuid: device.uuid().ok(),
        memory: device
            .memory_info()
            .ok()
            .map(|memory| (memory.total, memory.free)),
        compute_capability: device
            .cuda_compute_capability()
            .or_else(|_| device.mig_parent_device()?.cuda_compute_capability())
            .ok()
            .map(|version| (version.major, version.minor)),
        power_milliwatts: device.power_usage().ok(),
        power_limit_milliwatts: device.enforced_power_limit().ok(),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
        processes: processes(nvml, &device),
    })
}

/// Processes on the GPU, for compute or graphics; a process with both is listed once.
fn processes(nvml: &Nvml, device: &Device<'_>) -> Vec<GpuProcess> {
    let computing = device.running_compute_processes().unwrap_or_default();
    let drawing = device.running_graphics_processes().unwrap_or_default();
    let mut all: Vec<GpuProcess> = computing
        .into_iter()
        .chain(drawing)
        .map(|process| named(nvml, &process))
        .collect();
    all.sort_by_key(|process| process.pid);
    all.dedup_by_key(|process| process.pid);
    all
}

fn named(nvml: &Nvml, process: &ProcessInfo) -> GpuProcess {
    let memory_bytes = match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(bytes),
        UsedGpuMemory::Unavailable => None,
    };
    GpuProcess {
        pid: process.pid,
        name: nvml.sys_process_name(process.pid, 128).ok(),
        memory_bytes,
    }
}
