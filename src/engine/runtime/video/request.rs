//! A request for a video. `None` leaves a setting to the model.

use crate::runtime::maker::{MediaRequest, Pixels};

/// A video without sound.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VideoRequest {
    pub prompt: String,
    pub negative_prompt: Option<String>,
    pub width: Option<u32>,
    pub height: Option<u32>,
    pub frames: Option<u32>,
    /// Frames per second.
    pub rate: Option<f32>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
    pub seed: Option<u64>,
    /// Which video of a series with one seed.
    pub index: u32,
    /// The first frame.
    pub source: Option<Pixels>,
    /// Report a preview with each step.
    pub wants_previews: bool,
}

impl MediaRequest for VideoRequest {
    const MAKES: &'static str = "a video";
}
