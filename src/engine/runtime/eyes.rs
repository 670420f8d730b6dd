//! The vision tower in the files of a language model.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use candle_core::Device;
use serde_json::Value;

use super::images::ImageInput;
use crate::networks::blocks::{ComponentSource, Layout};
use crate::networks::text::DecoderSpec;
use crate::networks::vision::{ImageProcessor, VisionSpec, VisionTower};
use crate::networks::weights::{Checkpoint, CheckpointError, Description, Flaw};

/// Where image processors describe themselves, and the part of newer files that is about images.
const FILES: [(&str, &str); 2] = [
    ("preprocessor_config.json", ""),
    ("processor_config.json", "/image_processor"),
];
/// Such a file has some hundred bytes.
const MOST_BYTES: u64 = 1 << 20;

/// A tower that is described and not loaded yet.
pub struct Eyes {
    spec: VisionSpec,
    processor: ImageProcessor,
    token: u32,
}

impl Eyes {
    /// None where the files describe no tower.
    pub fn open(
        checkpoint: &Checkpoint,
        spec: &DecoderSpec,
    ) -> Result<Option<Self>, CheckpointError> {
        let Description::Config(config) = checkpoint.description() else {
            return Ok(None);
        };
        if spec.rope_axes.is_none() {
            return Ok(None);
        }
        let path = checkpoint.path();
        let eyes = Self::read(config, path, spec);
        eyes.map(Some).map_err(|flaw| flaw.in_file(path))
    }

    fn read(config: &Value, path: &Path, decoder: &DecoderSpec) -> Result<Self, Flaw> {
        let spec = VisionSpec::read(&config["vision_config"])?;
        if spec.out_size != decoder.hidden_size {
            let wanted = format!("the decoder's hidden size {}", decoder.hidden_size);
            return Err(Flaw::broken("out_hidden_size", spec.out_size, wanted));
        }
        if spec.deepstack.len() >= decoder.layers {
            let found = format!("{:?}", spec.deepstack);
            let wanted = format!("fewer than the decoder's {} layers", decoder.layers);
            return Err(Flaw::broken("deepstack_visual_indexes", found, wanted));
        }
        let token = config["image_token_id"].as_u64();
        let token = token.and_then(|token| u32::try_from(token).ok());
        let Some(token) = token.filter(|&token| (token as usize) < decoder.vocab_size) else {
            let found = &config["image_token_id"];
            let wanted = "a token of the vocabulary";
            return Err(Flaw::broken("image_token_id", found, wanted));
        };
        let file = processor_file(path)?;
        let processor = ImageProcessor::read(file.as_ref(), &spec)?;
        Ok(Self {
            spec,
            processor,
            token,
        })
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
        let tower = VisionTower::load(self.spec.clone(), self.processor.clone(), source);
        tower.map_err(|flaw| flaw.in_file(checkpoint.path()))
    }

    pub fn into_input(self) -> ImageInput {
        ImageInput::new(self.processor, self.token)
    }
}

/// What the model's folder says of its image processor.
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
