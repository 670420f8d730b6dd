//! A file with the results of self-tests, by GPU, driver and build: a change of any of them repeats the test.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use candle_core::cuda_backend::WrapErr;
use candle_core::{CudaDevice, Result};
use data_encoding::HEXLOWER;

use super::trial::{KernelFault, Operation};

/// Tab-separated lines: the key of a test, then operation and reason of each fault.
#[derive(Debug, Clone)]
pub struct TrialRecord {
    file: PathBuf,
    driver: String,
}

/// Identifies a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialKey {
    gpu: String,
    driver: String,
    build: String,
}

const FILE: &str = "gpu-trials";
const COLUMNS: usize = 3;

static KEPT: Mutex<Option<TrialRecord>> = Mutex::new(None);

/// Sets the folder and the driver version for the results of GPUs that are opened later.
pub fn keep_gpu_trials(folder: &Path, driver: &str) {
    let record = TrialRecord::new(folder, driver);
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
}

/// The record, if one is set.
pub fn kept() -> Option<TrialRecord> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl TrialRecord {
    pub fn new(folder: &Path, driver: &str) -> Self {
        Self {
            file: folder.join(FILE),
            driver: driver.to_owned(),
        }
    }

    /// The key of a test on this GPU, now.
    pub fn key(&self, device: &CudaDevice) -> Result<TrialKey> {
        let stream = device.cuda_stream();
        let context = stream.context();
        let id = context.uuid().w()?.bytes;
        let id = HEXLOWER.encode(&id.map(|byte| byte as u8));
        Ok(TrialKey {
            gpu: column(&format!("{} {id}", context.name().w()?)),
            driver: column(&self.driver),
            build: build(),
        })
    }

    /// The faults of the test with this key, if the file has it.
    pub fn faults(&self, key: &TrialKey) -> Option<Vec<KernelFault>> {
        let text = fs::read_to_string(&self.file).ok()?;
        text.lines().find_map(|line| faults_in(line, key))
    }

    /// Writes a result in place of earlier ones of the same GPU.
    pub fn keep(&self, key: &TrialKey, faults: &[KernelFault]) -> io::Result<()> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let is_others = |line: &&str| line.split('\t').next() != Some(&key.gpu);
        let mut lines: Vec<String> = text.lines().filter(is_others).map(str::to_owned).collect();
        let mut columns = vec![key.gpu.clone(), key.driver.clone(), key.build.clone()];
        for fault in faults {
            columns.push(fault.operation.name().to_owned());
            columns.push(column(&fault.why));
        }
        lines.push(columns.join("\t"));
        if let Some(folder) = self.file.parent() {
            fs::create_dir_all(folder)?;
        }
        // Atomic: two processes may start at once.
        let new = self.file.with_extension(std::process::id().to_string());
        fs::write(&new, lines.join("\n") + "\n")?;
        fs::rename(&new, &self.file)
    }
}

/// The faults of a line with this key. `None` for other keys and malformed lines.
fn faults_in(line: &str, key: &TrialKey) -> Option<Vec<KernelFault>> {
    let columns: Vec<&str> = line.split('\t').collect();
    let (known, faults) = columns.split_at_checked(COLUMNS)?;
    if known != [key.gpu.as_str(), &key.driver, &key.build] || !faults.len().is_multiple_of(2) {
        return None;
    }
    let faults = faults.chunks_exact(2).map(|pair| {
        let mut all = Operation::ALL.into_iter();
        Some(KernelFault {
            operation: all.find(|operation| operation.name() == pair[0])?,
            why: pair[1].to_owned(),
        })
    });
    faults.collect()
}

/// Removes tabs and line ends.
fn column(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Version, length and time of the executable.
fn build() -> String {
    let file = std::env::current_exe().and_then(fs::metadata).ok();
    let file = file.map_or_else(String::new, |file| {
        let time = file.modified().ok();
        let time = time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        format!(" {} {}", file.len(), time.unwrap_or_default().as_nanos())
    });
    format!("{}{file}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_kept_by_gpu_driver_and_build() {
        let folder = std::env::temp_dir().join(format!("muster-trials-{}", std::process::id()));
        let record = TrialRecord::new(&folder, "580.95.05");
        let key = TrialKey {
            gpu: "GPU 1".to_owned(),
            driver: "580".to_owned(),
            build: "one".to_owned(),
        };
        assert!(record.faults(&key).is_none());
        let fault = KernelFault {
            operation: Operation::Gate,
            why: "results are\toff".to_owned(),
        };
        let other = TrialKey {
            gpu: "GPU 2".to_owned(),
            ..key.clone()
        };
        record.keep(&other, &[]).unwrap();
        record.keep(&key, &[fault]).unwrap();
        let found = record.faults(&key).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "gated activations (results are off)");
        assert_eq!(record.faults(&other).unwrap().len(), 0);
        for changed in [
            TrialKey {
                driver: "590".to_owned(),
                ..key.clone()
            },
            TrialKey {
                build: "two".to_owned(),
                ..key.clone()
            },
            TrialKey {
                gpu: "GPU 3".to_owned(),
                ..key.clone()
            },
        ] {
            assert!(record.faults(&changed).is_none());
        }
        let newer = TrialKey {
            driver: "590".to_owned(),
            ..key.clone()
        };
        record.keep(&newer, &[]).unwrap();
        assert!(record.faults(&key).is_none() && record.faults(&newer).is_some());
        assert!(record.faults(&other).is_some());
        // An operation of another version.
        let line = "GPU 1\t580\tone\tunknown work\twhy\n";
        fs::write(folder.join(FILE), line).unwrap();
        assert!(record.faults(&key).is_none());
        fs::remove_dir_all(&folder).unwrap();
    }
}
