//! The encoder: two convolutions over time, then layers with bidirectional attention.

use candle_core::{Result, Tensor, bail};

use super::{NORM_EPS, SelfAttention, WhisperSpec};
use crate::networks::blocks::{AffineNorm, ComponentReader, Projection, block_end};
use crate::networks::weights::Flaw;
use muster_kernels::{Axis, Convolution, gelu_erf};

pub(super) struct WhisperEncoder {
    frames: usize,
    first: Convolution,
    second: Convolution,
    positions: Tensor,
    layers: Vec<WhisperEncoderLayer>,
    norm: AffineNorm,
}

struct WhisperEncoderLayer {
    attention: SelfAttention,
    feed_norm: AffineNorm,
    up: Projection,
    down: Projection,
}

impl WhisperEncoder {
    pub fn load(
        spec: &WhisperSpec,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (width, feed) = (spec.width, spec.encoder.feed);
        let axis = |stride| Axis {
            stride,
            padding: [1, 1],
            ..Axis::default()
        };
        let mut layers = Vec::with_capacity(spec.encoder.layers);
        for index in 0..spec.encoder.layers {
            let stem = format!("encoder.layers.{index}");
            layers.push(WhisperEncoderLayer {
                attention: SelfAttention::load(reader, &stem, (width, spec.encoder.heads))?,
                feed_norm: reader.norm(&format!("{stem}.final_layer_norm"), width, NORM_EPS)?,
                up: reader.projection(&format!("{stem}.fc1"), (feed, width), true)?,
                down: reader.projection(&format!("{stem}.fc2"), (width, feed), true)?,
            });
        }
        Ok(Self {
            frames: spec.window_frames(),
            first: reader.convolution_along("encoder.conv1", [width, spec.bands, 3], axis(1))?,
            second: reader.convolution_along("encoder.conv2", [width, width, 3], axis(2))?,
            positions: reader.table("encoder.embed_positions.weight", (spec.positions, width))?,
            norm: reader.norm("encoder.layer_norm", width, NORM_EPS)?,
            layers,
        })
    }

    pub async fn forward(&self, features: &Tensor) -> Result<Tensor> {
        let (_, frames, _) = features.dims3()?;
        if frames != self.frames {
            bail!(
                "a window has {frames} frames, but the encoder takes {}",
                self.frames
            );
        }
        let x = gelu_erf(&self.first.apply(features)?)?;
        let x = gelu_erf(&self.second.apply(&x)?)?;
        let mut x = x.broadcast_add(&self.positions)?;
        block_end().await;
        for layer in &self.layers {
            x = layer.forward(&x)?;
            block_end().await;
        }
        self.norm.of_rows(&x)
    }
}

impl WhisperEncoderLayer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.attention.forward(x)?;
        let up = self.up.apply(&self.feed_norm.of_rows(&x)?)?;
        &x + self.down.apply(&gelu_erf(&up)?)?
    }
}
