//! The eyes of Qwen3-VL and Qwen3.5: an image processor and a vision tower.

mod processor;
mod spec;
mod tower;

pub use self::{
    processor::{PatchShape, QwenProcessor},
    spec::QwenSpec,
    tower::{QwenTower, axial_rope},
};
