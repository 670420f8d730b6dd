//! `worker probe`: the hardware of this machine.

use serde_json::{Value, json};

use super::table::Table;
use super::{Failure, Root, output, quantity};
use crate::hardware::{self, Disk, Gpu, Machine};

const EXAMPLES: &str = "\
Examples:
  worker probe
  worker probe --json | jq '.gpus[].memory_free_bytes'";

/// Show the CPU, memory, disk and GPUs of this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let config = root.load()?.config;
    let machine = hardware::probe();
    let disk = hardware::disk(&config.hub.cache_dir).ok();
    match args.json {
        true => output::json(&as_json(&machine, disk)),
        false => output::text(as_text(&machine, disk)),
    }
}

fn as_text(machine: &Machine, disk: Option<Disk>) -> String {
    let cpu = &machine.cpu;
    let mut table = Table::plain();
    let mut line = |what: &str, value: String| table.row([what.to_owned(), value]);
    line(
        "CPU",
        format!("{}, {}", cpu.model, quantity::count(cpu.threads, "thread")),
    );
    line("", cpu.features.join(" "));
    line(
        "memory",
        quantity::free_of(machine.memory.available_bytes, machine.memory.total_bytes),
    );
    if let Some(disk) = disk {
        line(
            "disk for models",
            quantity::free_of(disk.free_bytes, disk.total_bytes),
        );
    }
    if let Some(driver) = &machine.driver {
        let cuda = driver
            .cuda
            .map(|(major, minor)| format!(", CUDA up to {major}.{minor}"));
        line(
            "NVIDIA driver",
            format!("{}{}", driver.version, cuda.unwrap_or_default()),
        );
    }
    for gpu in &machine.gpus {
        line(&format!("GPU {}", gpu.index), gpu.name.clone());
        gpu_lines(gpu).into_iter().for_each(|text| line("", text));
    }
    let notes: String = machine
        .notes
        .iter()
        .map(|note| format!("note: {note}\n"))
        .collect();
    format!("{table}{notes}")
}

fn gpu_lines(gpu: &Gpu) -> Vec<String> {
    let mut facts = vec![quantity::free_of(
        gpu.memory_free_bytes,
        gpu.memory_total_bytes,
    )];
    facts.extend(
        gpu.compute_capability
            .map(|(major, minor)| format!("compute capability {major}.{minor}")),
    );
    facts.extend(
        gpu.temperature_celsius
            .map(|celsius| format!("{celsius} °C")),
    );
    facts.extend(gpu.power_watts.map(|watts| match gpu.power_limit_watts {
        Some(limit) => format!("{watts:.0} of {limit:.0} W"),
        None => format!("{watts:.0} W"),
    }));
    let users = gpu.processes.iter().map(|process| {
        let memory = process
            .memory_bytes
            .map_or_else(String::new, |bytes| format!(", {}", quantity::bytes(bytes)));
        format!(
            "used by {} (process {}{memory})",
            process.name.as_deref().unwrap_or("an unknown program"),
            process.pid
        )
    });
    [facts.join(", ")].into_iter().chain(users).collect()
}

/// The machine for programs. Fields that could not be read are null.
pub fn as_json(machine: &Machine, disk: Option<Disk>) -> Value {
    json!({
        "cpu": {
            "model": machine.cpu.model,
            "threads": machine.cpu.threads,
            "features": machine.cpu.features,
        },
        "memory": {
            "total_bytes": machine.memory.total_bytes,
            "available_bytes": machine.memory.available_bytes,
        },
        "disk": disk.map(|disk| json!({ "total_bytes": disk.total_bytes, "free_bytes": disk.free_bytes })),
        "driver": machine.driver.as_ref().map(|driver| json!({
            "version": driver.version,
            "cuda": driver.cuda.map(|(major, minor)| format!("{major}.{minor}")),
        })),
        "gpus": machine.gpus.iter().map(gpu_as_json).collect::<Vec<_>>(),
        "notes": machine.notes,
    })
}

fn gpu_as_json(gpu: &Gpu) -> Value {
    let processes = gpu.processes.iter().map(|process| {
        json!({ "pid": process.pid, "name": process.name, "memory_bytes": process.memory_bytes })
    });
    json!({
        "index": gpu.index,
        "name": gpu.name,
        "uuid": gpu.uuid,
        "memory_total_bytes": gpu.memory_total_bytes,
        "memory_free_bytes": gpu.memory_free_bytes,
        "compute_capability": gpu.compute_capability.map(|(major, minor)| format!("{major}.{minor}")),
        "power_watts": gpu.power_watts,
        "power_limit_watts": gpu.power_limit_watts,
        "temperature_celsius": gpu.temperature_celsius,
        "processes": processes.collect::<Vec<_>>(),
    })
}
