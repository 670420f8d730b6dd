//! Pages of latents (MLA): the key of a token, whose first numbers are its value, is stored once.
//!
//! Tokens are consecutive (`[32][d]`). Many heads share a latent, so a page is converted to floats, and its keys
//! transposed, once for all of them.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "vectors are read by pointer")
)]

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::__m512;

use super::tile::{Tile, TileWriter};
use crate::PAGE_TOKENS;
use crate::cpu::stored::{LANES, Stored};

/// The latents of one page, floats of any width.
#[derive(Debug, Clone, Copy)]
pub struct LatentTile<'a, T> {
    latents: &'a [T],
    value_dim: usize,
}

impl<'a, T: Stored> LatentTile<'a, T> {
    pub fn new(latents: &'a [T], value_dim: usize) -> Self {
        assert!(latents.len().is_multiple_of(PAGE_TOKENS));
        assert!(value_dim <= latents.len() / PAGE_TOKENS);
        Self { latents, value_dim }
    }

    /// Number `row` of sixteen latents.
    #[inline(always)]
    fn column(self, half: usize, row: usize) -> [T; LANES] {
        let dim = self.latents.len() / PAGE_TOKENS;
        let first = half * LANES * dim + row;
        std::array::from_fn(|token| self.latents[first + token * dim])
    }

    #[inline(always)]
    fn at(self, token: usize, column: usize) -> usize {
        token * (self.latents.len() / PAGE_TOKENS) + column
    }
}

impl<T: Stored> Tile for LatentTile<'_, T> {
    type KeyScales = ();
    type ValueScales = ();

    #[inline(always)]
    fn key_dim(self) -> usize {
        self.latents.len() / PAGE_TOKENS
    }

    #[inline(always)]
    fn value_dim(self) -> usize {
        self.value_dim
    }

    #[inline(always)]
    fn key_scales<const FAST: bool>(self, _: usize, _: usize) {}

    #[inline(always)]
    fn value_scales<const FAST: bool>(self, _: usize) {}

    #[inline(always)]
    fn keys<const FAST: bool>(self, half: usize, row: usize, (): &()) -> [f32; LANES] {
        T::widen::<FAST>(&self.column(half, row))
    }

    #[inline(always)]
    fn values<const FAST: bool>(self, token: usize, column: usize, (): &()) -> [f32; LANES] {
        let numbers = self.latents[self.at(token, column)..].first_chunk::<LANES>();
        numbers.map_or([0.0; LANES], T::widen::<FAST>)
    }

    fn value(self, token: usize, column: usize) -> f32 {
        let value = self.latents[self.at(token, column)];
        T::widen::<false>(&[value; LANES])[0]
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load_keys(self, half: usize, row: usize, (): &()) -> __m512 {
        let column = self.column(half, row);
        // SAFETY: the column has sixteen numbers.
        unsafe { T::load(column.as_ptr()) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load_values(self, token: usize, column: usize, (): &()) -> __m512 {
        let at = self.at(token, column);
        // SAFETY: a latent has at least `value_dim` numbers, by the caller's promise `column + 16` of them.
        unsafe { T::load(self.latents.as_ptr().add(at)) }
    }
}

/// The same to write.
pub struct LatentTileMut<'a, T>(pub &'a mut [T]);

impl<T: Stored> TileWriter for LatentTileMut<'_, T> {
    /// The value is in the key.
    fn write(&mut self, token: usize, key: &[f32], _: &[f32]) {
        let cells = &mut self.0[token * key.len()..][..key.len()];
        for (cell, number) in cells.iter_mut().zip(key) {
            *cell = T::from_f32(*number);
        }
    }
}
