//! Vision towers of language models, and their image processors.
//!
//! Only `family.rs` knows all families: each has a folder with its processor and its tower. Shared parts are in this
//! folder: `resize.rs`, the settings of processors, the blocks of towers, and the stages of an image.

mod block;
mod family;
mod image;
mod pixtral;
mod qwen2;
mod qwen3;
pub mod resize;
mod settings;
mod siglip;
mod tower;

pub use self::{
    family::{ImageProcessor, ImageTokens, Vision, VisionFamily, VisionSpec, is_of_tower},
    image::{ImageGrid, ImagePart, ImageSizeError, ProcessedImage, Tile},
    tower::{ImageFeatures, TowerPass, VisionTower},
};

#[cfg(test)]
pub mod golden;
