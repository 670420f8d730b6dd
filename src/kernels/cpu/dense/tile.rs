//! The innermost product: twelve rows of activations with thirty-two columns of weights.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "vectors are read and written by pointer")
)]

use half::{bf16, f16};

use crate::cpu::level::{Level, at_every_level};
use crate::cpu::math::multiply_add;
use crate::cpu::stored::{LANES, Stored};

pub const TILE_ROWS: usize = 12;
pub const TILE_COLS: usize = 2 * LANES;
pub const TILE: usize = TILE_ROWS * TILE_COLS;

/// Gap between a tile's rows, which keeps them from mapping to the same set of the L1 cache.
const GAP: usize = 16;

/// Numbers that weights are stored as, for which products are compiled at every level.
pub trait Number: Stored {
    /// Consecutive depths stored together in a column: bf16 products process two at once.
    const SIDE_BY_SIDE: usize;

    /// Depth of a block, such that a panel's weights and a tile's rows fit in the L1 cache.
    const DEPTH: usize;

    /// Sixteen columns at one depth; `half` selects them.
    fn columns<const FAST: bool>(weights: &[Self], depth: usize, half: usize) -> [f32; LANES];

    /// The same in a register.
    ///
    /// # Safety
    /// The CPU has AVX-512, and the depth is within the weights.
    #[cfg(target_arch = "x86_64")]
    unsafe fn load_columns(
        weights: *const Self,
        depth: usize,
        half: usize,
    ) -> core::arch::x86_64::__m512;

    fn add_products(level: Level, rows: Rows, weights: &[Self], sums: &mut [f32; TILE]);

    /// Whether rows are pairs of bf16 at this level.
    fn has_pairs(level: Level) -> bool {
        Self::SIDE_BY_SIDE == 2 && level >= Level::Avx512Bf16
    }

    /// Words of a row of activations: f32, or pairs of bf16.
    fn words(level: Level, depth: usize) -> usize {
        depth / if Self::has_pairs(level) { 2 } else { 1 }
    }

    /// Words from one row of a tile to the next.
    fn stride(level: Level) -> usize {
        Self::words(level, Self::DEPTH) + GAP
    }
}

/// Twelve rows of activations: f32, or pairs of bf16 in the bits of f32.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub words: &'a [f32],
    pub stride: usize,
    /// A multiple of [`Number::SIDE_BY_SIDE`].
    pub depth: usize,
}

/// Adds the products of the rows and `weights` (`[depth][32]`) to `sums` (`[12][32]`).
pub fn add_products<T: Number>(level: Level, rows: Rows, weights: &[T], sums: &mut [f32; TILE]) {
    assert!(weights.len() == rows.depth * TILE_COLS && rows.depth <= T::DEPTH);
    assert!(rows.stride == T::stride(level) && rows.words.len() == TILE_ROWS * rows.stride);
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx512 {
        // SAFETY: the level was detected; rows and weights have the depth, by the lines above.
        unsafe {
            match T::has_pairs(level) {
                true => avx512::add_pairs(rows, weights.as_ptr().cast(), sums),
                false => avx512::add_products(rows, weights, sums),
            }
        }
        return;
    }
    T::add_products(level, rows, weights, sums);
}

/// Writes a run of activations as words of a row; odd runs end with a zero.
pub fn put_run<T: Number>(level: Level, run: &[f32], words: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if T::has_pairs(level) {
        // SAFETY: the level was detected.
        unsafe { avx512::put_pairs(run, words) };
        return;
    }
    let _ = level;
    let (same, rest) = words.split_at_mut(run.len());
    same.copy_from_slice(run);
    rest.fill(0.0);
}

