//! Benchmarks of Whisper with random weights, and the number of operations of a pass.

use candle_core::{DType, Device, Tensor};

use super::LONGEST_WINDOW;
use super::whisper::{SpokenText, StackSpec, Whisper, WhisperSpec};
use crate::networks::blocks::{ComponentSource, Layout, run};
use crate::networks::weights::{Flaw, InventedTensors};

/// A shape that people measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticHearing {
    Tiny,
    Base,
    Small,
    LargeTurbo,
}

/// A Whisper and the sound of one window.
pub struct HearingBench {
    network: Whisper,
    device: Device,
}

/// The positions of a window, which are half its frames.
const POSITIONS: usize = LONGEST_WINDOW / 2;

impl SyntheticHearing {
    pub const ALL: [Self; 4] = [Self::Tiny, Self::Base, Self::Small, Self::LargeTurbo];

    pub fn name(self) -> &'static str {
        match self {
            Self::Tiny => "whisper-tiny",
            Self::Base => "whisper-base",
            Self::Small => "whisper-small",
            Self::LargeTurbo => "whisper-large-v3-turbo",
        }
    }

    fn spec(self) -> WhisperSpec {
        let (width, heads, layers, bands, vocab_size) = match self {
            Self::Tiny => (384, 6, [4, 4], 80, 51_865),
            Self::Base => (512, 8, [6, 6], 80, 51_865),
            Self::Small => (768, 12, [12, 12], 80, 51_865),
            Self::LargeTurbo => (1280, 20, [32, 4], 128, 51_866),
        };
        let [encoder, decoder] = layers.map(|layers| StackSpec {
            layers,
            heads,
            feed: 4 * width,
        });
        WhisperSpec {
            vocab_size,
            width,
            bands,
            positions: POSITIONS,
            context: 448,
            encoder,
            decoder,
        }
    }
}

impl HearingBench {
    pub fn new(shape: SyntheticHearing, device: &Device) -> Result<Self, Flaw> {
        let source = ComponentSource {
            tensors: &InventedTensors::on(device),
            layout: Layout::Folder,
            device,
            quantize: None,
        };
        Ok(Self {
            network: Whisper::load(shape.spec(), source)?,
            device: device.clone(),
        })
    }

    /// Hears one window of 30 s.
    pub fn encode(&self) -> candle_core::Result<Tensor> {
        let bands = self.network.spec().bands;
        let shape = (1, LONGEST_WINDOW, bands);
        let features = Tensor::ones(shape, DType::F32, &self.device)?;
        let states = run(self.network.encode(&features))?;
        self.device.synchronize()?;
        Ok(states)
    }

    /// Decodes this many tokens for a window, one after the other.
    pub fn write(&self, states: &Tensor, tokens: u32) -> candle_core::Result<()> {
        let cross = self.network.cross(states)?;
        let mut cache = self.network.cache()?;
        for token in 0..tokens {
            let text = SpokenText {
                cache: &mut cache,
                cross: &cross,
                tokens: &[token],
            };
            let states = self.network.read(&mut [text])?;
            self.network.logits(&states)?;
        }
        self.device.synchronize()
    }

    /// Multiply-adds of encoding a window.
    pub fn encode_operations(&self) -> u64 {
        let spec = self.network.spec();
        let (n, width, bands) = (POSITIONS as u64, spec.width as u64, spec.bands as u64);
        let stem = 3 * 2 * n * bands * width + 3 * n * width * width;
        let feed = spec.encoder.feed as u64;
        let layer = 4 * n * width * width + 2 * n * n * width + 2 * n * width * feed;
        2 * (stem + spec.encoder.layers as u64 * layer)
    }

    /// Multiply-adds of decoding this many tokens.
    pub fn write_operations(&self, tokens: u32) -> u64 {
        let spec = self.network.spec();
        let (n, width) = (POSITIONS as u64, spec.width as u64);
        let (layers, feed) = (spec.decoder.layers as u64, spec.decoder.feed as u64);
        let tokens = u64::from(tokens);
        let layer = 6 * width * width + 2 * width * feed + (2 * n + tokens) * width;
        let each = layers * layer + width * spec.vocab_size as u64;
        2 * (layers * 2 * n * width * width + tokens * each)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::{HearingBench, SyntheticHearing};

    /// The encoder's operations, estimated from the sizes of the reference.
    #[test]
    fn operations_are_those_of_the_sizes() {
        let bench = HearingBench::new(SyntheticHearing::Tiny, &Device::Cpu).unwrap();
        let found = bench.encode_operations() as f64 / 1e9;
        assert!((25.0..40.0).contains(&found), "{found}");
        let (few, many) = (bench.write_operations(10), bench.write_operations(110));
        let each = (many - few) as f64 / 100e6;
        assert!((40.0..80.0).contains(&each), "{each}");
    }
}
