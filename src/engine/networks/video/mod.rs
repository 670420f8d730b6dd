//! Video networks: the transformer of Wan, and its autoencoder, which is causal in time.
//!
//! Videos are channels-last, `[batch, frames, height, width, channels]`; a single frame is a map as in
//! [`image`](super::image). Forward passes yield after each block, too.

mod autoencoder;
mod original;
mod shapes;
mod synthetic;
mod wan;

pub use self::{
    autoencoder::{FrameStream, VideoAutoencoder, VideoAutoencoderSpec},
    original::TransformerNames,
    shapes::{FactsOf, WanFacts, autoencoder_config, text_config, transformer_config},
    synthetic::{SyntheticVideo, VideoBench},
    wan::{FrameTimes, WanGrid, WanRope, WanSpec, WanTransformer},
};

use crate::networks::weights::sized;

#[cfg(test)]
pub use self::original::AutoencoderNames;

#[cfg(test)]
mod golden;
