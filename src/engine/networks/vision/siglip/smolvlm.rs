//! SmolVLM and Idefics3: an image in tiles and once more as a whole, with the rows and columns of the tiles in the prompt.

use candle_core::{Device, Result, Tensor};
use serde_json::Value;

use super::encoder::SiglipEncoder;
use super::spec::{SiglipDefaults, SiglipSpec};
use crate::networks::blocks::{ComponentReader, Projection};
use crate::networks::vision::image::{CHANNELS, ImagePart, Levels, ProcessedImage, Tile, rows};
use crate::networks::vision::resize::{Filter, Weights, resize};
use crate::networks::vision::settings::ProcessorJson;
use crate::networks::vision::tower::{ImageFeatures, Tower, TowerPass};
use crate::networks::weights::{Flaw, sized};

/// Defaults of the reference.
const USUAL: SiglipDefaults = SiglipDefaults {
    hidden_size: 1152,
    intermediate_size: 3072,
    layers: 12,
    heads: 16,
    image_size: 224,
    patch_size: 32,
};
/// No side of an image becomes longer.
const MOST_SIDE: usize = 4096;
/// Tiles per row that have names.
const MOST_TILES: usize = 64;

const AROUND: &str = "<fake_token_around_image>";
const WHOLE: &str = "<global-img>";

#[derive(Debug, Clone, PartialEq)]
pub struct SmolSpec {
    pub siglip: SiglipSpec,
    /// Patches in a row of a token.
    pub scale: usize,
    pub out_size: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SmolProcessor {
    /// Length of the longer side before the image is split.
    longest: usize,
    /// The side of a tile.
    tile: usize,
    /// Tokens of a tile.
    tokens: usize,
    is_split: bool,
    levels: Levels,
}

pub struct SmolTower {
    spec: SmolSpec,
    encoder: SiglipEncoder,
    projection: Projection,
}

/// Sizes of an image between its resizes: `[width, height]`.
struct TileSizes {
    first: [usize; 2],
    second: [usize; 2],
    /// `None` for an image with a single tile.
    split: Option<[usize; 2]>,
}

impl SmolSpec {
    pub fn read(config: &Value) -> std::result::Result<Self, Flaw> {
        let siglip = SiglipSpec::read(&config["vision_config"], USUAL)?;
        let scale = config["scale_factor"].as_u64().unwrap_or(2);
        let side = siglip.side();
        let scale = usize::try_from(scale).unwrap_or(0);
        if scale == 0 || !side.is_multiple_of(scale) {
            let wanted = format!("a number that divides {side}");
            return Err(Flaw::broken("scale_factor", scale, wanted));
        }
        let out = config["text_config"]["hidden_size"].as_u64();
        Ok(Self {
            siglip,
            scale,
            out_size: sized("text_config.hidden_size", out.unwrap_or(0) as usize)?,
        })
    }

    /// Tokens of a tile.
    fn tokens(&self) -> usize {
        let row = self.siglip.side() / self.scale;
        row * row
    }
}

impl SmolProcessor {
    pub fn read(json: &ProcessorJson, spec: &SmolSpec) -> std::result::Result<Self, Flaw> {
        json.check(Filter::Lanczos)?;
        let tile = spec.siglip.image_size;
        let side = json.max_image_size.and_then(|size| size.longest_edge);
        let side = side.unwrap_or(tile);
        if side != tile {
            let wanted = format!("{tile}, as vision_config says");
            return Err(Flaw::broken("max_image_size", side, wanted));
        }
        let longest = json.size.and_then(|size| size.longest_edge);
        let longest = longest.unwrap_or(4 * tile);
        if !(1..=MOST_SIDE.min(tile.saturating_mul(MOST_TILES))).contains(&longest) {
            let wanted = format!("1 to {MOST_SIDE}, and {MOST_TILES} tiles in a row");
            return Err(Flaw::broken("size.longest_edge", longest, wanted));
        }
        Ok(Self {
            longest,
            tile,
            tokens: spec.tokens(),
            is_split: json.do_image_splitting.unwrap_or(true),
            levels: json.levels(&Levels::HALVES)?,
        })
    }

    /// The same with a limit of pixels.
    pub fn within(&self, pixels: usize) -> Self {
        Self {
            longest: self.longest.min(pixels.isqrt()).max(1),
            ..self.clone()
        }
    }

    pub fn rows(&self, size: [usize; 2]) -> usize {
        rows(&self.parts(&self.sizes(size)))
    }

