//! The image processor: an image resized to whole blocks of patches, as transformers' `Qwen2VLImageProcessor` does it.

use serde::Deserialize;
use serde_json::Value;

use super::spec::VisionSpec;
use crate::networks::vision::resize::{Weights, bicubic};
use crate::networks::weights::Flaw;

/// The longer side of an image is at most so many times the shorter one.
const MOST_ASPECT: f64 = 200.0;
const CHANNELS: usize = 3;
/// Sixteen times as many as published models take.
const MOST_PIXELS: usize = 1 << 28;

/// What an image is resized to, and its levels.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageProcessor {
    /// Width and height of a patch.
    pub patch: usize,
    /// Patches in a row of a block, which is one token.
    pub merge: usize,
    pub min_pixels: usize,
    pub max_pixels: usize,
    pub mean: [f32; CHANNELS],
    pub deviation: [f32; CHANNELS],
}

/// Tokens of an image, in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageGrid {
    pub rows: usize,
    pub columns: usize,
}

/// A resized image: RGB bytes of whole blocks of patches.
#[derive(Clone, PartialEq, Eq)]
pub struct ProcessedImage {
    pub grid: ImageGrid,
    pub width: usize,
    pub height: usize,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ImageSizeError {
    #[error("the image has no pixels")]
    Empty,
    #[error(
        "the image is {width}x{height}: its longer side is more than {MOST_ASPECT} times its shorter one; crop it"
    )]
    TooLong { width: usize, height: usize },
}

/// `preprocessor_config.json`, or the part of `processor_config.json` about images.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ProcessorJson {
    size: Option<SizeJson>,
    min_pixels: Option<usize>,
    max_pixels: Option<usize>,
    patch_size: Option<usize>,
    temporal_patch_size: Option<usize>,
    merge_size: Option<usize>,
    image_mean: Option<[f32; CHANNELS]>,
    image_std: Option<[f32; CHANNELS]>,
    resample: Option<u32>,
    do_resize: Option<bool>,
    do_rescale: Option<bool>,
    do_normalize: Option<bool>,
    rescale_factor: Option<f64>,
}

#[derive(Default, Deserialize)]
struct SizeJson {
    shortest_edge: Option<usize>,
    longest_edge: Option<usize>,
}

/// Pillow's number of the bicubic filter.
const BICUBIC: u32 = 3;

impl ImageProcessor {
    /// That of the published models.
    pub fn published() -> Self {
        Self {
            patch: 16,
            merge: 2,
            min_pixels: 256 * 256,
            max_pixels: 4096 * 4096,
            mean: [0.5; CHANNELS],
            deviation: [0.5; CHANNELS],
        }
    }

    /// The same for images of at most so many pixels, as far as its own limits allow.
    pub fn within(&self, pixels: usize) -> Self {
        let least = self.min_pixels.max(self.block() * self.block());
        Self {
            max_pixels: self.max_pixels.min(pixels).max(least),
            ..self.clone()
        }
    }

    /// For a tower of this spec. What the file leaves open, or the whole file, is that of the published models.
    pub fn read(file: Option<&Value>, spec: &VisionSpec) -> Result<Self, Flaw> {
        let json: ProcessorJson = match file {
            Some(file) => serde_json::from_value(file.clone()).map_err(|error| {
                Flaw::broken(
                    "preprocessor_config.json",
                    error,
                    "settings of an image processor",
                )
            })?,
            None => ProcessorJson::default(),
        };
        json.check(spec)?;
        let usual = Self::published();
        let size = json.size.unwrap_or_default();
        let min = json.min_pixels.or(size.shortest_edge);
        let min = min.unwrap_or(usual.min_pixels);
        let max = json.max_pixels.or(size.longest_edge);
        let max = max.unwrap_or(usual.max_pixels);
        let processor = Self {
            patch: spec.patch_size,
            merge: spec.merge_size,
            min_pixels: min,
            max_pixels: max,
            mean: json.image_mean.unwrap_or(usual.mean),
            deviation: json.image_std.unwrap_or(usual.deviation),
        };
        let block = processor.block() * processor.block();
        if !(min.max(block)..=MOST_PIXELS).contains(&max) {
            let found = format!("{min} to {max} pixels");
            let wanted = format!("a range with room for {block} pixels and up to {MOST_PIXELS}");
            return Err(Flaw::broken("size", found, wanted));
        }
        let is_sound = |levels: &[f32]| levels.iter().all(|level| level.is_finite());
        let divides = processor.deviation.iter().all(|level| level.is_normal());
        if !(is_sound(&processor.mean) && divides) {
            let found = format!("{:?} and {:?}", processor.mean, processor.deviation);
            let wanted = "finite numbers, and deviations other than 0";
            return Err(Flaw::broken("image_mean and image_std", found, wanted));
        }
        Ok(processor)
    }

