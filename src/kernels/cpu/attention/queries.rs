//! Several queries against the pages of one sequence and head: every key and value is loaded once for all.
//!
//! A query's result does not depend on the other queries of its group: masked pages contribute exact zeros.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "instructions are chosen at run time")
)]

use std::ops::Range;

use half::{bf16, f16};

#[cfg(target_arch = "x86_64")]
use super::avx512;
use super::latent::LatentTile;
use super::tile::{BLOCK, FloatTile, Q8Tile, Tile};
use crate::cpu::level::{Level, at_every_level};
use crate::cpu::math::{exp, multiply_add, tanh};
use crate::cpu::stored::LANES;
use crate::{AttentionOptions, PAGE_TOKENS};

/// One row and head of the step.
pub struct Query<'a> {
    pub values: &'a [f32],
    /// The keys that it sees.
    pub seen: Range<usize>,
    /// Terms that are added to its products with all keys.
    pub bias: Option<&'a [f32]>,
    /// The sum of all values, each times its weight. Zeros at first; as long as a value, which may be longer than a
    /// key.
    pub out: &'a mut [f32],
    /// The state of the sum's softmax.
    pub softmax: Softmax,
}

/// State of a query's softmax: weights are the exponentials of scores less the highest one.
#[derive(Debug, Clone, Copy)]
pub struct Softmax {
    pub highest: f32,
    /// The sum of the weights; zero where nothing was seen.
    pub total: f32,
}

impl Softmax {
    pub const NOTHING_SEEN: Self = Self {
        highest: f32::NEG_INFINITY,
        total: 0.0,
    };

    /// Divides the sum by its weights. A query that sees nothing has no weights, and no result.
    pub fn normalize(self, sums: &mut [f32]) {
        let scale = if self.total > 0.0 {
            1.0 / self.total
        } else {
            0.0
        };
        sums.iter_mut().for_each(|sum| *sum *= scale);
    }

    /// The same with an attention sink: one more score in the softmax, whose value is zero.
    pub fn normalize_with_sink(self, sums: &mut [f32], sink: f32) {
        let highest = if sink > self.highest {
            sink
        } else {
            self.highest
        };
        let fade = exp(self.highest - highest);
        let scale = fade / (self.total * fade + exp(sink - highest));
        sums.iter_mut().for_each(|sum| *sum *= scale);
    }

    /// Adds the sums of the following tokens.
    pub fn add(&mut self, sums: &mut [f32], next: Self, next_sums: &[f32]) {
        if next.total == 0.0 {
            return;
        }
        if self.total == 0.0 {
            *self = next;
            sums.copy_from_slice(next_sums);
            return;
        }
        let highest = if next.highest > self.highest {
            next.highest
        } else {
            self.highest
        };
        let (fade, next_fade) = (exp(self.highest - highest), exp(next.highest - highest));
        for (sum, next) in sums.iter_mut().zip(next_sums) {
            *sum = *sum * fade + next * next_fade;
        }
        *self = Self {
            highest,
            total: self.total * fade + next.total * next_fade,
        };
    }
}

/// Attends with all queries, whose rows are ascending. The sums still have to be normalized.
pub fn attend<T: TileAtEveryLevel>(
    level: Level,
    tiles: &[T],
    queries: &mut [Query],
    options: AttentionOptions,
) {
    T::attend(level, tiles, queries, options);
}

/// Tiles for which attention is compiled at every level.
pub trait TileAtEveryLevel: Tile {
    fn attend(level: Level, tiles: &[Self], queries: &mut [Query], options: AttentionOptions);
}

macro_rules! compile_for {
    ($($type:ty, $name:ident;)*) => {$(
        at_every_level! {
            fn $name(tiles: &[$type], queries: &mut [Query], options: AttentionOptions, level: Level) = attend_all<$type>;
        }

        impl TileAtEveryLevel for $type {
            fn attend(level: Level, tiles: &[Self], queries: &mut [Query], options: AttentionOptions) {
                $name(level, tiles, queries, options, level);
            }
        }
    )*};
}

compile_for! {
    FloatTile<'_, f32>, attend_f32;
    FloatTile<'_, f16>, attend_f16;
    FloatTile<'_, bf16>, attend_bf16;
    Q8Tile<'_>, attend_q8;
    LatentTile<'_, f32>, attend_latent_f32;
    LatentTile<'_, f16>, attend_latent_f16;
    LatentTile<'_, bf16>, attend_latent_bf16;
}

