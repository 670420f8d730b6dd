//! One head's keys and values of one page, as stored and as floats.
//!
//! Keys are transposed in two halves of sixteen tokens (`[2][d][16]`), values are row-wise (`[32][d]`).

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "vectors are read by pointer")
)]

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{
    __m512, _mm_loadu_si128, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_loadu_ps,
    _mm512_mul_ps, _mm512_set1_ps,
};

use half::f16;

use crate::PAGE_TOKENS;
use crate::cpu::stored::{LANES, Stored};

/// Numbers of one token and head that share a scale, where scales are stored.
pub const BLOCK: usize = 32;

/// Reads a tile, sixteen floats at a time.
pub trait Tile: Copy {
    /// The scales of sixteen keys, for one block of their numbers.
    type KeyScales: Copy;
    /// The scales of all values, for one block of their numbers.
    type ValueScales: Copy;

    /// Numbers of a key.
    fn key_dim(self) -> usize;

    /// Numbers of a value.
    fn value_dim(self) -> usize;

    /// `FAST` promises F16C, here and below.
    fn key_scales<const FAST: bool>(self, half: usize, block: usize) -> Self::KeyScales;

    fn value_scales<const FAST: bool>(self, block: usize) -> Self::ValueScales;

    /// Number `row` of sixteen keys, with the scales of its block.
    fn keys<const FAST: bool>(
        self,
        half: usize,
        row: usize,
        scales: &Self::KeyScales,
    ) -> [f32; LANES];

    /// Sixteen numbers of a value from `column` on, with the scales of their block.
    fn values<const FAST: bool>(
        self,
        token: usize,
        column: usize,
        scales: &Self::ValueScales,
    ) -> [f32; LANES];

    /// One number of a value.
    fn value(self, token: usize, column: usize) -> f32;

    /// Like [`Tile::keys`].
    ///
    /// # Safety
    /// The CPU has AVX-512, `half` is 0 or 1 and `row` is below `key_dim`.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load_keys(self, half: usize, row: usize, scales: &Self::KeyScales) -> __m512;

    /// Like [`Tile::values`].
    ///
    /// # Safety
    /// The CPU has AVX-512, `token` is on the page and `column + 16` is not above `value_dim`.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load_values(self, token: usize, column: usize, scales: &Self::ValueScales) -> __m512;
}

/// Writes the key and the value of one token.
pub trait TileWriter {
    fn write(&mut self, token: usize, key: &[f32], value: &[f32]);
}

/// Offset of the first number of a token's key; the next ones follow at a stride of sixteen.
fn key_at(token: usize, key_dim: usize) -> usize {
    token / LANES * LANES * key_dim + token % LANES
}

/// Floats of any width.
#[derive(Debug, Clone, Copy)]
pub struct FloatTile<'a, T> {
    keys: &'a [T],
    values: &'a [T],
}

impl<'a, T: Stored> FloatTile<'a, T> {
    pub fn new((keys, values): (&'a [T], &'a [T])) -> Self {
        assert!(keys.len().is_multiple_of(PAGE_TOKENS) && values.len().is_multiple_of(PAGE_TOKENS));
        Self { keys, values }
    }
}

