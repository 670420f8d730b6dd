//! A request for an image. `None` leaves a setting to the model.

use std::path::PathBuf;

use super::{DiffusionSampler, Schedule};
use crate::runtime::maker::{MediaRequest, Pixels};

/// A request for one image.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageRequest {
    pub prompt: String,
    pub negative_prompt: Option<String>,
    pub width: Option<u32>,
    pub height: Option<u32>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
    pub sampler: Option<DiffusionSampler>,
    pub schedule: Option<Schedule>,
    pub seed: Option<u64>,
    /// Index of the image in a batch with one seed; part of every random draw.
    pub index: u32,
    /// Layers of the text encoder from the end on; 1 is the last.
    pub clip_skip: Option<u32>,
    /// How much of `source` is replaced, 0 to 1.
    pub strength: Option<f64>,
    /// The image to start from.
    pub source: Option<Pixels>,
    /// White where `source` is repainted.
    pub mask: Option<Pixels>,
    pub loras: Vec<LoraUse>,
    /// Words of the prompts, `embedding:NAME`, that are replaced by a file's vectors.
    pub inversions: Vec<Inversion>,
    /// Draw an image that fits to itself at opposite edges.
    pub tiles: bool,
    /// Second pass: generates at the model's default size first, then repaints the upscaled image with this strength, 0
    /// to 1.
    pub hires: Option<f64>,
    /// Report a preview with each step.
    pub wants_previews: bool,
}

/// The file of a LoRA, and how much it counts.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraUse {
    pub file: PathBuf,
    /// Strength for the U-Net.
    pub model: f32,
    /// Strength for the text encoders.
    pub clip: f32,
}

/// A textual inversion: a name and the file of its vectors.
#[derive(Debug, Clone, PartialEq)]
pub struct Inversion {
    pub name: String,
    pub file: PathBuf,
}

impl MediaRequest for ImageRequest {
    const MAKES: &'static str = "an image";
}
