//! Vision towers of language models, and the image processors before them.
//!
//! `resize.rs` is the resize that all image processors share; each family has a folder with its processor and its tower.

mod qwen3;
pub mod resize;

pub use self::qwen3::{
    ImageFeatures, ImageGrid, ImageProcessor, ImageSizeError, ProcessedImage, TowerPass,
    VisionSpec, VisionTower, is_of_tower,
};

#[cfg(test)]
pub mod golden;
