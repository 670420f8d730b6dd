//! The vision tower in the files of a language model.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use candle_core::Device;
use serde_json::Value;

use super::images::ImageInput;
use super::load::LoadError;
use super::text::Language;
use crate::networks::blocks::{ComponentSource, Layout};
use crate::networks::text::DecoderSpec;
use crate::networks::vision::{ImageTokens, Vision, VisionTower};
use crate::networks::weights::{Checkpoint, CheckpointError, Description, Flaw};

/// Files with the image processor's configuration, and its part of newer files.
const FILES: [(&str, &str); 2] = [
    ("preprocessor_config.json", ""),
    ("processor_config.json", "/image_processor"),
];
/// Such a file has some hundred bytes.
const MOST_BYTES: u64 = 1 << 20;

/// A tower that is described and not loaded yet.
pub struct Eyes(Vision);

impl Eyes {
    /// `None` if the files describe no vision tower, or if the device does not support its attention.
    pub fn open(
        checkpoint: &Checkpoint,
        spec: &DecoderSpec,
        device: &Device,
    ) -> Result<Option<Self>, CheckpointError> {
        let Description::Config(config) = checkpoint.description() else {
            return Ok(None);
        };
        let family = spec.vision;
        let Some(family) = family.filter(|it| device.is_cpu() || !it.has_blocks()) else {
            return Ok(None);
        };
        let path = checkpoint.path();
        let file = processor_file(path);
        let vision = file.and_then(|file| family.read(config, file.as_ref()));
        let eyes = vision.and_then(|vision| Self::checked(vision, spec));
        eyes.map(Some).map_err(|flaw| flaw.in_file(path))
    }

    fn checked(vision: Vision, decoder: &DecoderSpec) -> Result<Self, Flaw> {
        let found = vision.spec.out_size();
        if found != decoder.hidden_size {
            let wanted = format!("the decoder's hidden size {}", decoder.hidden_size);
            return Err(Flaw::broken("out_hidden_size", found, wanted));
        }
        let added = vision.spec.added_layers();
        if added >= decoder.layers {
            let found = format!("{added} layers");
            let wanted = format!("fewer than the decoder's {} layers", decoder.layers);
            return Err(Flaw::broken("deepstack_visual_indexes", found, wanted));
        }
        if vision.processor.has_axes() && decoder.rope_axes.is_none() {
            let found = format!("{:?}", decoder.rope.scaling);
            let known = "default, with an mrope_section for images";
            return Err(Flaw::unsupported("the rope_scaling type", found, known));
        }
        let ImageTokens { mark, row } = vision.tokens;
        let most = decoder.vocab_size;
        if let Some(token) = [mark, row].iter().find(|&&token| token as usize >= most) {
            let wanted = "a token of the vocabulary";
            return Err(Flaw::broken("image_token_id", token, wanted));
        }
        Ok(Self(vision))
    }

    /// Loads the tower, with weights as they are stored.
    pub fn load(
        &self,
        checkpoint: &Checkpoint,
        device: &Device,
    ) -> Result<VisionTower, CheckpointError> {
        let source = ComponentSource {
            tensors: checkpoint,
            layout: Layout::Folder,
            device,
            quantize: None,
        };
        let tower = VisionTower::load(&self.0.spec, source);
        tower.map_err(|flaw| flaw.in_file(checkpoint.path()))
    }

    /// How chats with this tokenizer take images.
    pub fn into_input(self, language: &Language) -> Result<ImageInput, LoadError> {
        let ImageTokens { mark, row } = self.0.tokens;
        let names = language.names(&[mark, row]);
        let names = names.map_err(|error| LoadError::ImageTokens(error.to_string()))?;
        match &names[..] {
            [mark, row] if !mark.is_empty() && !row.is_empty() => {
                let names = [mark.clone(), row.clone()];
                Ok(ImageInput::new(self.0.processor, self.0.tokens.row, names))
            }
            _ => {
                let reason = format!("the tokenizer has no tokens {mark} and {row}");
                Err(LoadError::ImageTokens(reason))
            }
        }
    }
}

/// The image processor's configuration from the model's folder.
fn processor_file(path: &Path) -> Result<Option<Value>, Flaw> {
    let folder = match path.is_dir() {
        true => Some(path),
        false => path.parent(),
    };
    for (name, part) in FILES {
        let path = folder.map(|folder| folder.join(name));
        let Some(path) = path.filter(|path| path.is_file()) else {
            continue;
        };
        let mut text = String::new();
        let read =
            File::open(&path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
        read.map_err(|error| Flaw::broken(name, error, "a readable file"))?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| Flaw::broken(name, error, "settings in JSON"))?;
        if let Some(value) = value.pointer(part) {
            return Ok(Some(value.clone()));
        }
    }
    Ok(None)
}