/// The number of queries whose sums for a page fit in the registers.
fn side_by_side(level: Level) -> usize {
    match level {
        Level::Avx512 | Level::Avx512Bf16 => 8,
        Level::AvxVnni | Level::Avx2 => 6,
        Level::Portable => 4,
    }
}

/// Pages on the outside, queries on the inside: a page is read from memory once for all queries, and widened once
/// if more than a few need it.
#[inline(always)]
fn attend_all<T: Tile, const FAST: bool>(
    tiles: &[T],
    queries: &mut [Query],
    options: AttentionOptions,
    level: Level,
) {
    let most = side_by_side(level);
    let (Some(first), Some(last)) = (queries.first(), queries.last()) else {
        return;
    };
    let first = first.seen.start / PAGE_TOKENS;
    let last = last.seen.end.div_ceil(PAGE_TOKENS);
    let widened_once = queries.len() > most;
    let (mut wide_keys, mut wide_values) = (Vec::new(), Vec::new());
    let mut groups = grouped(queries, most);
    for (page, tile) in tiles.iter().enumerate().take(last).skip(first) {
        if widened_once {
            widen_all::<T, FAST>(level, *tile, &mut wide_keys, &mut wide_values);
            let wide = FloatTile::new((&wide_keys, &wide_values));
            for group in &mut groups {
                group.see_page::<_, FAST>(level, page, wide, options);
            }
        } else {
            for group in &mut groups {
                group.see_page::<_, FAST>(level, page, *tile, options);
            }
        }
    }
    groups.iter_mut().for_each(QueryGroup::finish);
}

#[inline(always)]
fn widen_all<T: Tile, const FAST: bool>(
    level: Level,
    tile: T,
    keys: &mut Vec<f32>,
    values: &mut Vec<f32>,
) {
    let (key_dim, value_dim) = (tile.key_dim(), tile.value_dim());
    keys.resize(key_dim * PAGE_TOKENS, 0.0);
    values.resize(value_dim * PAGE_TOKENS, 0.0);
    let whole = value_dim / LANES * LANES;
    for (token, row) in values.chunks_exact_mut(value_dim).enumerate() {
        for (column, number) in row.iter_mut().enumerate().skip(whole) {
            *number = tile.value(token, column);
        }
    }
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx512 {
        // SAFETY: the level was detected.
        unsafe { avx512::widen(tile, keys, values) };
        return;
    }
    let _ = level;
    let (cells, _) = keys.as_chunks_mut::<LANES>();
    for (half, cells) in cells.chunks_exact_mut(key_dim).enumerate() {
        for (block, cells) in cells.chunks_mut(BLOCK).enumerate() {
            let scales = tile.key_scales::<FAST>(half, block);
            for (row, cell) in cells.iter_mut().enumerate() {
                *cell = tile.keys::<FAST>(half, block * BLOCK + row, &scales);
            }
        }
    }
    for column in (0..whole).step_by(LANES) {
        let scales = tile.value_scales::<FAST>(column / BLOCK);
        for (token, row) in values.chunks_exact_mut(value_dim).enumerate() {
            let wide = tile.values::<FAST>(token, column, &scales);
            row[column..column + LANES].copy_from_slice(&wide);
        }
    }
}

/// A group of queries whose sums fit in the registers.
struct QueryGroup<'a, 'q> {
    queries: &'a mut [Query<'q>],
    /// The first number of each query, the second of each, and so on.
    interleaved: Vec<f32>,
    softmax: Vec<RunningSoftmax>,
}

/// Cuts the queries into groups of `most`, and of the rest.
fn grouped<'a, 'q>(queries: &'a mut [Query<'q>], most: usize) -> Vec<QueryGroup<'a, 'q>> {
    let groups = queries.chunks_mut(most).map(|queries| {
        let numbers = 0..queries[0].values.len();
        let interleaved = numbers.flat_map(|at| queries.iter().map(move |q| q.values[at]));
        QueryGroup {
            interleaved: interleaved.collect(),
            softmax: vec![RunningSoftmax::NOTHING_SEEN; queries.len()],
            queries,
        }
    });
    groups.collect()
}

