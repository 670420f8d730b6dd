//! Benchmarks of Wan 2.1 with random weights, and the number of operations of a pass.

use candle_core::{DType, Device, Result, Tensor};

use super::{FrameTimes, VideoAutoencoder, VideoAutoencoderSpec, WanSpec, WanTransformer};
use crate::networks::blocks::{ComponentSource, Layout, run};
use crate::networks::weights::{Flaw, InventedTensors};

/// Rows of text that the transformer sees.
const TEXT_ROWS: usize = 512;

/// The shape of a known model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticVideo {
    Wan21,
    /// For tests.
    Tiny,
}

impl SyntheticVideo {
    pub const ALL: [Self; 2] = [Self::Wan21, Self::Tiny];

    pub fn name(self) -> &'static str {
        match self {
            Self::Wan21 => "wan-2.1-t2v-1.3b",
            Self::Tiny => "tiny",
        }
    }

    fn specs(self) -> (WanSpec, VideoAutoencoderSpec) {
        let (block, autoencoder) = (WanSpec::one_block(), VideoAutoencoderSpec::wan_2_1());
        match self {
            Self::Wan21 => (block, autoencoder),
            Self::Tiny => (
                WanSpec {
                    heads: 2,
                    head_size: 32,
                    text_width: 64,
                    feed: 128,
                    ..block
                },
                VideoAutoencoderSpec {
                    encoder_width: 8,
                    decoder_width: 8,
                    ..autoencoder
                },
            ),
        }
    }
}

/// A single block of the transformer, with its first and last layers, and the autoencoder.
pub struct VideoBench {
    transformer: WanTransformer,
    autoencoder: VideoAutoencoder,
    device: Device,
}

impl WanSpec {
    /// The block of the smallest Wan 2.1.
    fn one_block() -> Self {
        Self {
            patch: [1, 2, 2],
            heads: 12,
            head_size: 128,
            inputs: 16,
            outputs: 16,
            text_width: 4096,
            time_width: 256,
            feed: 8960,
            layers: 1,
            has_text_norm: true,
            eps: 1e-6,
            positions: 1024,
        }
    }

    /// Multiply-adds of a block with this many patches.
    pub fn block_operations(&self, patches: u64) -> u64 {
        let (width, feed, rows) = (self.width() as u64, self.feed as u64, TEXT_ROWS as u64);
        let own = 4 * patches * width * width + 2 * patches * patches * width;
        let cross = 2 * (patches + rows) * width * width + 2 * patches * rows * width;
        2 * (own + cross + 2 * patches * width * feed)
    }
}

impl VideoAutoencoderSpec {
    fn wan_2_1() -> Self {
        Self {
            encoder_width: 96,
            decoder_width: 96,
            latent_channels: 16,
            multiples: vec![1, 2, 4, 4],
            blocks: 2,
            halves_time: vec![false, true, true],
            is_residual: false,
            patch: 1,
            mean: vec![0.0; 16],
            deviation: vec![1.0; 16],
        }
    }

    /// Multiplications and additions of decoding latents of these sizes (frames, height, width), for networks without
    /// paths around their levels.
    pub fn decode_operations(&self, [frames, height, width]: [u64; 3]) -> u64 {
        let causal = |places: u64, inputs: u64, outputs: u64| 27 * places * inputs * outputs;
        let block = |places: u64, inputs: u64, outputs: u64| {
            let shortcut = if inputs == outputs {
                0
            } else {
                places * inputs * outputs
            };
            causal(places, inputs, outputs) + causal(places, outputs, outputs) + shortcut
        };
        let widths: Vec<u64> = self
            .multiples
            .iter()
            .rev()
            .map(|many| (many * self.decoder_width) as u64)
            .collect();
        let (mut frames, mut places) = (frames, height * width);
        let first = widths.first().copied().unwrap_or(0);
        let n = frames * places;
        let mut sum = causal(n, self.latent_channels as u64, first) + 2 * block(n, first, first);
        sum += 4 * n * first * first + 2 * n * places * first;
        let mut channels = first;
        for (level, width) in widths.iter().copied().enumerate() {
            let n = frames * places;
            sum += block(n, channels, width) + self.blocks as u64 * block(n, width, width);
            channels = width;
            if level + 1 == widths.len() {
                break;
            }
            if self.halves_time.iter().rev().nth(level) == Some(&true) {
                sum += 3 * frames.saturating_sub(1) * places * width * 2 * width;
                frames = 2 * frames - 1;
            }
            places *= 4;
            sum += 9 * frames * places * width * width / 2;
            channels = width / 2;
        }
        2 * (sum + causal(frames * places, channels, 3))
    }
}

