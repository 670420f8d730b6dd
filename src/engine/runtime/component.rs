//! The networks of a model, each in a separate folder in the layout of diffusers, or in a file: safetensors or GGUF.
//! Linear layers keep quantized weights; other layers dequantize them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::Device;
use serde_json::Value;

use crate::networks::blocks::{ComponentSource, Layout};
use crate::networks::weights::{
    Checkpoint, CheckpointError, Description, Flaw, Quantize, TensorSource,
};
use crate::runtime::network_pool::{NetworkFiles, NetworkPool, SharedWeights};

/// Names the components.
pub const INDEX: &str = "model_index.json";

/// Folders or files that replace components of a model's folder, by the component's name.
pub type ComponentFolders = BTreeMap<String, PathBuf>;

/// The folder or file of a component of the model at `path`.
pub fn component_folder(path: &Path, replacements: &ComponentFolders, name: &str) -> PathBuf {
    match replacements.get(name) {
        Some(replacement) => replacement.clone(),
        None => path.join(name),
    }
}

/// How components are put on a device.
pub struct ComponentLoad<'a> {
    pub device: &'a Device,
    pub quantize: Option<Quantize>,
}

impl ComponentLoad<'_> {
    pub fn source<'a>(
        &'a self,
        tensors: &'a dyn TensorSource,
        layout: Layout,
    ) -> ComponentSource<'a> {
        ComponentSource {
            tensors,
            layout,
            device: self.device,
            quantize: self.quantize,
        }
    }

    pub fn read<S, T>(
        &self,
        component: Component<S>,
        load: impl FnOnce(S, ComponentSource) -> Result<T, Flaw>,
    ) -> Result<T, CheckpointError> {
        let Component { checkpoint, spec } = component;
        load(spec, self.source(&checkpoint, Layout::Folder))
            .map_err(|flaw| flaw.in_file(checkpoint.path()))
    }

    /// The same for a network that other models may hold already.
    pub fn read_shared<S, T>(
        &self,
        component: Component<S>,
        pool: &NetworkPool<T>,
        load: impl FnOnce(S, ComponentSource) -> Result<T, Flaw>,
    ) -> Result<Arc<T>, CheckpointError> {
        let files = NetworkFiles::of(component.checkpoint.path());
        let read = || self.read(component, load);
        pool.get_or_load(files, self.device, self.quantize, read)
    }
}

/// The files of one network.
pub struct Component<S> {
    checkpoint: Checkpoint,
    pub spec: S,
}

impl<S> Component<S> {
    /// Opens a folder, or a file with `config.json` in the same folder.
    pub fn open(
        path: &Path,
        read: impl FnOnce(&Value) -> Result<S, Flaw>,
    ) -> Result<Self, CheckpointError> {
        // Repositories may have several precisions.
        let names = ["diffusion_pytorch_model", "model"];
        let names = names.map(|name| ["", ".fp16"].map(|kind| format!("{name}{kind}.safetensors")));
        let files = names.concat().into_iter().map(|name| path.join(name));
        let found = files.into_iter().find(|file| file.is_file());
        let checkpoint = Checkpoint::open(found.as_deref().unwrap_or(path))?;
        let checkpoint = checkpoint.described_beside()?;
        let spec = read(config(&checkpoint)?).map_err(|flaw| flaw.in_file(checkpoint.path()))?;
        Ok(Self { checkpoint, spec })
    }

    /// The same for a file without a description: `describe` infers its `config.json`.
    pub fn open_file(
        path: &Path,
        describe: impl FnOnce(&dyn TensorSource) -> Result<Value, Flaw>,
        read: impl FnOnce(&Value) -> Result<S, Flaw>,
    ) -> Result<Self, CheckpointError> {
        let checkpoint = Checkpoint::open_undescribed(path, |checkpoint| describe(checkpoint))?;
        let spec = read(config(&checkpoint)?).map_err(|flaw| flaw.in_file(path))?;
        Ok(Self { checkpoint, spec })
    }

    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    pub fn config(&self) -> Result<&Value, CheckpointError> {
        config(&self.checkpoint)
    }

    pub fn check(&self, check: impl FnOnce(&S) -> Result<(), Flaw>) -> Result<(), CheckpointError> {
        check(&self.spec).map_err(|flaw| flaw.in_file(self.checkpoint.path()))
    }

    pub fn bytes(&self) -> u64 {
        let headers = self.checkpoint.tensors().iter();
        headers
            .map(|header| self.checkpoint.bytes(header).len() as u64)
            .sum()
    }

    /// Key of weights that models share with [`ComponentLoad::read_shared`].
    pub fn shared(&self) -> SharedWeights {
        SharedWeights {
            files: NetworkFiles::of(self.checkpoint.path()),
            bytes: self.bytes(),
        }
    }
}

/// The configuration of a network whose files contain only its tensors.
fn config(checkpoint: &Checkpoint) -> Result<&Value, CheckpointError> {
    match checkpoint.description() {
        Description::Config(config) => Ok(config),
        Description::Gguf(_) => {
            let flaw = Flaw::unsupported("the file", "GGUF", "safetensors");
            Err(flaw.in_file(checkpoint.path()))
        }
    }
}
