//! Encoders of images: CLIP's, and the heads that say of its embedding whether an image is safe.

mod clip;
mod prepare;
mod safety;

pub use self::{
    clip::{ClipVision, ClipVisionSpec},
    prepare::prepare,
    safety::{SafetyNetwork, SafetyScores, SafetySpec},
};

#[cfg(test)]
mod golden;