macro_rules! compile_for {
    ($($type:ty, $name:ident;)*) => {$(
        at_every_level! {
            fn $name(rows: Rows, weights: &[$type], sums: &mut [f32; TILE]) = add_some<$type>;
        }

        impl Number for $type {
            const SIDE_BY_SIDE: usize = 1;
            const DEPTH: usize = 128;

            #[inline(always)]
            fn columns<const FAST: bool>(
                weights: &[Self],
                depth: usize,
                half: usize,
            ) -> [f32; LANES] {
                Self::widen::<FAST>(&weights.as_chunks::<LANES>().0[depth * 2 + half])
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            #[inline]
            unsafe fn load_columns(
                weights: *const Self,
                depth: usize,
                half: usize,
            ) -> core::arch::x86_64::__m512 {
                // SAFETY: the caller's promise.
                unsafe { Self::load(weights.add(depth * TILE_COLS + half * LANES)) }
            }

            fn add_products(level: Level, rows: Rows, weights: &[Self], sums: &mut [f32; TILE]) {
                $name(level, rows, weights, sums);
            }
        }
    )*};
}

compile_for! {
    f32, add_f32;
    f16, add_f16;
}

at_every_level! {
    fn add_bf16(rows: Rows, weights: &[bf16], sums: &mut [f32; TILE]) = add_some<bf16>;
}

impl Number for bf16 {
    const SIDE_BY_SIDE: usize = 2;
    const DEPTH: usize = 256;

    #[inline(always)]
    fn columns<const FAST: bool>(weights: &[Self], depth: usize, half: usize) -> [f32; LANES] {
        let (pairs, _) = weights.as_chunks::<2>();
        let pairs = &pairs[(depth / 2 * 2 + half) * LANES..][..LANES];
        let mut columns = [0f32; LANES];
        for (column, [even, odd]) in columns.iter_mut().zip(pairs) {
            let pair = u32::from(even.to_bits()) | u32::from(odd.to_bits()) << 16;
            *column = f32::from_bits(match depth % 2 {
                0 => pair << 16,
                _ => pair & 0xFFFF_0000,
            });
        }
        columns
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn load_columns(
        weights: *const Self,
        depth: usize,
        half: usize,
    ) -> core::arch::x86_64::__m512 {
        use core::arch::x86_64::{
            _mm512_and_si512, _mm512_castsi512_ps, _mm512_loadu_si512, _mm512_set1_epi32,
            _mm512_slli_epi32,
        };
        // SAFETY: the caller's promise.
        let pairs = unsafe {
            let at = weights.add((depth / 2 * 2 + half) * 2 * LANES);
            _mm512_loadu_si512(at.cast())
        };
        _mm512_castsi512_ps(match depth % 2 {
            0 => _mm512_slli_epi32::<16>(pairs),
            _ => _mm512_and_si512(pairs, _mm512_set1_epi32(-0x1_0000)),
        })
    }

    fn add_products(level: Level, rows: Rows, weights: &[Self], sums: &mut [f32; TILE]) {
        add_bf16(level, rows, weights, sums);
    }
}

/// Rows of sixteen columns whose sums fit in the registers: with FMA six rows of two registers each, plus the weights
/// and one value of a row. Fewer rows would stall on latency: an FMA takes four cycles, and two start per cycle.
const FAST_ROWS: usize = 6;
const ROWS: usize = 4;

#[inline(always)]
fn add_some<T: Number, const FAST: bool>(rows: Rows, weights: &[T], sums: &mut [f32; TILE]) {
    match FAST {
        true => add_rows::<T, FAST, FAST_ROWS>(rows, weights, sums),
        false => add_rows::<T, FAST, ROWS>(rows, weights, sums),
    }
}

/// Some rows and sixteen columns at a time.
#[inline(always)]
fn add_rows<T: Number, const FAST: bool, const ROWS: usize>(
    rows: Rows,
    weights: &[T],
    sums: &mut [f32; TILE],
) {
    const { assert!(TILE_ROWS.is_multiple_of(ROWS)) };
    for first in (0..TILE_ROWS).step_by(ROWS) {
        let some: [&[f32]; ROWS] =
            std::array::from_fn(|row| &rows.words[(first + row) * rows.stride..][..rows.depth]);
        for half in 0..2 {
            let mut part = [[0f32; LANES]; ROWS];
            let place = |row: usize| (first + row) * TILE_COLS + half * LANES;
            for (row, part) in part.iter_mut().enumerate() {
                part.copy_from_slice(&sums[place(row)..place(row) + LANES]);
            }
            for depth in 0..rows.depth {
                let columns = T::columns::<FAST>(weights, depth, half);
                for (part, row) in part.iter_mut().zip(some) {
                    let value = row[depth];
                    for (sum, weight) in part.iter_mut().zip(columns) {
                        *sum = multiply_add::<FAST>(weight, value, *sum);
                    }
                }
            }
            for (row, part) in part.iter().enumerate() {
                sums[place(row)..place(row) + LANES].copy_from_slice(part);
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use core::arch::x86_64::{
        __m512, __m512bh, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps,
        _mm512_loadu_si512, _mm512_mask_storeu_epi32, _mm512_maskz_loadu_ps, _mm512_set1_epi32,
        _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };

    use super::{GAP, Number, Rows, TILE, TILE_COLS, TILE_ROWS};
    use crate::cpu::stored::LANES;
    use half::bf16;

    type Parts = [[__m512; 2]; TILE_ROWS];

    /// # Safety
    /// The CPU has the features; rows and weights have `rows.depth`, and the rows' stride is that of this level.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
    pub unsafe fn add_products<T: Number>(rows: Rows, weights: &[T], sums: &mut [f32; TILE]) {
        let weights = weights.as_ptr();
        let mut parts = loaded(sums);
        for depth in 0..rows.depth {
            // SAFETY: the caller's promise.
            unsafe {
                let low = T::load_columns(weights, depth, 0);
                let high = T::load_columns(weights, depth, 1);
                for (row, part) in parts.iter_mut().enumerate() {
                    let at = rows.words.as_ptr().add(row * (T::DEPTH + GAP) + depth);
                    let value = _mm512_set1_ps(*at);
                    part[0] = _mm512_fmadd_ps(low, value, part[0]);
                    part[1] = _mm512_fmadd_ps(high, value, part[1]);
                }
            }
        }
        store(parts, sums);
    }

    /// # Safety
    /// The same, and the rows are pairs, the weights `[depth / 2][32]` pairs.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma,f16c")]
    pub unsafe fn add_pairs(rows: Rows, weights: *const u32, sums: &mut [f32; TILE]) {
        let mut parts = loaded(sums);
        for pair in 0..rows.depth / 2 {
            // SAFETY: the caller's promise; pairs and registers of pairs have the same bits.
            unsafe {
                let at = weights.add(pair * TILE_COLS);
                let low: __m512bh = std::mem::transmute(_mm512_loadu_si512(at.cast()));
                let high: __m512bh = std::mem::transmute(_mm512_loadu_si512(at.add(LANES).cast()));
                for (row, part) in parts.iter_mut().enumerate() {
                    let at = rows
                        .words
                        .as_ptr()
                        .add(row * (bf16::DEPTH / 2 + GAP) + pair);
                    let value: __m512bh =
                        std::mem::transmute(_mm512_set1_epi32(at.cast::<i32>().read()));
                    part[0] = _mm512_dpbf16_ps(part[0], low, value);
                    part[1] = _mm512_dpbf16_ps(part[1], high, value);
                }
            }
        }
        store(parts, sums);
    }

    /// # Safety
    /// The CPU has the features.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma,f16c")]
    pub unsafe fn put_pairs(run: &[f32], words: &mut [f32]) {
        assert!(words.len() == run.len().div_ceil(2));
        let mask = |count: usize| (0xFFFF_u32 >> (LANES - count.min(LANES))) as u16;
        for (run, words) in run.chunks(2 * LANES).zip(words.chunks_mut(LANES)) {
            let second = run.len().saturating_sub(LANES);
            // SAFETY: the masks exclude elements past the end of the run and of the words.
            unsafe {
                let low = _mm512_maskz_loadu_ps(mask(run.len()), run.as_ptr());
                let high = match second {
                    0 => _mm512_setzero_ps(),
                    _ => _mm512_maskz_loadu_ps(mask(second), run.as_ptr().add(LANES)),
                };
                let pairs = std::mem::transmute::<__m512bh, core::arch::x86_64::__m512i>(
                    _mm512_cvtne2ps_pbh(high, low),
                );
                _mm512_mask_storeu_epi32(words.as_mut_ptr().cast(), mask(words.len()), pairs);
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn loaded(sums: &[f32; TILE]) -> Parts {
        let mut parts = [[_mm512_setzero_ps(); 2]; TILE_ROWS];
        for (row, part) in parts.iter_mut().enumerate() {
            for (half, part) in part.iter_mut().enumerate() {
                // SAFETY: `sums` has twelve rows of two times sixteen numbers.
                *part =
                    unsafe { _mm512_loadu_ps(sums.as_ptr().add(row * TILE_COLS + half * LANES)) };
            }
        }
        parts
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn store(parts: Parts, sums: &mut [f32; TILE]) {
        for (row, part) in parts.iter().enumerate() {
            for (half, part) in part.iter().enumerate() {
                // SAFETY: as they were read.
                unsafe {
                    _mm512_storeu_ps(sums.as_mut_ptr().add(row * TILE_COLS + half * LANES), *part);
                }
            }
        }
    }
}
