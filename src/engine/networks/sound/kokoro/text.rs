//! The text encoder: states of the phonemes for the decoder.

use candle_core::{Result, Tensor};

use super::KokoroSpec;
use super::blocks::{SLOPE, around, leaky};
use super::recurrence::Recurrence;
use crate::networks::blocks::{ComponentReader, block_end};
use crate::networks::weights::Flaw;
use muster_kernels::{Convolution, layer_norm};

pub(super) struct PhonemeEncoder {
    table: Tensor,
    layers: Vec<(Convolution, [Tensor; 2])>,
    recurrence: Recurrence,
}

const NORM_EPS: f64 = 1e-5;

impl PhonemeEncoder {
    pub fn load(
        spec: &KokoroSpec,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let hidden = spec.hidden;
        let mut layers = Vec::with_capacity(spec.layers);
        for layer in 0..spec.layers {
            let stem = format!("text_encoder.cnn.{layer}");
            let sizes = [hidden, hidden, spec.kernel];
            let convolution =
                reader.convolution_along(&format!("{stem}.0"), sizes, around(spec.kernel, 1))?;
            let mut vector = |name: &str| -> std::result::Result<Tensor, Flaw> {
                let tensor = reader.tensor(&format!("{stem}.1.{name}"), &[hidden])?;
                Ok(tensor.to_dtype(candle_core::DType::F32)?)
            };
            layers.push((convolution, [vector("gamma")?, vector("beta")?]));
        }
        Ok(Self {
            layers,
            table: reader.table("text_encoder.embedding.weight", (spec.tokens, hidden))?,
            recurrence: Recurrence::load(reader, "text_encoder.lstm", hidden, hidden)?,
        })
    }

    /// `[tokens, hidden]`.
    pub async fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let mut x = self.table.index_select(ids, 0)?.unsqueeze(0)?;
        for (convolution, [gamma, beta]) in &self.layers {
            x = convolution.apply(&x)?;
            x = leaky(&layer_norm(&x, Some(gamma), Some(beta), NORM_EPS)?, SLOPE)?;
            block_end().await;
        }
        let states = self.recurrence.forward(&x.squeeze(0)?)?;
        block_end().await;
        Ok(states)
    }
}
