//! Networks shared by several models, such as a text encoder of two image models.
//!
//! A network is identified by its files, its device and its quantization. Models share references; dropping the last
//! one frees the network.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use candle_core::Device;

use crate::networks::weights::Quantize;

/// The files of a network, as they were when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkFiles {
    /// A file or a folder, without links on the way.
    path: PathBuf,
    /// Modification time and length of each file.
    stamps: Vec<(Option<SystemTime>, u64)>,
}

/// Weights that models with the same files hold together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedWeights {
    pub files: NetworkFiles,
    pub bytes: u64,
}

struct PooledNetwork<T> {
    files: NetworkFiles,
    device: Device,
    quantize: Option<Quantize>,
    network: Weak<T>,
}

/// The networks of one kind that are in memory.
pub struct NetworkPool<T>(Mutex<Vec<PooledNetwork<T>>>);

impl NetworkFiles {
    /// The files of a network: the path of one, or of a folder with all of them.
    pub fn of(path: &Path) -> Self {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mut files: Vec<PathBuf> = match fs::read_dir(&path) {
            Ok(items) => items.flatten().map(|item| item.path()).collect(),
            Err(_) => vec![path.clone()],
        };
        files.sort();
        let stamp = |file: &PathBuf| {
            let metadata = fs::metadata(file).ok()?;
            Some((metadata.modified().ok(), metadata.len()))
        };
        Self {
            stamps: files.iter().filter_map(stamp).collect(),
            path,
        }
    }
}

impl<T> NetworkPool<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The network of these files, if a model holds it; else the one that is loaded now. Others wait for it meanwhile.
    pub fn get_or_load<E>(
        &self,
        files: NetworkFiles,
        device: &Device,
        quantize: Option<Quantize>,
        load: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let mut networks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        networks.retain(|pooled| pooled.network.strong_count() > 0);
        // Another handle of the same GPU has a separate stream.
        let held = networks.iter().find(|pooled| {
            pooled.files == files
                && pooled.quantize == quantize
                && pooled.device.same_device(device)
        });
        if let Some(network) = held.and_then(|pooled| pooled.network.upgrade()) {
            return Ok(network);
        }
        let network = Arc::new(load()?);
        networks.push(PooledNetwork {
            files,
            device: device.clone(),
            quantize,
            network: Arc::downgrade(&network),
        });
        Ok(network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_with_the_same_files_hold_one_network_until_the_last_of_them_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("model.safetensors");
        fs::write(&file, "weights").unwrap();
        let pool = NetworkPool::<u32>::new();
        let get = |number: u32| {
            let files = NetworkFiles::of(folder.path());
            let loaded = pool.get_or_load(files, &Device::Cpu, None, || Ok::<_, ()>(number));
            loaded.unwrap()
        };
        let (one, other) = (get(1), get(2));
        assert!(Arc::ptr_eq(&one, &other));
        // Other bytes are another network, though its name is the same.
        fs::write(&file, "other weights").unwrap();
        let third = get(3);
        assert_eq!((*one, *third), (1, 3));
        let quantized = pool.get_or_load(
            NetworkFiles::of(folder.path()),
            &Device::Cpu,
            Some(Quantize::Q8_0),
            || Ok::<_, ()>(4),
        );
        assert_eq!(*quantized.unwrap(), 4);
        drop((one, other, third));
        assert_eq!(*get(5), 5);
        let failed = pool.get_or_load(NetworkFiles::of(&file), &Device::Cpu, None, || Err("no"));
        assert_eq!(failed.unwrap_err(), "no");
    }
}