    /// Width and height of a token's part of the image.
    fn block(&self) -> usize {
        self.patch * self.merge
    }

    /// The tokens of an image of this size, before it is resized.
    pub fn grid(&self, [width, height]: [usize; 2]) -> Result<ImageGrid, ImageSizeError> {
        let (w, h) = (width as f64, height as f64);
        if width == 0 || height == 0 {
            return Err(ImageSizeError::Empty);
        }
        if w.max(h) / w.min(h) > MOST_ASPECT {
            return Err(ImageSizeError::TooLong { width, height });
        }
        let block = self.block();
        let blocks = [h, w].map(|side| (side / block as f64).round_ties_even() as usize);
        let pixels = blocks[0] * blocks[1] * block * block;
        let [rows, columns] = if pixels > self.max_pixels {
            let beta = (h * w / self.max_pixels as f64).sqrt();
            [h, w].map(|side| ((side / beta / block as f64).floor() as usize).max(1))
        } else if pixels < self.min_pixels {
            let beta = (self.min_pixels as f64 / (h * w)).sqrt();
            [h, w].map(|side| (side * beta / block as f64).ceil() as usize)
        } else {
            blocks
        };
        Ok(ImageGrid { rows, columns })
    }

    /// Resizes rows of RGB bytes.
    pub fn process(
        &self,
        bytes: &[u8],
        size: [usize; 2],
    ) -> Result<ProcessedImage, ImageSizeError> {
        let grid = self.grid(size)?;
        let block = self.block();
        let (width, height) = (grid.columns * block, grid.rows * block);
        let bytes = bicubic(bytes, size, [width, height], Weights::Torch);
        Ok(ProcessedImage {
            grid,
            width,
            height,
            bytes,
        })
    }

    /// Levels of every patch, by channel, row and column; patches of a block follow each other.
    pub fn patches(&self, image: &ProcessedImage) -> Vec<f32> {
        let mut levels = Vec::with_capacity(image.bytes.len());
        let table = [0, 1, 2].map(|color| self.levels(color));
        for [row, column] in self.places(image.grid) {
            for (color, table) in table.iter().enumerate() {
                for line in row * self.patch..(row + 1) * self.patch {
                    let first = (line * image.width + column * self.patch) * CHANNELS + color;
                    let bytes = image.bytes[first..].iter().step_by(CHANNELS);
                    levels.extend(bytes.take(self.patch).map(|&byte| table[usize::from(byte)]));
                }
            }
        }
        levels
    }

    /// Row and column of every patch, in the order in which the tower has them.
    pub fn places(&self, grid: ImageGrid) -> impl Iterator<Item = [usize; 2]> {
        let merge = self.merge;
        let blocks =
            (0..grid.rows).flat_map(move |row| (0..grid.columns).map(move |column| (row, column)));
        blocks.flat_map(move |(row, column)| {
            (0..merge * merge)
                .map(move |at| [row * merge + at / merge, column * merge + at % merge])
        })
    }

    /// The level of every byte: rescaling and normalisation in one, as the reference computes them.
    fn levels(&self, color: usize) -> [f32; 256] {
        let (mean, deviation) = (self.mean[color] * 255.0, self.deviation[color] * 255.0);
        std::array::from_fn(|byte| (byte as f32 - mean) / deviation)
    }
}

impl ProcessorJson {
    /// Refuses settings that would change the levels.
    fn check(&self, spec: &VisionSpec) -> Result<(), Flaw> {
        let differ = |name: &str, found: Option<usize>, wanted: usize| match found {
            Some(found) if found != wanted => {
                let wanted = format!("{wanted}, as vision_config says");
                Err(Flaw::broken(name, found, wanted))
            }
            _ => Ok(()),
        };
        differ("patch_size", self.patch_size, spec.patch_size)?;
        differ("merge_size", self.merge_size, spec.merge_size)?;
        let temporal = spec.temporal_patch_size;
        differ("temporal_patch_size", self.temporal_patch_size, temporal)?;
        if let Some(filter) = self.resample.filter(|&filter| filter != BICUBIC) {
            return Err(Flaw::unsupported("resample", filter, "3, which is bicubic"));
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
}

impl ImageGrid {
    pub fn tokens(self) -> usize {
        self.rows * self.columns
    }
}
