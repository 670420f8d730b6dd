//! Image networks: the denoising U-Net of the Stable Diffusion family, and the autoencoder between images and latents.
//!
//! Maps are channels-last, `[batch, height, width, channels]`.

mod autoencoder;
mod block_bench;
mod synthetic;
mod unet;

pub use self::{
    autoencoder::{Autoencoder, AutoencoderSpec},
    block_bench::BlockBench,
    synthetic::{ImageBench, SyntheticImage},
    unet::{ADDED_SIZES, AddedConditioning, AddedSpec, Conditioning, Unet, UnetLevel, UnetSpec},
};

#[cfg(test)]
mod golden;