impl VideoBench {
    pub fn new(shape: SyntheticVideo, device: &Device) -> std::result::Result<Self, Flaw> {
        let (block, autoencoder) = shape.specs();
        let source = ComponentSource {
            tensors: &InventedTensors::on(device),
            layout: Layout::Folder,
            device,
            quantize: None,
        };
        Ok(Self {
            transformer: WanTransformer::load(block, source)?,
            autoencoder: VideoAutoencoder::load(autoencoder, source)?,
            device: device.clone(),
        })
    }

    /// Frames, height and width of the latents of a video.
    fn sizes(&self, [frames, height, width]: [u32; 3]) -> [usize; 3] {
        let spec = self.autoencoder.spec();
        let later = frames.saturating_sub(1) as usize / spec.time_factor();
        let side = |side: u32| side as usize / spec.factor();
        [1 + later, side(height), side(width)]
    }

    /// Runs a block over all patches of a video.
    pub fn block(&self, video: [u32; 3]) -> Result<()> {
        let sizes @ [frames, height, width] = self.sizes(video);
        let spec = self.transformer.spec();
        let rope = self.transformer.rope(sizes, &self.device)?;
        let x = self.ones(&[1, frames, height, width, spec.inputs])?;
        let context = self.ones(&[1, TEXT_ROWS, spec.text_width])?;
        let times = [FrameTimes {
            all: 500.0,
            is_first_clean: false,
        }];
        run(self.transformer.forward(&x, &times, &context, &rope))?;
        self.device.synchronize()
    }

    pub fn block_operations(&self, video: [u32; 3]) -> u64 {
        let [frames, height, width] = self.sizes(video);
        let patches = frames * (height / 2) * (width / 2);
        self.transformer.spec().block_operations(patches as u64)
    }

    /// The frames of a latent, one after the other.
    pub fn decode(&self, video: [u32; 3]) -> Result<()> {
        let [frames, height, width] = self.sizes(video);
        let latent = self.ones(&[1, height, width, self.autoencoder.spec().latent_channels])?;
        let mut stream = self.autoencoder.decoding();
        for _ in 0..frames {
            stream.push(latent.clone());
            while run(stream.next())?.is_some() {}
        }
        self.device.synchronize()
    }

    pub fn decode_operations(&self, video: [u32; 3]) -> u64 {
        let sizes = self.sizes(video).map(|size| size as u64);
        self.autoencoder.spec().decode_operations(sizes)
    }

    fn ones(&self, shape: &[usize]) -> Result<Tensor> {
        Tensor::ones(shape, DType::F32, &self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::{VideoAutoencoderSpec, WanSpec};

    /// Counted by torch over the reference's passes.
    #[test]
    fn operations_are_those_that_others_count() {
        #[track_caller]
        fn check(found: u64, wanted: f64) {
            let share = found as f64 / (wanted * 1e12);
            assert!((share - 1.0).abs() < 0.05, "{share}");
        }
        let patches = 21 * 30 * 52;
        check(30 * WanSpec::one_block().block_operations(patches), 283.0);
        let decoder = VideoAutoencoderSpec::wan_2_1();
        check(decoder.decode_operations([21, 60, 104]), 275.0);
    }
}
