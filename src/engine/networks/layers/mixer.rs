//! The token mixer of a layer: attention, or a recurrence with a state.

use candle_core::{Result, Tensor};

use super::{
    Attention, GatedConvolution, GatedDeltaNet, LatentAttention, Linear, Positions, StateSpaceLayer,
};
use muster_kernels::{LayerPages, LayerStates};

#[derive(Debug)]
pub enum TokenMixer {
    Attention(Box<Attention>),
    Latent(Box<LatentAttention>),
    DeltaNet(Box<GatedDeltaNet>),
    Convolution(Box<GatedConvolution>),
    StateSpace(Box<StateSpaceLayer>),
}

/// A layer's KV cache or recurrent states.
#[derive(Debug)]
pub enum LayerCache {
    /// Keys and values of every token.
    Pages(LayerPages),
    /// A state for each sequence.
    States(LayerStates),
}

impl TokenMixer {
    /// The mixed rows of `x`, before the output projection.
    pub fn gather(
        &self,
        x: &Tensor,
        positions: &Positions<'_>,
        cache: &mut LayerCache,
    ) -> Result<Tensor> {
        match (self, cache) {
            (Self::Attention(attention), LayerCache::Pages(pages)) => {
                attention.gather(x, positions, pages)
            }
            (Self::Latent(latent), LayerCache::Pages(pages)) => latent.gather(x, positions, pages),
            (mixer, LayerCache::States(states)) => {
                let spans = positions.states;
                states.prepare(spans)?;
                match mixer {
                    Self::DeltaNet(net) => net.gather(x, spans, states),
                    Self::Convolution(convolution) => convolution.gather(x, spans, states),
                    Self::StateSpace(space) => space.gather(x, spans, states),
                    Self::Attention(_) | Self::Latent(_) => {
                        candle_core::bail!("attention has no states")
                    }
                }
            }
            (_, LayerCache::Pages(_)) => candle_core::bail!("a recurrent layer has no pages"),
        }
    }

    pub fn output(&self) -> &Linear {
        match self {
            Self::Attention(attention) => &attention.output,
            Self::DeltaNet(net) => &net.output,
            Self::Convolution(convolution) => &convolution.output,
            Self::StateSpace(space) => &space.output,
            Self::Latent(latent) => &latent.output,
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Self::Attention(attention) => attention.bytes(),
            Self::Latent(latent) => latent.bytes(),
            Self::DeltaNet(net) => net.bytes(),
            Self::Convolution(convolution) => convolution.bytes(),
            Self::StateSpace(space) => space.bytes(),
        }
    }
}

impl LayerCache {
    pub fn bytes(&self) -> usize {
        match self {
            Self::Pages(pages) => pages.bytes(),
            Self::States(states) => states.bytes(),
        }
    }
}