impl QueryGroup<'_, '_> {
    #[inline(always)]
    fn see_page<T: Tile, const FAST: bool>(
        &mut self,
        level: Level,
        page: usize,
        tile: T,
        options: AttentionOptions,
    ) {
        let (Some(first), Some(last)) = (self.queries.first(), self.queries.last()) else {
            return;
        };
        let is_before = (page + 1) * PAGE_TOKENS <= first.seen.start;
        if is_before || page * PAGE_TOKENS >= last.seen.end {
            return;
        }
        match self.queries.len() {
            8 => see_page::<T, FAST, 8>(self, level, page, tile, options),
            7 => see_page::<T, FAST, 7>(self, level, page, tile, options),
            6 => see_page::<T, FAST, 6>(self, level, page, tile, options),
            5 => see_page::<T, FAST, 5>(self, level, page, tile, options),
            4 => see_page::<T, FAST, 4>(self, level, page, tile, options),
            3 => see_page::<T, FAST, 3>(self, level, page, tile, options),
            2 => see_page::<T, FAST, 2>(self, level, page, tile, options),
            _ => see_page::<T, FAST, 1>(self, level, page, tile, options),
        }
    }

    fn finish(&mut self) {
        for (query, softmax) in self.queries.iter_mut().zip(&self.softmax) {
            query.softmax = Softmax {
                highest: softmax.highest,
                total: softmax.totals.iter().sum(),
            };
        }
    }
}

#[inline(always)]
fn see_page<T: Tile, const FAST: bool, const N: usize>(
    group: &mut QueryGroup,
    level: Level,
    page: usize,
    tile: T,
    options: AttentionOptions,
) {
    let (numbers, _) = group.interleaved.as_chunks::<N>();
    let mut weights = scores::<T, FAST, N>(level, tile, numbers);
    let mut fades = [1f32; N];
    let queries = group.queries.iter().zip(&mut group.softmax);
    for ((weights, fade), (query, softmax)) in weights.iter_mut().zip(&mut fades).zip(queries) {
        mask(weights, query, page * PAGE_TOKENS, options);
        *fade = softmax.take(weights);
    }
    add_values::<T, FAST, N>(level, tile, &weights, fades, group.queries);
}

/// The products of the queries with the keys of a page.
#[inline(always)]
fn scores<T: Tile, const FAST: bool, const N: usize>(
    level: Level,
    tile: T,
    queries: &[[f32; N]],
) -> [[f32; PAGE_TOKENS]; N] {
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx512 {
        // SAFETY: the level was detected.
        return unsafe { avx512::scores(tile, queries) };
    }
    let _ = level;
    let mut scores = [[0f32; PAGE_TOKENS]; N];
    for half in 0..PAGE_TOKENS / LANES {
        let mut sums = [[0f32; LANES]; N];
        for (block, queries) in queries.chunks(BLOCK).enumerate() {
            let scales = tile.key_scales::<FAST>(half, block);
            for (row, queries) in queries.iter().enumerate() {
                let keys = tile.keys::<FAST>(half, block * BLOCK + row, &scales);
                for (sums, query) in sums.iter_mut().zip(queries) {
                    for (sum, key) in sums.iter_mut().zip(keys) {
                        *sum = multiply_add::<FAST>(key, *query, *sum);
                    }
                }
            }
        }
        for (scores, sums) in scores.iter_mut().zip(sums) {
            scores[half * LANES..(half + 1) * LANES].copy_from_slice(&sums);
        }
    }
    scores
}

/// Scales and caps the scores; tokens that the query may not see become minus infinity.
#[inline(always)]
fn mask(scores: &mut [f32; PAGE_TOKENS], query: &Query, start: usize, options: AttentionOptions) {
    for score in scores.iter_mut() {
        *score *= options.scale;
    }
    if let Some(cap) = options.softcap {
        for score in scores.iter_mut() {
            *score = cap * tanh(*score / cap);
        }
    }
    if let Some(bias) = query.bias.and_then(|bias| bias.get(start..)) {
        for (score, bias) in scores.iter_mut().zip(bias) {
            *score += bias;
        }
    }
    if start < query.seen.start || start + PAGE_TOKENS > query.seen.end {
        for (token, score) in scores.iter_mut().enumerate() {
            let is_seen = query.seen.contains(&(start + token));
            *score = if is_seen { *score } else { f32::NEG_INFINITY };
        }
    }
}

/// The highest score so far, and the sums of weights in sixteen lanes.
#[derive(Clone, Copy)]
struct RunningSoftmax {
    highest: f32,
    totals: [f32; LANES],
}