    fn sizes(&self, [width, height]: [usize; 2]) -> TileSizes {
        let share = width as f64 / height as f64;
        let even = |side: usize| (side + side % 2).max(1);
        let first = match width >= height {
            true => [self.longest, even((self.longest as f64 / share) as usize)],
            false => [even((self.longest as f64 * share) as usize), self.longest],
        };
        if !self.is_split {
            return TileSizes {
                first,
                second: [self.tile; 2],
                split: None,
            };
        }
        let share = first[0] as f64 / first[1] as f64;
        let tiles = |side: usize| side.div_ceil(self.tile);
        let split = match first[0] >= first[1] {
            true => {
                let columns = tiles(first[0]);
                let height = (columns * self.tile) as f64 / share;
                [columns, tiles(height as usize)]
            }
            false => {
                let rows = tiles(first[1]);
                let width = (rows * self.tile) as f64 * share;
                [tiles(width as usize), rows]
            }
        };
        let split = split.map(|count| count.max(1));
        TileSizes {
            first,
            second: split.map(|count| count * self.tile),
            split: Some(split).filter(|split| *split != [1, 1]),
        }
    }

    fn parts(&self, sizes: &TileSizes) -> Vec<ImagePart> {
        let text = |text: String| ImagePart::Text(text);
        let mut parts = Vec::new();
        let mut before = String::new();
        if let Some([columns, rows]) = sizes.split {
            for row in 1..=rows {
                for column in 1..=columns {
                    parts.push(text(format!("{before}{AROUND}<row_{row}_col_{column}>")));
                    parts.push(ImagePart::Rows(self.tokens));
                    before.clear();
                }
                "\n".clone_into(&mut before);
            }
            before.push('\n');
        }
        parts.push(text(format!("{before}{AROUND}{WHOLE}")));
        parts.push(ImagePart::Rows(self.tokens));
        parts.push(text(AROUND.to_owned()));
        parts
    }

    pub fn process(&self, bytes: &[u8], size: [usize; 2]) -> ProcessedImage {
        let sizes = self.sizes(size);
        let resized =
            |bytes: &[u8], from, to| resize(bytes, from, to, Filter::Lanczos, Weights::Torch);
        let first = resized(bytes, size, sizes.first);
        let second = resized(&first, sizes.first, sizes.second);
        let square = |bytes| Tile {
            width: self.tile,
            height: self.tile,
            bytes,
        };
        let tiles = match sizes.split {
            None => vec![square(second)],
            Some([columns, rows]) => {
                let places =
                    (0..rows).flat_map(|row| (0..columns).map(move |column| [column, row]));
                let cut = places.map(|place| square(self.cut(&second, sizes.second[0], place)));
                let mut tiles: Vec<Tile> = cut.collect();
                tiles.push(square(resized(&second, sizes.second, [self.tile; 2])));
                tiles
            }
        };
        ProcessedImage {
            tiles,
            levels: self.levels.clone(),
            parts: self.parts(&sizes),
            axes: None,
            is_whole: false,
        }
    }

    fn cut(&self, bytes: &[u8], width: usize, [column, row]: [usize; 2]) -> Vec<u8> {
        let lines = row * self.tile..(row + 1) * self.tile;
        let cut = lines.flat_map(|line| {
            let first = (line * width + column * self.tile) * CHANNELS;
            &bytes[first..first + self.tile * CHANNELS]
        });
        cut.copied().collect()
    }
}

impl SmolTower {
    pub fn read(
        spec: &SmolSpec,
        device: &Device,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let width = spec.siglip.block.hidden * spec.scale * spec.scale;
        let name = "projector.modality_projection.proj";
        Ok(Self {
            encoder: SiglipEncoder::read(&spec.siglip, device, reader)?,
            projection: reader.projection(name, (spec.out_size, width), false)?,
            spec: spec.clone(),
        })
    }

    /// The patches of each token, consecutively.
    fn shuffled(&self, patches: &Tensor) -> Result<Tensor> {
        let (scale, hidden) = (self.spec.scale, self.spec.siglip.block.hidden);
        let row = self.spec.siglip.side() / scale;
        let blocks = patches.reshape(&[row, scale, row, scale, hidden][..])?;
        let blocks = blocks.permute([0, 2, 1, 3, 4])?.contiguous()?;
        blocks.reshape((row * row, scale * scale * hidden))
    }
}

impl Tower for SmolTower {
    fn begin(&self, image: &ProcessedImage) -> Result<TowerPass> {
        self.encoder.begin(image)
    }

    fn advance(&self, pass: &mut TowerPass) -> Result<Option<ImageFeatures>> {
        let made = |patches: &Tensor| self.projection.apply(&self.shuffled(patches)?);
        self.encoder.advance(pass, made)
    }
}
