//! SigLIP, the tower of Gemma 3 and of SmolVLM: squares of patches with learned positions.

mod encoder;
mod gemma3;
mod smolvlm;
mod spec;

pub use self::{
    gemma3::{GemmaProcessor, GemmaSpec, GemmaTower},
    smolvlm::{SmolProcessor, SmolSpec, SmolTower},
};