impl<T: Stored> Tile for FloatTile<'_, T> {
    type KeyScales = ();
    type ValueScales = ();

    #[inline(always)]
    fn key_dim(self) -> usize {
        self.keys.len() / PAGE_TOKENS
    }

    #[inline(always)]
    fn value_dim(self) -> usize {
        self.values.len() / PAGE_TOKENS
    }

    #[inline(always)]
    fn key_scales<const FAST: bool>(self, _: usize, _: usize) {}

    #[inline(always)]
    fn value_scales<const FAST: bool>(self, _: usize) {}

    #[inline(always)]
    fn keys<const FAST: bool>(self, half: usize, row: usize, (): &()) -> [f32; LANES] {
        let at = (half * self.key_dim() + row) * LANES;
        widened::<T, FAST>(self.keys, at)
    }

    #[inline(always)]
    fn values<const FAST: bool>(self, token: usize, column: usize, (): &()) -> [f32; LANES] {
        widened::<T, FAST>(self.values, token * self.value_dim() + column)
    }

    fn value(self, token: usize, column: usize) -> f32 {
        let value = self.values[token * self.value_dim() + column];
        T::widen::<false>(&[value; LANES])[0]
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load_keys(self, half: usize, row: usize, (): &()) -> __m512 {
        let at = (half * self.key_dim() + row) * LANES;
        // SAFETY: by the caller's contract there are two halves of `key_dim` times sixteen keys.
        unsafe { T::load(self.keys.as_ptr().add(at)) }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load_values(self, token: usize, column: usize, (): &()) -> __m512 {
        let at = token * self.value_dim() + column;
        // SAFETY: every token has `value_dim` numbers, by the caller's promise.
        unsafe { T::load(self.values.as_ptr().add(at)) }
    }
}

#[inline(always)]
fn widened<T: Stored, const FAST: bool>(numbers: &[T], at: usize) -> [f32; LANES] {
    let numbers = numbers[at..].first_chunk::<LANES>();
    numbers.map_or([0.0; LANES], T::widen::<FAST>)
}

/// The same to write.
pub struct FloatTileMut<'a, T> {
    pub keys: &'a mut [T],
    pub values: &'a mut [T],
}

impl<T: Stored> TileWriter for FloatTileMut<'_, T> {
    fn write(&mut self, token: usize, key: &[f32], value: &[f32]) {
        let cells = self.keys[key_at(token, key.len())..].iter_mut();
        for (cell, number) in cells.step_by(LANES).zip(key) {
            *cell = T::from_f32(*number);
        }
        let cells = &mut self.values[token * value.len()..][..value.len()];
        for (cell, number) in cells.iter_mut().zip(value) {
            *cell = T::from_f32(*number);
        }
    }
}

/// Q8_0: whole numbers of eight bits, and a scale for each [`BLOCK`] of a token's.
///
/// Scales are `[2][d / 32][16]` for keys and `[d / 32][32]` for values. A product of a number and a scale is exact in
/// f32, so that a page reads the same wherever it is widened.
#[derive(Debug, Clone, Copy)]
pub struct Q8Tile<'a> {
    keys: &'a [i8],
    values: &'a [i8],
    key_scales: &'a [f16],
    value_scales: &'a [f16],
}

impl<'a> Q8Tile<'a> {
    pub fn new(
        (keys, values): (&'a [i8], &'a [i8]),
        (key_scales, value_scales): (&'a [f16], &'a [f16]),
    ) -> Self {
        for (numbers, scales) in [(keys, key_scales), (values, value_scales)] {
            assert!(numbers.len().is_multiple_of(PAGE_TOKENS * BLOCK));
            assert!(numbers.len() == scales.len() * BLOCK);
        }
        Self {
            keys,
            values,
            key_scales,
            value_scales,
        }
    }
}

