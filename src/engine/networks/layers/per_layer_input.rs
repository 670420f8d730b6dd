//! Per-layer embeddings (Gemma 3n and 4): besides the hidden state, each layer has a separate input, the sum of a
//! second embedding table and a projection of the first embeddings.

use candle_core::{Device, Result, Tensor};

use super::{Embedding, GateActivation, Linear, RmsNorm};

/// Embeddings for the per-layer inputs.
pub struct PerLayerEmbeddings {
    /// Per token the inputs of all layers, concatenated.
    pub table: Embedding,
    /// Projects the first embeddings to the same width.
    pub projection: Linear,
    /// Over the input of each layer.
    pub norm: RmsNorm,
    /// Numbers of an input.
    pub size: usize,
    /// Tokens of the table; the others take its first row.
    pub vocab_size: usize,
}

/// A layer's transformation of its input.
#[derive(Debug)]
pub struct PerLayerInput {
    /// Projects the hidden state to the width of the input, which it gates.
    pub gate: Linear,
    pub projection: Linear,
    pub norm: RmsNorm,
    pub activation: GateActivation,
}

impl PerLayerEmbeddings {
    /// The inputs `[tokens, layers, size]` of tokens and their embeddings `[tokens, hidden]`.
    pub fn inputs(
        &self,
        tokens: &[u32],
        uploaded: &Tensor,
        embedded: &Tensor,
        device: &Device,
    ) -> Result<Tensor> {
        let (rows, hidden) = embedded.dims2()?;
        let in_table = tokens
            .iter()
            .map(|&token| Some(token).filter(|&token| (token as usize) < self.vocab_size));
        let in_table: Vec<u32> = in_table.map(Option::unwrap_or_default).collect();
        let of_tokens = match in_table == tokens {
            true => self.table.gather_uploaded(tokens, uploaded)?,
            false => self.table.gather(&in_table, device)?,
        };
        let of_tokens = (of_tokens * (self.size as f64).sqrt())?;
        let projected = (self.projection.forward(embedded)? * (hidden as f64).powf(-0.5))?;
        let shape = (rows, (), self.size);
        let normed = self.norm.forward(&projected.reshape(shape)?)?;
        (normed + of_tokens.reshape(shape)?)? * std::f64::consts::FRAC_1_SQRT_2
    }

    pub fn bytes(&self) -> u64 {
        self.projection.bytes() + self.table.device_bytes()
    }
}

impl PerLayerInput {
    /// Applies the inputs `[rows, size]` to the rows of `x`.
    pub fn forward(&self, x: &Tensor, input: &Tensor) -> Result<Tensor> {
        let gated = self.activation.gated(&self.gate.forward(x)?, input)?;
        self.norm.forward(&self.projection.forward(&gated)?)
    }

    pub fn bytes(&self) -> u64 {
        self.gate.bytes() + self.projection.bytes()
    }
}