impl RunningSoftmax {
    const NOTHING_SEEN: Self = Self {
        highest: f32::NEG_INFINITY,
        totals: [0.0; LANES],
    };

    /// Turns the scores of a page into weights; returns the factor that rescales earlier sums.
    #[inline(always)]
    fn take(&mut self, scores: &mut [f32; PAGE_TOKENS]) -> f32 {
        let mut lanes = [self.highest; LANES];
        let (halves, _) = scores.as_chunks::<LANES>();
        for half in halves {
            for (lane, score) in lanes.iter_mut().zip(half) {
                *lane = if *score > *lane { *score } else { *lane };
            }
        }
        let highest = highest_of(lanes);
        // Before the first score `highest` is -inf: any finite base keeps the exponents defined.
        let base = if highest == f32::NEG_INFINITY {
            0.0
        } else {
            highest
        };
        let fade = exp(self.highest - base);
        let mut sums = [0f32; LANES];
        let (halves, _) = scores.as_chunks_mut::<LANES>();
        for half in halves {
            for (sum, score) in sums.iter_mut().zip(half) {
                *score = exp(*score - base);
                *sum += *score;
            }
        }
        for (total, sum) in self.totals.iter_mut().zip(sums) {
            *total = *total * fade + sum;
        }
        self.highest = highest;
        fade
    }
}

/// Adds the weighted values of a page to the queries' sums.
#[inline(always)]
fn add_values<T: Tile, const FAST: bool, const N: usize>(
    level: Level,
    tile: T,
    weights: &[[f32; PAGE_TOKENS]; N],
    fades: [f32; N],
    queries: &mut [Query],
) {
    let whole = tile.value_dim() / LANES * LANES;
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx512 {
        // SAFETY: the level was detected.
        unsafe { avx512::add_values(tile, weights, fades, queries) };
    }
    if level < Level::Avx512 {
        for start in (0..whole).step_by(LANES) {
            add_columns::<T, FAST, N>(tile, start, weights, fades, queries);
        }
    }
    if whole < tile.value_dim() {
        add_last_columns::<T, N>(tile, whole, weights, fades, queries);
    }
}

/// The same for sixteen numbers of each value.
#[inline(always)]
fn add_columns<T: Tile, const FAST: bool, const N: usize>(
    tile: T,
    start: usize,
    weights: &[[f32; PAGE_TOKENS]; N],
    fades: [f32; N],
    queries: &mut [Query],
) {
    let columns = start..start + LANES;
    let scales = tile.value_scales::<FAST>(start / BLOCK);
    let mut sums = [[0f32; LANES]; N];
    for ((sums, query), fade) in sums.iter_mut().zip(&*queries).zip(fades) {
        sums.copy_from_slice(&query.out[columns.clone()]);
        sums.iter_mut().for_each(|sum| *sum *= fade);
    }
    for token in 0..PAGE_TOKENS {
        let values = tile.values::<FAST>(token, start, &scales);
        for (sums, weights) in sums.iter_mut().zip(weights) {
            let weight = weights[token];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = multiply_add::<FAST>(value, weight, *sum);
            }
        }
    }
    for (sums, query) in sums.iter().zip(&mut *queries) {
        query.out[columns.clone()].copy_from_slice(sums);
    }
}

/// The same for the fewer than sixteen numbers that are left where sixteen does not divide the size of a head.
#[cold]
fn add_last_columns<T: Tile, const N: usize>(
    tile: T,
    start: usize,
    weights: &[[f32; PAGE_TOKENS]; N],
    fades: [f32; N],
    queries: &mut [Query],
) {
    for ((query, weights), fade) in queries.iter_mut().zip(weights).zip(fades) {
        for (column, sum) in query.out.iter_mut().enumerate().skip(start) {
            *sum *= fade;
            for (token, weight) in weights.iter().enumerate() {
                *sum += tile.value(token, column) * weight;
            }
        }
    }
}

/// The highest of some numbers, found by halves.
#[inline(always)]
fn highest_of(lanes: [f32; LANES]) -> f32 {
    let higher = |a: f32, b: f32| if a > b { a } else { b };
    let eight: [f32; 8] = std::array::from_fn(|i| higher(lanes[i], lanes[i + 8]));
    let four: [f32; 4] = std::array::from_fn(|i| higher(eight[i], eight[i + 4]));
    higher(higher(four[0], four[2]), higher(four[1], four[3]))
}
