//! LoRA and textual inversion files of a model, applied with the strengths of each request.

use std::path::Path;
use std::sync::Arc;

use candle_core::Device;

use super::file_cache::{FileCache, FileContent};
use super::networks::DiffusionNetworks;
use crate::networks::adapter::{
    Adaptation, AdapterFile, AdapterPart, InversionVectors, NetworkDeltas,
};
use crate::networks::weights::{CheckpointError, Flaw};
use crate::runtime::image::LoraUse;

/// Numbers of adapters that are kept for later requests.
const MOST_ADAPTER_BYTES: u64 = 1 << 30;
const MOST_INVERSION_BYTES: u64 = 64 << 20;

/// Files of adapters that requests have used.
#[derive(Debug)]
pub struct AdapterCaches {
    pub loras: FileCache<LoadedAdapter>,
    pub inversions: FileCache<InversionVectors>,
}

impl Default for AdapterCaches {
    fn default() -> Self {
        Self {
            loras: FileCache::new(MOST_ADAPTER_BYTES),
            inversions: FileCache::new(MOST_INVERSION_BYTES),
        }
    }
}

impl FileContent for LoadedAdapter {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl FileContent for InversionVectors {
    fn bytes(&self) -> u64 {
        self.memory_bytes()
    }
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
    /// Per text encoder.
    pub encoders: Vec<Vec<Adaptation>>,
}

impl DrawingAdapters {
    pub fn load(networks: &DiffusionNetworks, loras: &[LoraUse]) -> Result<Self, CheckpointError> {
        let mut found = Self {
            unet: Vec::new(),
            encoders: vec![Vec::new(); networks.encoders.len()],
        };
        for lora in loras {
            let read = || LoadedAdapter::read(&lora.file, networks);
            let adapter = networks.adapters.loras.get(&lora.file, read);
            let adapter = adapter.map_err(CheckpointError::without_folder)?;
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
        let encoders = encoders.collect::<Result<Vec<_>, CheckpointError>>()?;
        let bytes = encoders.iter().map(|deltas| deltas.bytes()).sum::<u64>();
        Ok(Self {
            bytes: bytes + unet.bytes(),
            unet: Arc::new(unet),
            encoders,
        })
    }
}