impl Tile for Q8Tile<'_> {
    type KeyScales = [f32; LANES];
    type ValueScales = [f32; PAGE_TOKENS];

    #[inline(always)]
    fn key_dim(self) -> usize {
        self.keys.len() / PAGE_TOKENS
    }

    #[inline(always)]
    fn value_dim(self) -> usize {
        self.values.len() / PAGE_TOKENS
    }

    #[inline(always)]
    fn key_scales<const FAST: bool>(self, half: usize, block: usize) -> [f32; LANES] {
        let at = (half * self.key_dim() / BLOCK + block) * LANES;
        widened::<f16, FAST>(self.key_scales, at)
    }

    #[inline(always)]
    fn value_scales<const FAST: bool>(self, block: usize) -> [f32; PAGE_TOKENS] {
        let mut scales = [0f32; PAGE_TOKENS];
        let (halves, _) = scales.as_chunks_mut::<LANES>();
        for (half, scales) in halves.iter_mut().enumerate() {
            *scales = widened::<f16, FAST>(self.value_scales, block * PAGE_TOKENS + half * LANES);
        }
        scales
    }

    #[inline(always)]
    fn keys<const FAST: bool>(
        self,
        half: usize,
        row: usize,
        scales: &[f32; LANES],
    ) -> [f32; LANES] {
        let at = (half * self.key_dim() + row) * LANES;
        let mut wide = [0f32; LANES];
        for ((wide, number), scale) in wide.iter_mut().zip(&self.keys[at..]).zip(scales) {
            *wide = f32::from(*number) * scale;
        }
        wide
    }

    #[inline(always)]
    fn values<const FAST: bool>(
        self,
        token: usize,
        column: usize,
        scales: &[f32; PAGE_TOKENS],
    ) -> [f32; LANES] {
        let at = token * self.value_dim() + column;
        let scale = scales[token];
        let mut wide = [0f32; LANES];
        for (wide, number) in wide.iter_mut().zip(&self.values[at..]) {
            *wide = f32::from(*number) * scale;
        }
        wide
    }

    fn value(self, token: usize, column: usize) -> f32 {
        let scale = self.value_scales[column / BLOCK * PAGE_TOKENS + token];
        f32::from(self.values[token * self.value_dim() + column]) * scale.to_f32()
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load_keys(self, half: usize, row: usize, scales: &[f32; LANES]) -> __m512 {
        let at = (half * self.key_dim() + row) * LANES;
        // SAFETY: by the caller's contract there are two halves of `key_dim` times sixteen keys.
        unsafe {
            let numbers = widened_bytes(self.keys.as_ptr().add(at));
            _mm512_mul_ps(numbers, _mm512_loadu_ps(scales.as_ptr()))
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load_values(
        self,
        token: usize,
        column: usize,
        scales: &[f32; PAGE_TOKENS],
    ) -> __m512 {
        let at = token * self.value_dim() + column;
        // SAFETY: every token has `value_dim` numbers, by the caller's promise.
        let numbers = unsafe { widened_bytes(self.values.as_ptr().add(at)) };
        _mm512_mul_ps(numbers, _mm512_set1_ps(scales[token]))
    }
}

/// # Safety
/// Sixteen bytes can be read.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn widened_bytes(from: *const i8) -> __m512 {
    // SAFETY: readable by the caller's promise.
    let numbers = unsafe { _mm_loadu_si128(from.cast()) };
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(numbers))
}

/// The same to write.
pub struct Q8TileMut<'a> {
    pub keys: &'a mut [i8],
    pub values: &'a mut [i8],
    pub key_scales: &'a mut [f16],
    pub value_scales: &'a mut [f16],
}

impl TileWriter for Q8TileMut<'_> {
    fn write(&mut self, token: usize, key: &[f32], value: &[f32]) {
        let (key_blocks, _) = key.as_chunks::<BLOCK>();
        for (block, numbers) in key_blocks.iter().enumerate() {
            let (scale, numbers) = quantized(numbers);
            self.key_scales[key_at(token, key.len() / BLOCK) + block * LANES] = scale;
            let cells = &mut self.keys[key_at(token, key.len()) + block * BLOCK * LANES..];
            for (cell, number) in cells.iter_mut().step_by(LANES).zip(numbers) {
                *cell = number;
            }
        }
        let (value_blocks, _) = value.as_chunks::<BLOCK>();
        for (block, numbers) in value_blocks.iter().enumerate() {
            let (scale, numbers) = quantized(numbers);
            self.value_scales[block * PAGE_TOKENS + token] = scale;
            let at = token * value.len() + block * BLOCK;
            self.values[at..at + BLOCK].copy_from_slice(&numbers);
        }
    }
}

/// The largest number becomes 127 or -127. A block that is not finite has a scale that is not, so that the fault
/// shows in the result.
fn quantized(numbers: &[f32; BLOCK]) -> (f16, [i8; BLOCK]) {
    let mut largest = 0f32;
    let mut is_number = true;
    for number in numbers {
        largest = largest.max(number.abs());
        is_number &= !number.is_nan();
    }
    let scale = f16::from_f32(if is_number { largest / 127.0 } else { f32::NAN });
    let wide = scale.to_f32();
    let inverse = if wide > 0.0 { 1.0 / wide } else { 0.0 };
    (
        scale,
        numbers.map(|number| (number * inverse).round_ties_even().clamp(-127.0, 127.0) as i8),
    )
}
