//! The image processor: an image resized to whole blocks of patches, as transformers' `Qwen2VLImageProcessor` does it.

use crate::networks::vision::image::{
    ImageGrid, ImagePart, ImageSizeError, Levels, ProcessedImage, Tile,
};
use crate::networks::vision::resize::{Filter, Weights, resize};
use crate::networks::vision::settings::{ProcessorJson, same};
use crate::networks::weights::Flaw;

/// Limit of an image's aspect ratio.
const MOST_ASPECT: u32 = 200;
/// Sixteen times as many as published models take.
const MOST_PIXELS: usize = 1 << 28;

/// Resizing and normalization of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct QwenProcessor {
    /// Width and height of a patch.
    pub patch: usize,
    /// Patches in a row of a block, which is one token.
    pub merge: usize,
    pub min_pixels: usize,
    pub max_pixels: usize,
    pub levels: Levels,
}

/// Patches of a tower: pixels in a row of one, how many are in a row of a token, and their frames.
#[derive(Debug, Clone, Copy)]
pub struct PatchShape {
    pub side: usize,
    pub merge: usize,
    pub frames: usize,
}

impl QwenProcessor {
    /// The processor of the published models.
    pub fn published() -> Self {
        Self {
            patch: 16,
            merge: 2,
            min_pixels: 256 * 256,
            max_pixels: 4096 * 4096,
            levels: Levels::HALVES,
        }
    }

    /// The same with a limit of pixels, within its own minimum.
    pub fn within(&self, pixels: usize) -> Self {
        let least = self.min_pixels.max(self.block() * self.block());
        Self {
            max_pixels: self.max_pixels.min(pixels).max(least),
            ..self.clone()
        }
    }

    /// For a tower with such patches. Defaults for omitted settings, or a missing file, are those of the published
    /// models of Qwen3-VL.
    pub fn read(json: &ProcessorJson, patches: PatchShape) -> Result<Self, Flaw> {
        Self::published().with(json, patches)
    }

    /// The same for Qwen2.5-VL.
    pub fn read_qwen2(json: &ProcessorJson, patches: PatchShape) -> Result<Self, Flaw> {
        let usual = Self {
            min_pixels: 56 * 56,
            max_pixels: 28 * 28 * 16_384,
            levels: Levels::CLIP,
            ..Self::published()
        };
        usual.with(json, patches)
    }

    /// Applies the settings of the file.
    fn with(self, json: &ProcessorJson, patches: PatchShape) -> Result<Self, Flaw> {
        json.check_patch(patches.side)?;
        same("merge_size", json.merge_size, patches.merge)?;
        same(
            "temporal_patch_size",
            json.temporal_patch_size,
            patches.frames,
        )?;
        json.check(Filter::Bicubic)?;
        let size = json.size.unwrap_or_default();
        let min = json.min_pixels.or(size.shortest_edge);
        let min = min.unwrap_or(self.min_pixels);
        let max = json.max_pixels.or(size.longest_edge);
        let max = max.unwrap_or(self.max_pixels);
        let block = patches.side * patches.merge;
        let block = block * block;
        if !(min.max(block)..=MOST_PIXELS).contains(&max) {
            let found = format!("{min} to {max} pixels");
            let wanted = format!("a range with room for {block} pixels and up to {MOST_PIXELS}");
            return Err(Flaw::broken("size", found, wanted));
        }
        Ok(Self {
            patch: patches.side,
            merge: patches.merge,
            min_pixels: min,
            max_pixels: max,
            levels: json.levels(&self.levels)?,
        })
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
        if w.max(h) / w.min(h) > f64::from(MOST_ASPECT) {
            return Err(ImageSizeError::TooLong {
                width,
                height,
                most: MOST_ASPECT,
            });
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
        let bytes = resize(
            bytes,
            size,
            [width, height],
            Filter::Bicubic,
            Weights::Torch,
        );
        Ok(ProcessedImage {
            tiles: vec![Tile {
                width,
                height,
                bytes,
            }],
            levels: self.levels.clone(),
            parts: vec![ImagePart::Rows(grid.tokens())],
            axes: Some(grid),
            is_whole: false,
        })
    }
}
