//! Decodes in overlapping tiles, so that a large image needs the memory of a small one. Tiles, overlaps and blending
//! follow diffusers.

use candle_core::{Device, Result, Tensor};

use super::networks::LatentMap;

/// The side of a tile in latents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TilePlan {
    pub side: usize,
}

impl TilePlan {
    pub const USUAL: Self = Self { side: 64 };

    /// Tiles overlap by a quarter.
    fn stride(self) -> usize {
        (self.side * 3 / 4).max(1)
    }

    /// Tile positions along a side.
    pub fn starts(self, side: usize) -> impl Iterator<Item = usize> {
        (0..side).step_by(self.stride())
    }

    /// The tile of a latent from a place on.
    pub fn tile(self, latent: &LatentMap, [y, x]: [usize; 2]) -> LatentMap {
        let height = self.side.min(latent.height - y);
        let width = self.side.min(latent.width - x);
        let channels = latent.channels();
        let rows = (y..y + height).flat_map(|row| {
            let at = (row * latent.width + x) * channels;
            latent.values[at..at + width * channels].to_vec()
        });
        LatentMap {
            values: rows.collect(),
            height,
            width,
        }
    }
}

/// An image that grows tile by tile, from the upper left on.
pub struct TiledImage {
    plan: TilePlan,
    /// Pixels of a latent's side.
    factor: usize,
    size: [usize; 2],
    values: Vec<f32>,
    above: Vec<DecodedTile>,
    row: Vec<DecodedTile>,
}

/// `[height, width, 3]`.
struct DecodedTile {
    values: Vec<f32>,
    height: usize,
    width: usize,
}

const COLORS: usize = 3;

impl TiledImage {
    pub fn new(plan: TilePlan, factor: usize, latent: &LatentMap) -> Self {
        let size = [latent.height * factor, latent.width * factor];
        Self {
            plan,
            factor,
            size,
            values: vec![0.0; size[0] * size[1] * COLORS],
            above: Vec::new(),
            row: Vec::new(),
        }
    }

    /// Tiles come row by row; `at` is the tile's place in latents.
    pub fn add(&mut self, at: [usize; 2], image: &Tensor) -> Result<()> {
        let (height, width, _) = image.dims3()?;
        let mut tile = DecodedTile {
            values: image.flatten_all()?.to_vec1::<f32>()?,
            height,
            width,
        };
        if at[1] == 0 {
            self.above = std::mem::take(&mut self.row);
        }
        let mixed = self.plan.side * self.factor / 4;
        let index = at[1] / self.plan.stride();
        if let Some(above) = self.above.get(index) {
            let rows = mixed.min(above.height).min(tile.height);
            for y in 0..rows {
                for at in 0..tile.width * COLORS {
                    let before =
                        above.values[(above.height - rows + y) * above.width * COLORS + at];
                    mix(&mut tile.values[y * width * COLORS + at], before, y, rows);
                }
            }
        }
        if let Some(left) = index.checked_sub(1).and_then(|index| self.row.get(index)) {
            let columns = mixed.min(left.width).min(tile.width);
            for y in 0..tile.height {
                for x in 0..columns {
                    for color in 0..COLORS {
                        let from = (y * left.width + left.width - columns + x) * COLORS + color;
                        let to = (y * width + x) * COLORS + color;
                        mix(&mut tile.values[to], left.values[from], x, columns);
                    }
                }
            }
        }
        self.place(at, &tile);
        self.row.push(tile);
        Ok(())
    }

    /// The part of a tile that no later one covers.
    fn place(&mut self, at: [usize; 2], tile: &DecodedTile) {
        let limit = self.plan.stride() * self.factor;
        let [top, left] = at.map(|place| place * self.factor);
        let rows = limit.min(tile.height).min(self.size[0] - top);
        let columns = limit.min(tile.width).min(self.size[1] - left);
        for y in 0..rows {
            let from = y * tile.width * COLORS;
            let to = ((top + y) * self.size[1] + left) * COLORS;
            let row = &tile.values[from..from + columns * COLORS];
            self.values[to..to + columns * COLORS].copy_from_slice(row);
        }
    }

    /// `[height, width, 3]`.
    pub fn finish(self) -> Result<Tensor> {
        let [height, width] = self.size;
        Tensor::from_vec(self.values, (height, width, COLORS), &Device::Cpu)
    }
}

fn mix(value: &mut f32, before: f32, at: usize, of: usize) {
    let share = at as f32 / of as f32;
    *value = before * (1.0 - share) + *value * share;
}
