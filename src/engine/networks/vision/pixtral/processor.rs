//! The image processor: an image made no larger than a square, and filled up to whole tokens.

use super::spec::PixtralSpec;
use crate::networks::vision::image::{
    ImageGrid, ImagePart, ImageSizeError, Levels, ProcessedImage, Tile,
};
use crate::networks::vision::resize::{Filter, Weights, resize};
use crate::networks::vision::settings::ProcessorJson;
use crate::networks::weights::Flaw;

const MOST_SIDE: usize = 1 << 14;

#[derive(Debug, Clone, PartialEq)]
pub struct PixtralProcessor {
    /// The side of the square.
    longest: usize,
    /// Width and height of a token's part of the image.
    block: usize,
    levels: Levels,
}

impl PixtralProcessor {
    pub fn read(json: &ProcessorJson, spec: &PixtralSpec) -> Result<Self, Flaw> {
        json.check(Filter::Bicubic)?;
        json.check_patch(spec.patch_size)?;
        let block = spec.patch_size * spec.merge_size;
        let longest = json.size.and_then(|size| size.longest_edge).unwrap_or(1024);
        if !(block..=MOST_SIDE).contains(&longest) {
            let wanted = format!("{block} to {MOST_SIDE}");
            return Err(Flaw::broken("size.longest_edge", longest, wanted));
        }
        Ok(Self {
            longest,
            block,
            levels: json.levels(&Levels::CLIP)?,
        })
    }

    /// The same with a limit of pixels.
    pub fn within(&self, pixels: usize) -> Self {
        Self {
            longest: self.longest.min(pixels.isqrt()).max(self.block),
            ..self.clone()
        }
    }

    pub fn grid(&self, [width, height]: [usize; 2]) -> Result<ImageGrid, ImageSizeError> {
        let longest = self.longest as f64;
        let ratio = (height as f64 / longest).max(width as f64 / longest);
        let made = |side: usize| match ratio > 1.0 {
            true => (side as f64 / ratio).floor() as usize,
            false => side,
        };
        let [columns, rows] = [width, height].map(|side| made(side).div_ceil(self.block));
        if columns == 0 || rows == 0 {
            let most = self.longest as u32;
            return Err(ImageSizeError::TooLong {
                width,
                height,
                most,
            });
        }
        Ok(ImageGrid { rows, columns })
    }

    pub fn process(
        &self,
        bytes: &[u8],
        size: [usize; 2],
    ) -> Result<ProcessedImage, ImageSizeError> {
        let grid = self.grid(size)?;
        let (width, height) = (grid.columns * self.block, grid.rows * self.block);
        let bytes = resize(
            bytes,
            size,
            [width, height],
            Filter::Bicubic,
            Weights::Torch,
        );
        let mut parts = Vec::with_capacity(2 * grid.rows);
        for row in 1..=grid.rows {
            let end = match row == grid.rows {
                true => "[IMG_END]",
                false => "[IMG_BREAK]",
            };
            parts.push(ImagePart::Rows(grid.columns));
            parts.push(ImagePart::Text(end.to_owned()));
        }
        Ok(ProcessedImage {
            tiles: vec![Tile {
                width,
                height,
                bytes,
            }],
            levels: self.levels.clone(),
            parts,
            axes: None,
            is_whole: false,
        })
    }
}
