//! Benchmarks of ACE-Step with random weights, and the number of operations of a pass.

use candle_core::{DType, Device, Result, Tensor};

use super::ace_step::SongLayerSpec;
use super::oobleck::OobleckLevelSpec;
use super::{AceStep, AceStepSpec, Oobleck, OobleckSpec, SongContext, TILE_FRAMES};
use crate::networks::blocks::{ComponentSource, Layout, run};
use crate::networks::weights::{Flaw, InventedTensors};

/// States of lyrics, timbre and text that the transformer sees.
const CONDITIONS: usize = 300;

/// The shape of a known model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntheticMusic {
    AceStep,
    /// For tests.
    Tiny,
}

/// Two layers of the transformer, one with a window and one without, with its first and last layers, and the decoder.
pub struct MusicBench {
    transformer: AceStep,
    context: SongContext,
    decoder: Oobleck,
    device: Device,
}

impl SyntheticMusic {
    pub const ALL: [Self; 2] = [Self::AceStep, Self::Tiny];

    pub fn name(self) -> &'static str {
        match self {
            Self::AceStep => "ace-step-1.5",
            Self::Tiny => "music-tiny",
        }
    }

    fn specs(self) -> (AceStepSpec, OobleckSpec) {
        let (transformer, decoder) = (AceStepSpec::two_layers(), OobleckSpec::ace_step());
        match self {
            Self::AceStep => (transformer, decoder),
            Self::Tiny => {
                let layer = SongLayerSpec {
                    width: 64,
                    feed: 128,
                    heads: 4,
                    kv_heads: 2,
                    head_size: 16,
                    ..transformer.layer
                };
                let narrow = |level: &OobleckLevelSpec| OobleckLevelSpec {
                    inputs: level.inputs / 32,
                    outputs: level.outputs / 32,
                    ..*level
                };
                (
                    AceStepSpec {
                        layer,
                        conditions: 64,
                        ..transformer
                    },
                    OobleckSpec {
                        width: decoder.width / 32,
                        levels: decoder.levels.iter().map(narrow).collect(),
                        ..decoder
                    },
                )
            }
        }
    }
}

impl AceStepSpec {
    /// The sizes of ACE-Step 1.5, with two of its layers.
    fn two_layers() -> Self {
        Self {
            layer: SongLayerSpec {
                width: 2048,
                feed: 6144,
                heads: 16,
                kv_heads: 8,
                head_size: 128,
                eps: 1e-6,
                theta: 1e6,
                window: 128,
            },
            layers: vec![true, false],
            latent: 64,
            patch: 2,
            conditions: 2048,
            is_turbo: true,
        }
    }

    /// Multiply-adds of all layers over this many positions, excluding keys and values of the conditions.
    pub fn layer_operations(&self, places: u64) -> u64 {
        let spec = &self.layer;
        let (width, feed, size) = (spec.width as u64, spec.feed as u64, spec.head_size as u64);
        let (heads, keys) = (spec.heads as u64 * size, spec.kv_heads as u64 * size);
        let layer = |has_window: &bool| {
            let seen = match has_window {
                true => places.min(2 * spec.window as u64 + 1),
                false => places,
            };
            let own = 2 * width * (heads + keys) + 2 * seen * heads;
            let cross = 2 * width * heads + 2 * CONDITIONS as u64 * heads;
            places * (own + cross + 3 * width * feed)
        };
        2 * self.layers.iter().map(layer).sum::<u64>()
    }
}

impl OobleckSpec {
    fn ace_step() -> Self {
        let level = |stride, inputs, outputs| OobleckLevelSpec {
            stride,
            inputs,
            outputs,
        };
        Self {
            latent_channels: 64,
            channels: 2,
            rate: 48_000,
            width: 128,
            levels: vec![
                level(10, 2048, 1024),
                level(6, 1024, 512),
                level(4, 512, 256),
                level(4, 256, 128),
                level(2, 128, 128),
            ],
        }
    }
}

impl MusicBench {
    pub fn new(shape: SyntheticMusic, device: &Device) -> std::result::Result<Self, Flaw> {
        let (transformer, decoder) = shape.specs();
        let source = ComponentSource {
            tensors: &InventedTensors::on(device),
            layout: Layout::Folder,
            device,
            quantize: None,
        };
        let conditions = transformer.conditions;
        let transformer = AceStep::load(transformer, source)?;
        let conditions = Tensor::ones((1, CONDITIONS, conditions), DType::F32, device)?;
        Ok(Self {
            context: run(transformer.context(&conditions))?,
            decoder: Oobleck::load_folded(decoder, source)?,
            device: device.clone(),
            transformer,
        })
    }

    /// Latent frames of this many seconds.
    fn frames(&self, seconds: u32) -> usize {
        let spec = self.decoder.spec();
        (seconds as usize * spec.rate as usize).div_ceil(spec.hop())
    }

    /// The two layers over all places of a piece.
    pub fn layers(&self, seconds: u32) -> Result<()> {
        let frames = self.frames(seconds);
        let latent = self.transformer.spec().latent;
        let (x, source) = (self.ones(frames, latent)?, self.ones(frames, 2 * latent)?);
        run(self.transformer.forward(&x, &source, &[0.5], &self.context))?;
        self.device.synchronize()
    }

    pub fn layer_operations(&self, seconds: u32) -> u64 {
        let spec = self.transformer.spec();
        spec.layer_operations(spec.places(self.frames(seconds)) as u64)
    }

    /// The sound of a piece, tile after tile.
    pub fn decode(&self, seconds: u32) -> Result<()> {
        let frames = self.frames(seconds);
        let latents = self.ones(frames, self.decoder.spec().latent_channels)?;
        for tile in self.decoder.tiles(frames, TILE_FRAMES) {
            run(self.decoder.decode(&latents, tile))?;
        }
        self.device.synchronize()
    }

    /// Multiply-adds of decoding, without the overlap of tiles.
    pub fn decode_operations(&self, seconds: u32) -> u64 {
        let frames = self.frames(seconds) as u64;
        self.decoder.spec().decode_operations(frames)
    }

    fn ones(&self, frames: usize, numbers: usize) -> Result<Tensor> {
        Tensor::ones((1, frames, numbers), DType::F32, &self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counted by torch over passes of diffusers' classes (FlopCounterMode): 30 s are 750 frames.
    #[test]
    fn operations_are_those_that_others_count() {
        #[track_caller]
        fn check(found: u64, wanted: f64) {
            let share = found as f64 / wanted;
            assert!((share - 1.0).abs() < 0.05, "{share}");
        }
        check(OobleckSpec::ace_step().decode_operations(750), DECODED);
        check(AceStepSpec::two_layers().layer_operations(375), LAYERS);
    }

    const DECODED: f64 = 3.6556e12;
    /// Without the embedding of 300 conditions and their keys and values, which we compute once for all steps.
    const LAYERS: f64 = 100.68e9 - 7.55e9;
}
