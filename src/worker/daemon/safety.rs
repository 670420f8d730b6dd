//! The configured safety checker: its files, and its part of main memory, where it computes.

use std::fs;
use std::path::{Path, PathBuf};

use super::fit::Room;
use crate::catalog::{Embedded, UnpackError};
use muster_config::Config;
use muster_engine::runtime::safety::SafetyChecker;
use muster_engine::runtime::{DeviceChoice, LoadError};

/// The built-in checker for trials.
const DEMO: &str = "demo-safety";

/// The folder of a checker; `None` without one in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckerFiles(Option<PathBuf>);

impl CheckerFiles {
    /// `demo-safety` is the checker inside this program, unless such a folder exists.
    pub fn of(config: &Config) -> Result<Self, UnpackError> {
        let Some(path) = &config.engine.safety_checker else {
            return Ok(Self(None));
        };
        let is_demo = path.file_name().is_some_and(|name| name == DEMO) && !path.exists();
        let folder = match Embedded::find(DEMO).filter(|_| is_demo) {
            Some(demo) => demo.unpack(&config.worker.data_dir.join("models"))?,
            None => path.clone(),
        };
        Ok(Self(Some(folder)))
    }

    pub fn open(&self) -> Result<Option<SafetyChecker>, LoadError> {
        let folder = self.0.as_deref();
        folder.map(SafetyChecker::open).transpose()
    }

    /// Main memory without the part of the checker; other devices are unchanged.
    pub fn leave(&self, room: Room) -> Room {
        let taken = match room.device {
            DeviceChoice::Cpu => self.0.as_deref().map_or(0, weight_bytes),
            DeviceChoice::Cuda(_) => 0,
        };
        Room {
            free_bytes: room.free_bytes.saturating_sub(taken),
            ..room
        }
    }
}

/// 0 where files are missing, which opening the checker reports.
fn weight_bytes(folder: &Path) -> u64 {
    let weights = fs::metadata(folder.join("model.safetensors"));
    weights.map_or(0, |weights| weights.len())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{CheckerFiles, Room};
    use muster_config::{Config, Sources};
    use muster_engine::runtime::DeviceChoice;

    fn config(folder: &Path, checker: &str) -> Config {
        let file = folder.join("worker.toml");
        let data = folder.join("data");
        let text = format!(
            "[engine]\n{checker}\n[worker]\ndata_dir = \"{data}\"\n[hub]\ncache_dir = \"{data}/hub\"\n",
            data = data.display()
        );
        fs::write(&file, text).unwrap();
        let sources = Sources {
            file: Some(file),
            ..Sources::default()
        };
        Config::load(&sources).unwrap().config
    }

    fn left(files: &CheckerFiles, device: DeviceChoice) -> u64 {
        let room = Room {
            device,
            place: "here".to_owned(),
            free_bytes: 1 << 30,
            kept_bytes: 0,
        };
        files.leave(room).free_bytes
    }

    #[test]
    fn the_built_in_checker_has_a_name_and_its_memory_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), "safety_checker = \"demo-safety\"");
        let files = CheckerFiles::of(&config).unwrap();
        assert!(files.open().unwrap().is_some());
        let bytes = fs::metadata(files.0.as_ref().unwrap().join("model.safetensors"));
        let bytes = bytes.unwrap().len();
        assert!(bytes > 100_000);
        assert_eq!(left(&files, DeviceChoice::Cpu), (1 << 30) - bytes);
        assert_eq!(left(&files, DeviceChoice::Cuda(0)), 1 << 30);
    }

    #[test]
    fn without_a_checker_all_memory_is_left_and_a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let none = CheckerFiles::of(&config(folder.path(), "")).unwrap();
        assert!(none.open().unwrap().is_none());
        assert_eq!(left(&none, DeviceChoice::Cpu), 1 << 30);
        let missing = config(folder.path(), "safety_checker = \"no-such-folder\"");
        let Err(error) = CheckerFiles::of(&missing).unwrap().open() else {
            panic!("a folder that is missing was opened");
        };
        assert!(error.to_string().contains("no-such-folder"), "{error}");
    }
}
