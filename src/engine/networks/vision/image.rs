//! Images on their way from bytes to a tower, and their places in prompts.

use crate::networks::weights::Flaw;

/// Colors of a place.
pub const CHANNELS: usize = 3;

/// Tokens of an image, in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageGrid {
    pub rows: usize,
    pub columns: usize,
}

/// A part of an image's text in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImagePart {
    Text(String),
    /// This many tokens that features replace.
    Rows(usize),
}

/// RGB bytes, rows from the top.
#[derive(Clone, PartialEq, Eq)]
pub struct Tile {
    pub width: usize,
    pub height: usize,
    pub bytes: Vec<u8>,
}

/// An image as its model's tower takes it.
#[derive(Clone, PartialEq)]
pub struct ProcessedImage {
    /// In the order of its tokens.
    pub tiles: Vec<Tile>,
    pub levels: Levels,
    pub parts: Vec<ImagePart>,
    /// The grid of a model whose positions have rows and columns.
    pub axes: Option<ImageGrid>,
    /// Whether its tokens see each other, so that they are read in one step.
    pub is_whole: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum ImageSizeError {
    #[error("the image has no pixels")]
    Empty,
    #[error(
        "the image is {width}x{height}: its longer side is more than {most} times its shorter one; crop it"
    )]
    TooLong {
        width: usize,
        height: usize,
        most: u32,
    },
}

/// How bytes become numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Levels {
    pub mean: [f32; CHANNELS],
    pub deviation: [f32; CHANNELS],
}

impl ImageGrid {
    pub fn tokens(self) -> usize {
        self.rows * self.columns
    }

    /// Row and column of every patch, with the `merge * merge` patches of a token consecutive.
    pub fn places(self, merge: usize) -> impl Iterator<Item = [usize; 2]> {
        let blocks =
            (0..self.rows).flat_map(move |row| (0..self.columns).map(move |column| (row, column)));
        blocks.flat_map(move |(row, column)| {
            (0..merge * merge)
                .map(move |at| [row * merge + at / merge, column * merge + at % merge])
        })
    }
}

impl ProcessedImage {
    /// Number of tokens that features replace.
    pub fn rows(&self) -> usize {
        rows(&self.parts)
    }
}

/// Number of tokens in these parts that features replace.
pub fn rows(parts: &[ImagePart]) -> usize {
    let rows = parts.iter().map(|part| match part {
        ImagePart::Text(_) => 0,
        ImagePart::Rows(rows) => *rows,
    });
    rows.sum()
}

impl Levels {
    /// For published towers not derived from another model.
    pub const HALVES: Self = Self {
        mean: [0.5; CHANNELS],
        deviation: [0.5; CHANNELS],
    };

    /// For towers derived from CLIP.
    pub const CLIP: Self = Self {
        mean: [0.481_454_66, 0.457_827_5, 0.408_210_73],
        deviation: [0.268_629_54, 0.261_302_6, 0.275_777_1],
    };

    pub fn check(self) -> Result<Self, Flaw> {
        let is_sound = self.mean.iter().all(|level| level.is_finite());
        let divides = self.deviation.iter().all(|level| level.is_normal());
        match is_sound && divides {
            true => Ok(self),
            false => {
                let found = format!("{:?} and {:?}", self.mean, self.deviation);
                let wanted = "finite numbers, and deviations other than 0";
                Err(Flaw::broken("image_mean and image_std", found, wanted))
            }
        }
    }

    /// The levels of every patch, by channel, row and column.
    pub fn of_patches(
        &self,
        tile: &Tile,
        patch: usize,
        places: impl Iterator<Item = [usize; 2]>,
    ) -> Vec<f32> {
        let mut levels = Vec::with_capacity(tile.bytes.len());
        let tables = [0, 1, 2].map(|color| self.table(color));
        for [row, column] in places {
            for (color, table) in tables.iter().enumerate() {
                for line in row * patch..(row + 1) * patch {
                    let first = (line * tile.width + column * patch) * CHANNELS + color;
                    let bytes = tile.bytes[first..].iter().step_by(CHANNELS);
                    levels.extend(bytes.take(patch).map(|&byte| table[usize::from(byte)]));
                }
            }
        }
        levels
    }

    /// The level of every byte: rescaling and normalisation in one, as the reference computes them.
    fn table(&self, color: usize) -> [f32; 256] {
        let (mean, deviation) = (self.mean[color] * 255.0, self.deviation[color] * 255.0);
        std::array::from_fn(|byte| (byte as f32 - mean) / deviation)
    }
}
