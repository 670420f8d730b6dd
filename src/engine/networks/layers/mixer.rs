//! The part of a layer in which the tokens of a sequence look at each other.

use candle_core::{Result, Tensor};

use super::{Attention, LatentAttention, Linear, Positions};
use muster_kernels::LayerPages;

#[derive(Debug)]
pub enum TokenMixer {
    Attention(Attention),
    Latent(Box<LatentAttention>),
}

impl TokenMixer {
    /// What the rows of `x` gather from their sequences, before the output product.
    pub fn gather(
        &self,
        x: &Tensor,
        positions: &Positions<'_>,
        pages: &mut LayerPages,
    ) -> Result<Tensor> {
        match self {
            Self::Attention(attention) => attention.gather(x, positions, pages),
            Self::Latent(latent) => latent.gather(x, positions, pages),
        }
    }

    pub fn output(&self) -> &Linear {
        match self {
            Self::Attention(attention) => &attention.output,
            Self::Latent(latent) => &latent.output,
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Self::Attention(attention) => attention.bytes(),
            Self::Latent(latent) => latent.bytes(),
        }
    }
}
