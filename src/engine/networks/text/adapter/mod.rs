//! LoRA adapters of decoders: folders of peft and GGUF files.
//!
//! [`TextAdapterFile`] opens one and checks its header against a decoder, then loads its tensors to the device.
//! `settings.rs` reads the configuration of peft, `modules.rs` lists the matrices of a decoder that adapters can
//! change.

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
