//! Made-up machines in NVML's format. Names, memory, power limits and compute capabilities are those of the GPUs' data
//! sheets; free memory, power and temperatures are invented.

use muster::hardware::readings::{CardReading, NoDriver, Readings};
use muster::hardware::{Cpu, CudaEnvironment, GpuProcess, Machine, Memory, assemble};

pub const MIB: u64 = 1 << 20;

/// A machine of 8 threads and 32 GiB, 20 of them free, with these cards.
pub fn machine(nvml: Result<Readings, NoDriver>) -> Machine {
    let cpu = Cpu {
        model: "CPU".to_owned(),
        threads: 8,
        features: vec!["avx2".to_owned()],
    };
    assemble(
        cpu,
        Memory {
            total_bytes: 32 << 30,
            available_bytes: 20 << 30,
        },
        nvml,
    )
}

/// What NVML says where the driver is in order.
pub fn readings(cards: Vec<Result<CardReading, String>>) -> Result<Readings, NoDriver> {
    Ok(Readings {
        driver_version: Some("580.95.05".to_owned()),
        cuda_version: Some(13_000),
        cards,
        slice: None,
        environment: CudaEnvironment::default(),
    })
}

/// RTX 3070: 8 GB, 220 W, compute capability 8.6 (data sheet).
pub fn rtx_3070() -> CardReading {
    CardReading {
        name: Some("NVIDIA GeForce RTX 3070".to_owned()),
        uuid: Some("GPU-1".to_owned()),
        memory: Some((8192 * MIB, 5300 * MIB)),
        compute_capability: Some((8, 6)),
        power_milliwatts: Some(31_500),
        power_limit_milliwatts: Some(220_000),
        temperature_celsius: Some(44),
        processes: vec![GpuProcess {
            pid: 812,
            name: Some("Xorg".to_owned()),
            memory_bytes: Some(300 * MIB),
        }],
    }
}

/// RTX 3090: 24 GB, 350 W, compute capability 8.6 (data sheet).
pub fn rtx_3090() -> CardReading {
    CardReading {
        name: Some("NVIDIA GeForce RTX 3090".to_owned()),
        memory: Some((24_576 * MIB, 24_000 * MIB)),
        power_limit_milliwatts: Some(350_000),
        ..rtx_3070()
    }
}

/// H200 SXM: 141 GB, up to 700 W, compute capability 9.0 (data sheet).
pub fn h200() -> CardReading {
    CardReading {
        name: Some("NVIDIA H200".to_owned()),
        memory: Some((141_000_000_000, 140_000_000_000)),
        compute_capability: Some((9, 0)),
        power_limit_milliwatts: Some(700_000),
        processes: Vec::new(),
        ..rtx_3070()
    }
}
