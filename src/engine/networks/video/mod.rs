//! Networks that make videos: the text encoder umT5, the transformer of Wan, and its autoencoder, which is causal in time.
//!
//! Videos lie channels-last, `[batch, frames, height, width, channels]`; a single frame is a map as in
//! [`image`](super::image). Forward passes stop after each block, as there.

mod autoencoder;
mod synthetic;
mod umt5;
mod wan;

pub use self::{
    autoencoder::{FrameStream, VideoAutoencoder, VideoAutoencoderSpec},
    synthetic::VideoBench,
    umt5::{UmT5, UmT5Spec},
    wan::{FrameTimes, WanGrid, WanRope, WanSpec, WanTransformer},
};

use crate::networks::weights::Flaw;

/// Settings of a network are small: larger ones would overflow before a tensor is missed.
const MOST_SETTING: usize = 1 << 20;

/// A number of a configuration that sizes are computed from.
fn sized(name: &str, value: usize) -> Result<usize, Flaw> {
    match (1..=MOST_SETTING).contains(&value) {
        true => Ok(value),
        false => Err(Flaw::broken(name, value, format!("1 to {MOST_SETTING}"))),
    }
}

#[cfg(test)]
mod golden;
