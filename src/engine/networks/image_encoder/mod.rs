//! Image encoders: CLIP's, and the safety classification of its embeddings.

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
