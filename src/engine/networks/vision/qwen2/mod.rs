//! The eyes of Qwen2.5-VL: the image processor of Qwen3-VL, and a tower most of whose layers see windows.

mod spec;
mod tower;

pub use self::{spec::Qwen2Spec, tower::Qwen2Tower};
