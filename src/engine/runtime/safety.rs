//! A safety checker for finished images. Runs on the CPU of the calling thread, so that the devices of the models
//! continue with their jobs.

use std::path::Path;
use std::sync::Arc;

use candle_core::Device;

use super::LoadError;
use super::component::{Component, ComponentLoad};
use super::maker::{PixelFormat, Pixels};
use crate::networks::image_encoder::{SafetyNetwork, SafetySpec, prepare};

/// Clones share the network.
#[derive(Clone)]
pub struct SafetyChecker(Arc<SafetyNetwork>);

/// Why an image was not judged.
#[derive(Debug, thiserror::Error)]
pub enum SafetyError {
    #[error("an image of {width} by {height} pixels has {found} bytes")]
    WrongLength {
        width: u32,
        height: u32,
        found: usize,
    },
    #[error("the safety checker failed: {0}")]
    Network(#[from] candle_core::Error),
    /// A comparison with it would flag nothing.
    #[error("the safety checker computed a number that is not finite")]
    NotFinite,
}

impl SafetyChecker {
    /// A folder with `config.json` and `model.safetensors`, as diffusers publishes them.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let component = Component::open(path, SafetySpec::read)?;
        let load = ComponentLoad {
            device: &Device::Cpu,
            quantize: None,
        };
        Ok(Self(Arc::new(load.read(component, SafetyNetwork::load)?)))
    }

    /// Whether the image is unsafe by the rule of the published checker.
    pub fn flags(&self, pixels: &Pixels) -> Result<bool, SafetyError> {
        let [width, height] = [pixels.width, pixels.height].map(|side| side as usize);
        let channels = pixels.format.channels();
        let found = pixels.bytes.len();
        if found == 0 || found != width * height * channels {
            let (width, height) = (pixels.width, pixels.height);
            return Err(SafetyError::WrongLength {
                width,
                height,
                found,
            });
        }
        let colors = pixels.bytes.chunks_exact(channels);
        let bytes: Vec<u8> = match pixels.format {
            PixelFormat::Gray => pixels.bytes.iter().flat_map(|level| [*level; 3]).collect(),
            PixelFormat::Rgb => pixels.bytes.clone(),
            PixelFormat::Rgba => colors.flat_map(|color| color[..3].to_vec()).collect(),
        };
        let levels = prepare(&bytes, [width, height], self.0.spec());
        let scores = self.0.scores(&levels)?;
        let mut all = scores.special.iter().chain(&scores.concepts);
        match all.all(|score| score.is_finite()) {
            true => Ok(scores.is_flagged()),
            false => Err(SafetyError::NotFinite),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SafetyChecker, SafetyError};
    use crate::networks::golden::{GoldenTensors, fixtures};
    use crate::runtime::maker::{PixelFormat, Pixels};

    fn image(index: usize, format: PixelFormat) -> Pixels {
        let golden = GoldenTensors::open("golden/safety/golden.tensors");
        let image = golden.tensor(&format!("image-{index}"));
        let (height, width, _) = image.dims3().unwrap();
        let levels = image.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let colors = levels.chunks_exact(3);
        let bytes = colors.flat_map(|color| match format {
            PixelFormat::Rgba => vec![color[0], color[1], color[2], 0.0],
            _ => color.to_vec(),
        });
        Pixels {
            width: width as u32,
            height: height as u32,
            format,
            bytes: bytes.map(|level| level as u8).collect(),
        }
    }

    #[test]
    fn a_published_folder_judges_images_of_every_format() {
        let checker = SafetyChecker::open(&fixtures().join("golden/safety")).unwrap();
        for (index, wanted) in [true, true, true, false, true, false]
            .into_iter()
            .enumerate()
        {
            for format in [PixelFormat::Rgb, PixelFormat::Rgba] {
                let found = checker.flags(&image(index, format)).unwrap();
                assert_eq!(found, wanted, "image {index} as {format:?}");
            }
        }
        let gray = Pixels {
            width: 3,
            height: 2,
            format: PixelFormat::Gray,
            bytes: vec![9; 6],
        };
        checker.flags(&gray).unwrap();
        let short = Pixels {
            bytes: vec![9; 5],
            ..gray
        };
        let refused = checker.flags(&short).unwrap_err();
        assert!(matches!(refused, SafetyError::WrongLength { found: 5, .. }));
    }

    #[test]
    fn a_folder_of_something_else_is_refused_by_name() {
        let refused = |folder: &str| {
            let opened = SafetyChecker::open(&fixtures().join(folder));
            opened.err().unwrap().to_string()
        };
        let error = refused("golden/image/clip-large");
        assert!(error.contains("StableDiffusionSafetyChecker"), "{error}");
        assert!(refused("nothing").contains("nothing"));
    }
}
