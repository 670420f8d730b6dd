//! Files of adapters beside a model: read once, kept while they fit, applied with the strengths of each request.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use candle_core::Device;

use super::networks::DiffusionNetworks;
use crate::networks::adapter::{Adaptation, AdapterFile, AdapterPart, NetworkDeltas};
use crate::networks::weights::{CheckpointError, Flaw};
use crate::runtime::maker::LoraUse;

/// Numbers of adapters that are kept for later requests.
const MOST_KEPT_BYTES: u64 = 1 << 30;

/// Adapters that were used before, the latest at the end.
#[derive(Debug, Default)]
pub struct AdapterCache(Mutex<Vec<CachedAdapter>>);

#[derive(Debug, Clone)]
struct CachedAdapter {
    file: FileVersion,
    adapter: Arc<LoadedAdapter>,
}

/// A file that was replaced is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileVersion {
    path: PathBuf,
    size_bytes: u64,
    modified: Option<SystemTime>,
}

/// An adapter, matched with the networks of a model.
#[derive(Debug)]
pub struct LoadedAdapter {
    unet: Arc<NetworkDeltas>,
    encoders: Vec<Arc<NetworkDeltas>>,
    bytes: u64,
}

/// The adapters of one drawing.
#[derive(Debug, Default)]
pub struct DrawingAdapters {
    pub unet: Vec<Adaptation>,
    /// For each encoder.
    pub encoders: Vec<Vec<Adaptation>>,
}

impl DrawingAdapters {
    pub fn load(networks: &DiffusionNetworks, loras: &[LoraUse]) -> Result<Self, CheckpointError> {
        let mut found = Self {
            unet: Vec::new(),
            encoders: vec![Vec::new(); networks.encoders.len()],
        };
        for lora in loras {
            let adapter = networks.adapters.get(&lora.file, networks)?;
            found
                .unet
                .extend(Adaptation::new(&adapter.unet, lora.model));
            for (all, deltas) in found.encoders.iter_mut().zip(&adapter.encoders) {
                all.extend(Adaptation::new(deltas, lora.clip));
            }
        }
        Ok(found)
    }
}

impl AdapterCache {
    fn get(
        &self,
        path: &Path,
        networks: &DiffusionNetworks,
    ) -> Result<Arc<LoadedAdapter>, CheckpointError> {
        let file = FileVersion::read(path).map_err(|source| CheckpointError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        if let Some(adapter) = self.take(&file) {
            self.keep(file, &adapter);
            return Ok(adapter);
        }
        let adapter = Arc::new(LoadedAdapter::read(path, networks)?);
        self.keep(file, &adapter);
        Ok(adapter)
    }

    fn take(&self, file: &FileVersion) -> Option<Arc<LoadedAdapter>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|it| it.file == *file)?;
        Some(kept.remove(at).adapter)
    }

    fn keep(&self, file: FileVersion, adapter: &Arc<LoadedAdapter>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let adapter = Arc::clone(adapter);
        kept.push(CachedAdapter { file, adapter });
        let bytes = |kept: &[CachedAdapter]| kept.iter().map(|it| it.adapter.bytes).sum::<u64>();
        while kept.len() > 1 && bytes(&kept) > MOST_KEPT_BYTES {
            kept.remove(0);
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl FileVersion {
    fn read(path: &Path) -> io::Result<Self> {
        let metadata = path.metadata()?;
        Ok(Self {
            path: path.to_owned(),
            size_bytes: metadata.len(),
            modified: metadata.modified().ok(),
        })
    }
}

impl LoadedAdapter {
    fn read(path: &Path, networks: &DiffusionNetworks) -> Result<Self, CheckpointError> {
        let file = AdapterFile::open(path)?;
        let count = networks.encoders.len();
        let foreign = file.parts().into_iter().find_map(|part| match part {
            AdapterPart::TextEncoder(index) if index >= count => Some(index + 1),
            AdapterPart::TextEncoder(_) | AdapterPart::Unet => None,
        });
        if let Some(needed) = foreign {
            let found = format!("tensors for {needed} text encoders");
            let wanted =
                format!("{count}, as this base model has; the file is made for another one");
            return Err(Flaw::broken("the file", found, wanted).in_file(path));
        }
        let device: &Device = &networks.device;
        let unet = file.deltas(AdapterPart::Unet, networks.unet.layers(), device)?;
        let encoders = networks.encoders.iter().enumerate();
        let encoders = encoders.map(|(index, encoder)| {
            let part = AdapterPart::TextEncoder(index);
            let deltas = file.deltas(part, encoder.clip.layers(), device)?;
            Ok(Arc::new(deltas))
        });
        Ok(Self {
            unet: Arc::new(unet),
            encoders: encoders.collect::<Result<_, CheckpointError>>()?,
            bytes: file.bytes(),
        })
    }
}
