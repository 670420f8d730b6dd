//! The eyes of Qwen3-VL: its image processor and its vision tower.

mod processor;
mod spec;
mod tower;

pub use self::{
    processor::{ImageGrid, ImageProcessor, ImageSizeError, ProcessedImage},
    spec::VisionSpec,
    tower::{ImageFeatures, TowerPass, VisionTower, is_of_tower},
};
