//! The two products of attention in registers of sixteen numbers.

#![expect(unsafe_code, reason = "vectors are read and written by pointer")]

use core::arch::x86_64::{
    __m512, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps,
};

use super::queries::Query;
use super::tile::{BLOCK, Tile};
use crate::PAGE_TOKENS;
use crate::cpu::stored::LANES;

/// The products of the queries with the keys of a page.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
pub fn scores<T: Tile, const N: usize>(tile: T, queries: &[[f32; N]]) -> [[f32; PAGE_TOKENS]; N] {
    assert!(tile.key_dim() == queries.len());
    let mut sums = [[_mm512_setzero_ps(); 2]; N];
    for (block, queries) in queries.chunks(BLOCK).enumerate() {
        let scales = [0, 1].map(|half| tile.key_scales::<true>(half, block));
        for (row, queries) in queries.iter().enumerate() {
            let row = block * BLOCK + row;
            let halves: [__m512; 2] = std::array::from_fn(|half| {
                // SAFETY: `row` is below `key_dim`.
                unsafe { tile.load_keys(half, row, &scales[half]) }
            });
            for (sums, query) in sums.iter_mut().zip(queries) {
                let query = _mm512_set1_ps(*query);
                sums[0] = _mm512_fmadd_ps(halves[0], query, sums[0]);
                sums[1] = _mm512_fmadd_ps(halves[1], query, sums[1]);
            }
        }
    }
    let mut scores = [[0f32; PAGE_TOKENS]; N];
    for (scores, sums) in scores.iter_mut().zip(sums) {
        // SAFETY: two times sixteen numbers are written.
        unsafe {
            _mm512_storeu_ps(scores.as_mut_ptr(), sums[0]);
            _mm512_storeu_ps(scores.as_mut_ptr().add(LANES), sums[1]);
        }
    }
    scores
}

/// Adds the weighted values of a page to the queries' sums, in groups of sixteen columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
pub fn add_values<T: Tile, const N: usize>(
    tile: T,
    weights: &[[f32; PAGE_TOKENS]; N],
    fades: [f32; N],
    queries: &mut [Query],
) {
    let whole = tile.value_dim() / LANES;
    for pair in 0..whole / 2 {
        add_columns::<T, N, 2>(tile, pair * 2 * LANES, weights, fades, queries);
    }
    if whole % 2 == 1 {
        add_columns::<T, N, 1>(tile, (whole - 1) * LANES, weights, fades, queries);
    }
}

/// The same for a few columns of one block.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
#[inline]
fn add_columns<T: Tile, const N: usize, const C: usize>(
    tile: T,
    start: usize,
    weights: &[[f32; PAGE_TOKENS]; N],
    fades: [f32; N],
    queries: &mut [Query],
) {
    let value_dim = tile.value_dim();
    assert!(start + C * LANES <= value_dim && queries.len() == N);
    let scales = tile.value_scales::<true>(start / BLOCK);
    let mut sums = [[_mm512_setzero_ps(); C]; N];
    for ((sums, query), fade) in sums.iter_mut().zip(&*queries).zip(fades) {
        assert!(query.out.len() == value_dim);
        for (column, sum) in sums.iter_mut().enumerate() {
            // SAFETY: in bounds by the lines above.
            let out = unsafe { _mm512_loadu_ps(query.out.as_ptr().add(start + column * LANES)) };
            *sum = _mm512_mul_ps(out, _mm512_set1_ps(fade));
        }
    }
    for token in 0..PAGE_TOKENS {
        let columns: [__m512; C] = std::array::from_fn(|column| {
            // SAFETY: every token has `value_dim` numbers.
            unsafe { tile.load_values(token, start + column * LANES, &scales) }
        });
        for (sums, weights) in sums.iter_mut().zip(weights) {
            let weight = _mm512_set1_ps(weights[token]);
            for (sum, values) in sums.iter_mut().zip(columns) {
                *sum = _mm512_fmadd_ps(values, weight, *sum);
            }
        }
    }
    for (sums, query) in sums.iter().zip(queries) {
        for (column, sum) in sums.iter().enumerate() {
            // SAFETY: in bounds as they were read.
            unsafe { _mm512_storeu_ps(query.out.as_mut_ptr().add(start + column * LANES), *sum) };
        }
    }
}

/// A page as floats, in the same order.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,fma,f16c")]
pub fn widen<T: Tile>(tile: T, keys: &mut [f32], values: &mut [f32]) {
    let (key_dim, value_dim) = (tile.key_dim(), tile.value_dim());
    for half in 0..2 {
        for row in 0..key_dim {
            let scales = tile.key_scales::<true>(half, row / BLOCK);
            let at = (half * key_dim + row) * LANES;
            let to = &mut keys[at..at + LANES];
            // SAFETY: `row` is below `key_dim`, and sixteen numbers are written.
            unsafe { _mm512_storeu_ps(to.as_mut_ptr(), tile.load_keys(half, row, &scales)) };
        }
    }
    for column in (0..value_dim / LANES * LANES).step_by(LANES) {
        let scales = tile.value_scales::<true>(column / BLOCK);
        for token in 0..PAGE_TOKENS {
            let at = token * value_dim + column;
            let to = &mut values[at..at + LANES];
            // SAFETY: `column + 16` is not above `value_dim`, and sixteen numbers are written.
            unsafe {
                _mm512_storeu_ps(to.as_mut_ptr(), tile.load_values(token, column, &scales));
            }
        }
    }
}
