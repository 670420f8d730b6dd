//! The power of processors, from the counters of RAPL that Linux shows, and that of the whole machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::GpuLoad;

const COUNTERS: &str = "sys/class/powercap";

/// Whether the power of the processors can be read here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PowerReading {
    Available,
    /// The reason, for the owner.
    Unavailable(String),
}

/// The counters of all processor packages.
#[derive(Debug)]
pub struct ProcessorPower {
    packages: Vec<Package>,
    pub reading: PowerReading,
}

/// The power of all GPUs and processors of this machine together, as far as they report it.
#[derive(Debug)]
pub struct MachinePower {
    processors: ProcessorPower,
    last: Vec<GpuLoad>,
    read: Instant,
}

impl MachinePower {
    pub fn open() -> Self {
        Self {
            processors: ProcessorPower::open(),
            last: Vec::new(),
            read: Instant::now(),
        }
    }

    /// The mean since the last call, or since `open`. `None` if no device reports its power.
    pub fn watts(&mut self, gpus: &[GpuLoad]) -> Option<f64> {
        let passed = self.read.elapsed();
        self.read = Instant::now();
        let before = std::mem::replace(&mut self.last, gpus.to_vec());
        let gpus = gpus.iter().enumerate();
        let of_gpus = gpus.filter_map(|(at, gpu)| gpu.joules_since(before.get(at), passed));
        let joules = of_gpus.chain(self.processors.joules());
        let joules = joules.reduce(|sum, joules| sum + joules)?;
        Some(joules / passed.as_secs_f64().max(1e-3))
    }
}

#[derive(Debug)]
struct Package {
    counter: PathBuf,
    /// The count after which the counter begins again.
    range: u64,
    last: u64,
}

impl ProcessorPower {
    pub fn open() -> Self {
        Self::open_below(Path::new("/"))
    }

    /// Like `open`, with the system's files below another root.
    fn open_below(root: &Path) -> Self {
        let folder = root.join(COUNTERS);
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let mut zones: Vec<PathBuf> = entries
            .map(|entry| entry.path())
            .filter(|path| is_package(path))
            .collect();
        zones.sort();
        let packages: Vec<Package> = zones
            .iter()
            .filter_map(|zone| Package::open(zone))
            .collect();
        let reading = match (zones.is_empty(), packages.is_empty()) {
            (true, _) => PowerReading::Unavailable(
                "this machine tells no power of its processors (no RAPL in /sys/class/powercap)"
                    .to_owned(),
            ),
            (false, true) => PowerReading::Unavailable(
                "the power of the processors may be read by root only; `chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj` allows it"
                    .to_owned(),
            ),
            (false, false) => PowerReading::Available,
        };
        Self { packages, reading }
    }

    /// The energy since the last call, or since `open`. `None` without counters.
    pub fn joules(&mut self) -> Option<f64> {
        let spent = self.packages.iter_mut().map(Package::micros);
        let spent: Option<u64> = spent.sum();
        spent
            .filter(|_| !self.packages.is_empty())
            .map(|micros| micros as f64 / 1e6)
    }
}

/// A package holds the cores and caches that are counted below it.
fn is_package(zone: &Path) -> bool {
    let name = fs::read_to_string(zone.join("name")).unwrap_or_default();
    name.starts_with("package-")
}

impl Package {
    fn open(zone: &Path) -> Option<Self> {
        let counter = zone.join("energy_uj");
        Some(Self {
            last: number(&counter)?,
            range: number(&zone.join("max_energy_range_uj")).unwrap_or(u64::MAX),
            counter,
        })
    }

    fn micros(&mut self) -> Option<u64> {
        let now = number(&self.counter)?;
        let before = std::mem::replace(&mut self.last, now);
        Some(match now >= before {
            true => now - before,
            false => self.range.saturating_sub(before).saturating_add(now),
        })
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(root: &Path, folder: &str, name: &str, energy: Option<&str>) {
        let folder = root.join(COUNTERS).join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("name"), format!("{name}\n")).unwrap();
        fs::write(folder.join("max_energy_range_uj"), "10000000\n").unwrap();
        if let Some(energy) = energy {
            fs::write(folder.join("energy_uj"), energy).unwrap();
        }
    }

    #[test]
    fn packages_are_summed_and_counters_that_begin_again_lose_nothing() {
        let root = tempfile::tempdir().unwrap();
        zone(root.path(), "intel-rapl:0", "package-0", Some("9000000\n"));
        zone(root.path(), "intel-rapl:1", "package-1", Some("1000000\n"));
        zone(root.path(), "intel-rapl:0:0", "core", Some("5\n"));
        let mut power = ProcessorPower::open_below(root.path());
        assert_eq!(power.reading, PowerReading::Available);
        zone(root.path(), "intel-rapl:0", "package-0", Some("500000\n"));
        zone(root.path(), "intel-rapl:1", "package-1", Some("3000000\n"));
        assert_eq!(power.joules(), Some(3.5));
        assert_eq!(power.joules(), Some(0.0));
    }

    #[test]
    fn a_machine_without_readable_counters_says_why() {
        let root = tempfile::tempdir().unwrap();
        let reason = |power: &ProcessorPower| match &power.reading {
            PowerReading::Unavailable(reason) => reason.clone(),
            PowerReading::Available => String::new(),
        };
        let mut none = ProcessorPower::open_below(root.path());
        assert!(reason(&none).contains("no RAPL"));
        assert_eq!(none.joules(), None);
        zone(root.path(), "intel-rapl:0", "package-0", None);
        let locked = ProcessorPower::open_below(root.path());
        assert!(reason(&locked).contains("root only"));
    }
}
