//! Benchmarks of image networks with random weights, and the number of operations of a pass.

use candle_core::{Device, Tensor};

use super::unet::ADDED_SIZES;
use super::{
    AddedConditioning, Autoencoder, AutoencoderSpec, Conditioning, Unet, UnetLevel, UnetSpec,
};
use crate::networks::adapter::Pass;
use crate::networks::blocks::{ComponentSource, Layout, run};
use crate::networks::weights::{Flaw, InventedTensors};
use muster_kernels::Edges;

/// Tokens of a prompt's window.
pub const PROMPT_TOKENS: usize = 77;
/// A prompt and the one to stay away from.
pub const GUIDED: usize = 2;

/// A shape that people measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticImage {
    StableDiffusion1,
    StableDiffusionXl,
    /// For tests.
    Tiny,
}

/// The two networks that a drawing spends its time in.
pub struct ImageBench {
    unet: Unet,
    autoencoder: Autoencoder,
    device: Device,
}

impl SyntheticImage {
    pub const ALL: [Self; 3] = [Self::StableDiffusion1, Self::StableDiffusionXl, Self::Tiny];

    pub fn name(self) -> &'static str {
        match self {
            Self::StableDiffusion1 => "sd15",
            Self::StableDiffusionXl => "sdxl",
            Self::Tiny => "tiny",
        }
    }

    /// Width and height that the model is made for.
    pub fn side(self) -> u32 {
        match self {
            Self::StableDiffusion1 => 512,
            Self::StableDiffusionXl => 1024,
            Self::Tiny => 64,
        }
    }

    pub fn specs(self) -> (UnetSpec, AutoencoderSpec) {
        match self {
            Self::StableDiffusion1 => (
                UnetSpec::stable_diffusion_1(),
                AutoencoderSpec::stable_diffusion(),
            ),
            Self::StableDiffusionXl => (
                UnetSpec::stable_diffusion_xl(),
                AutoencoderSpec::stable_diffusion_xl(),
            ),
            Self::Tiny => {
                let level = |channels| UnetLevel {
                    channels,
                    depth: 1,
                    heads: 4,
                };
                let unet = UnetSpec {
                    context: 32,
                    levels: vec![level(32), level(64)],
                    blocks: 1,
                    groups: 8,
                    ..UnetSpec::stable_diffusion_1()
                };
                let autoencoder = AutoencoderSpec {
                    channels: vec![16, 32],
                    blocks: 1,
                    groups: 8,
                    ..AutoencoderSpec::stable_diffusion()
                };
                (unet, autoencoder)
            }
        }
    }
}

impl ImageBench {
    pub fn new(shape: SyntheticImage, device: &Device) -> Result<Self, Flaw> {
        let (unet, autoencoder) = shape.specs();
        let source = ComponentSource {
            tensors: &InventedTensors::on(device),
            layout: Layout::Folder,
            device,
            quantize: None,
        };
        Ok(Self {
            unet: Unet::load(unet, source)?,
            autoencoder: Autoencoder::load(autoencoder, source)?,
            device: device.clone(),
        })
    }

    /// A denoising step with guidance.
    pub fn step(&self, size: [u32; 2]) -> candle_core::Result<()> {
        let [width, height] = self.latent_size(size);
        let spec = self.unet.spec();
        let x = self.ones(&[GUIDED, height, width, spec.inputs])?;
        let added = match spec.added {
            Some(added) => Some(AddedConditioning {
                pooled: self.ones(&[GUIDED, added.pooled])?,
                sizes: [1.0; ADDED_SIZES],
            }),
            None => None,
        };
        let conditioning = Conditioning {
            context: self.ones(&[GUIDED, PROMPT_TOKENS, spec.context])?,
            added,
        };
        let pass = Pass::plain(Edges::Zeros);
        let forward = self.unet.forward(&x, &[500.0; GUIDED], &conditioning, pass);
        run(forward)?;
        self.device.synchronize()
    }

    /// The image of a latent.
    pub fn decode(&self, size: [u32; 2]) -> candle_core::Result<()> {
        let [width, height] = self.latent_size(size);
        let channels = self.autoencoder.spec().latent_channels;
        let latent = self.ones(&[1, height, width, channels])?;
        run(self.autoencoder.decode(&latent, Edges::Zeros))?;
        self.device.synchronize()
    }

    /// Multiplications and additions of a step.
    pub fn step_operations(&self, size: [u32; 2]) -> u64 {
        let [width, height] = self.latent_size(size);
        let spec = self.unet.spec();
        GUIDED as u64 * spec.operations((width * height) as u64, PROMPT_TOKENS as u64)
    }

    pub fn decode_operations(&self, size: [u32; 2]) -> u64 {
        let [width, height] = self.latent_size(size);
        let spec = self.autoencoder.spec();
        spec.decode_operations((width * height) as u64)
    }

    fn latent_size(&self, size: [u32; 2]) -> [usize; 2] {
        let factor = self.autoencoder.spec().factor();
        size.map(|side| side as usize / factor)
    }

    fn ones(&self, shape: &[usize]) -> candle_core::Result<Tensor> {
        Tensor::ones(shape, candle_core::DType::F32, &self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AutoencoderSpec, UnetSpec};

    /// Counted by torch over the reference's passes.
    #[test]
    fn operations_are_those_that_others_count() {
        #[track_caller]
        fn check(found: u64, wanted: f64) {
            let share = found as f64 / (wanted * 1e12);
            assert!((share - 1.0).abs() < 0.03, "{share}");
        }
        let first = UnetSpec::stable_diffusion_1();
        check(first.operations(64 * 64, 77), 0.803);
        check(first.operations(96 * 96, 77), 2.15);
        let xl = UnetSpec::stable_diffusion_xl();
        check(xl.operations(64 * 64, 77), 1.59);
        check(xl.operations(128 * 128, 77), 6.76);
        let decoder = AutoencoderSpec::stable_diffusion();
        check(decoder.decode_operations(64 * 64), 2.5);
        check(decoder.decode_operations(128 * 128), 10.5);
    }
}
