//! LoRA adapters of decoders: folders of peft and GGUF files.
//!
//! [`TextAdapterFile`] opens one and checks it against a decoder by headers alone; then it brings its tensors to the device.
//! `settings.rs` reads the configuration of peft, `modules.rs` says which matrices a decoder has for adapters.

mod file;
mod modules;
mod settings;

pub use file::TextAdapterFile;

use super::Decoder;
use crate::networks::layers::DecoderAdapter;
use crate::networks::weights::CheckpointError;

impl Decoder {
    /// Brings an adapter to the decoder's device.
    pub fn load_adapter(&self, file: &TextAdapterFile) -> Result<DecoderAdapter, CheckpointError> {
        let dense = (!self.device.is_cpu()).then_some(self.dtype);
        file.load(&self.spec, &self.device, dense)
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod refusals;
