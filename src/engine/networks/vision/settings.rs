//! The settings that image processors share: `preprocessor_config.json`, or the part of `processor_config.json` about images.

use serde::Deserialize;
use serde_json::Value;

use super::image::{CHANNELS, Levels};
use super::resize::Filter;
use crate::networks::weights::Flaw;

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct ProcessorJson {
    pub size: Option<SizeJson>,
    pub min_pixels: Option<usize>,
    pub max_pixels: Option<usize>,
    pub patch_size: Option<SideJson>,
    pub temporal_patch_size: Option<usize>,
    pub merge_size: Option<usize>,
    pub image_seq_length: Option<usize>,
    pub do_pan_and_scan: Option<bool>,
    pub max_image_size: Option<SizeJson>,
    pub do_image_splitting: Option<bool>,
    image_mean: Option<[f32; CHANNELS]>,
    image_std: Option<[f32; CHANNELS]>,
    resample: Option<u32>,
    do_resize: Option<bool>,
    do_rescale: Option<bool>,
    do_normalize: Option<bool>,
    rescale_factor: Option<f64>,
}

#[derive(Default, Clone, Copy, Deserialize)]
#[serde(default)]
pub struct SizeJson {
    pub shortest_edge: Option<usize>,
    pub longest_edge: Option<usize>,
    pub height: Option<usize>,
    pub width: Option<usize>,
}

/// A side, or two.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
pub enum SideJson {
    Both(usize),
    Each { height: usize, width: usize },
}

impl SideJson {
    /// `None` for a patch that is not square.
    pub fn side(self) -> Option<usize> {
        match self {
            Self::Both(side) => Some(side),
            Self::Each { height, width } => (height == width).then_some(height),
        }
    }
}

impl ProcessorJson {
    pub fn read(file: Option<&Value>) -> Result<Self, Flaw> {
        let Some(file) = file else {
            return Ok(Self::default());
        };
        serde_json::from_value(file.clone()).map_err(|error| {
            let wanted = "settings of an image processor";
            Flaw::broken("preprocessor_config.json", error, wanted)
        })
    }

    /// Refuses settings that would change the resized bytes or levels of a family.
    pub fn check(&self, filter: Filter) -> Result<(), Flaw> {
        let (number, name) = filter.of_pillow();
        if let Some(found) = self.resample.filter(|&found| found != number) {
            let known = format!("{number}, which is {name}");
            return Err(Flaw::unsupported("resample", found, known));
        }
        for (name, is_done) in [
            ("do_resize", self.do_resize),
            ("do_rescale", self.do_rescale),
            ("do_normalize", self.do_normalize),
        ] {
            if is_done == Some(false) {
                return Err(Flaw::unsupported(name, false, "true"));
            }
        }
        let factor = self.rescale_factor.unwrap_or(1.0 / 255.0);
        match (factor * 255.0 - 1.0).abs() < 1e-6 {
            true => Ok(()),
            false => Err(Flaw::unsupported("rescale_factor", factor, "1/255")),
        }
    }

    /// Refuses a patch of another size than the tower's.
    pub fn check_patch(&self, wanted: usize) -> Result<(), Flaw> {
        match self.patch_size.map(SideJson::side) {
            Some(Some(found)) => same("patch_size", Some(found), wanted),
            Some(None) => Err(Flaw::unsupported("patch_size", "a rectangle", "a square")),
            None => Ok(()),
        }
    }

    pub fn levels(&self, usual: &Levels) -> Result<Levels, Flaw> {
        let levels = Levels {
            mean: self.image_mean.unwrap_or(usual.mean),
            deviation: self.image_std.unwrap_or(usual.deviation),
        };
        levels.check()
    }
}

/// Refuses a setting that does not match the tower's.
pub fn same(name: &str, found: Option<usize>, wanted: usize) -> Result<(), Flaw> {
    match found {
        Some(found) if found != wanted => {
            let wanted = format!("{wanted}, as vision_config says");
            Err(Flaw::broken(name, found, wanted))
        }
        _ => Ok(()),
    }
}
