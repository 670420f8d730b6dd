//! Fewer or more pages, with the contents of those that stay.

use candle_core::{Result, bail};
use half::f16;

use super::tile::BLOCK;
use super::{Pages, Shape};
use crate::cpu::memory::Aligned;

impl Pages {
    /// See [`crate::LayerPages::resize`]. Only pages that stay are touched.
    pub fn resize(&mut self, pages: usize, kept: &[u32]) -> Result<()> {
        if let Some(page) = kept.iter().find(|page| **page as usize >= self.shape.pages) {
            bail!("page {page} is out of range (pages: {})", self.shape.pages);
        }
        let shape = Shape {
            pages,
            ..self.shape
        };
        let mut resized = Self::of_shape(shape, self.dtype)?;
        let numbers = shape.kv_heads * shape.tile_len();
        let size = self.dtype.dtype().map_or(1, |dtype| dtype.size_in_bytes());
        copy(&self.numbers, &mut resized.numbers, size * numbers, kept);
        if let (Some(from), Some(to)) = (&self.scales, &mut resized.scales) {
            copy(from, to, size_of::<f16>() * numbers / BLOCK, kept);
        }
        *self = resized;
        Ok(())
    }
}

/// Copies pages of this many bytes to the first places.
fn copy(from: &Aligned, to: &mut Aligned, bytes: usize, pages: &[u32]) {
    let (from, to) = (from.view::<u8>(), to.view_mut::<u8>());
    for (to, &page) in to.chunks_exact_mut(bytes).zip(pages) {
        to.copy_from_slice(&from[page as usize * bytes..][..bytes]);
    }
}
