//! The vision tower of Qwen2.5-VL: the image processor of Qwen3-VL, and mostly layers with windowed attention.

mod spec;
mod tower;

pub use self::{spec::Qwen2Spec, tower::Qwen2Tower};
