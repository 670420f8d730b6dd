//! Several queries against the pages of one sequence and head: every key and value is loaded once for all.
//!
//! What a query computes does not depend on which others are beside it: a page that it may not see changes
//! nothing, exactly.

use half::{bf16, f16};

use super::LANES;
use super::stored::Stored;
use crate::cpu::level::{Level, at_every_level};
use crate::cpu::math::{exp, multiply_add, tanh};
use crate::{AttentionOptions, PAGE_TOKENS};

/// One row and head of the step.
pub struct Query<'a> {
    pub values: &'a [f32],
    pub position: usize,
    /// Where its result goes; sums of values until the end.
    pub out: &'a mut [f32],
}

/// Keys (`[2][d][16]`) and values (`[32][d]`) of a page.
type Tile<'a, T> = (&'a [T], &'a [T]);

/// Attends with all queries, whose rows lie in ascending order.
pub fn attend<T: AtEveryLevel>(
    level: Level,
    tiles: &[Tile<T>],
    queries: &mut [Query],
    options: AttentionOptions,
) {
    T::attend(level, tiles, queries, options);
}

/// Numbers for which attention is compiled at every level.
pub trait AtEveryLevel: Stored {
    fn attend(level: Level, tiles: &[Tile<Self>], queries: &mut [Query], options: AttentionOptions);
}

macro_rules! compile_for {
    ($($type:ty, $name:ident;)*) => {$(
        at_every_level! {
            fn $name(tiles: &[Tile<$type>], queries: &mut [Query], options: AttentionOptions) = attend_all<$type>;
        }

        impl AtEveryLevel for $type {
            fn attend(level: Level, tiles: &[Tile<Self>], queries: &mut [Query], options: AttentionOptions) {
                $name(level, tiles, queries, options);
            }
        }
    )*};
}

compile_for! {
    f32, attend_f32;
    f16, attend_f16;
    bf16, attend_bf16;
}

#[inline(always)]
fn attend_all<T: Stored, const FAST: bool>(
    tiles: &[Tile<T>],
    queries: &mut [Query],
    options: AttentionOptions,
) {
    let (fours, rest) = queries.as_chunks_mut::<4>();
    for queries in fours {
        attend_some::<T, FAST, 4>(tiles, queries, options);
    }
    let (ones, _) = rest.as_chunks_mut::<1>();
    for query in ones {
        attend_some::<T, FAST, 1>(tiles, query, options);
    }
}

/// The highest score and the sum of weights so far.
#[derive(Clone, Copy)]
struct Softmax {
    highest: f32,
    total: f32,
}

#[inline(always)]
fn attend_some<T: Stored, const FAST: bool, const N: usize>(
    tiles: &[Tile<T>],
    queries: &mut [Query; N],
    options: AttentionOptions,
) {
    let mut softmax = [Softmax {
        highest: f32::NEG_INFINITY,
        total: 0.0,
    }; N];
    let first = first_seen(queries[0].position, options) / PAGE_TOKENS;
    let last = queries[N - 1].position / PAGE_TOKENS;
    for (page, (keys, values)) in tiles.iter().enumerate().take(last + 1).skip(first) {
        let mut weights = scores::<T, FAST, N>(keys, queries);
        let mut fades = [1f32; N];
        for (index, query) in queries.iter().enumerate() {
            let weights = &mut weights[index];
            mask(weights, query.position, page * PAGE_TOKENS, options);
            fades[index] = softmax[index].take(weights);
        }
        add_values::<T, FAST, N>(values, &weights, fades, queries);
    }
    for (query, softmax) in queries.iter_mut().zip(softmax) {
        let scale = 1.0 / softmax.total;
        query.out.iter_mut().for_each(|out| *out *= scale);
    }
}

fn first_seen(position: usize, options: AttentionOptions) -> usize {
    let hidden = options
        .window
        .map(|window| (position + 1).saturating_sub(window));
    hidden.unwrap_or(0)
}

/// The products of the queries with the keys of a page.
#[inline(always)]
fn scores<T: Stored, const FAST: bool, const N: usize>(
    keys: &[T],
    queries: &[Query; N],
) -> [[f32; PAGE_TOKENS]; N] {
    let mut scores = [[0f32; PAGE_TOKENS]; N];
    let head_dim = keys.len() / PAGE_TOKENS;
    let (rows, _) = keys.as_chunks::<LANES>();
    for (half, rows) in rows.chunks_exact(head_dim).enumerate() {
        let mut sums = [[0f32; LANES]; N];
        for (index, keys) in rows.iter().enumerate() {
            let keys = T::widen::<FAST>(keys);
            for (sums, query) in sums.iter_mut().zip(queries) {
                let value = query.values[index];
                for (sum, key) in sums.iter_mut().zip(keys) {
                    *sum = multiply_add::<FAST>(key, value, *sum);
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
fn mask(scores: &mut [f32; PAGE_TOKENS], position: usize, start: usize, options: AttentionOptions) {
    for score in scores.iter_mut() {
        *score *= options.scale;
    }
    if let Some(cap) = options.softcap {
        for score in scores.iter_mut() {
            *score = cap * tanh(*score / cap);
        }
    }
    let first = first_seen(position, options);
    if start < first || start + PAGE_TOKENS > position + 1 {
        for (token, score) in scores.iter_mut().enumerate() {
            let seen = (first..=position).contains(&(start + token));
            *score = if seen { *score } else { f32::NEG_INFINITY };
        }
    }
}

impl Softmax {
    /// Turns the scores of a page into weights; returns what earlier sums must be multiplied by.
    #[inline(always)]
    fn take(&mut self, scores: &mut [f32; PAGE_TOKENS]) -> f32 {
        let mut lanes = [self.highest; LANES];
        let (halves, _) = scores.as_chunks::<LANES>();
        for half in halves {
            for (lane, score) in lanes.iter_mut().zip(half) {
                *lane = if *score > *lane { *score } else { *lane };
            }
        }
        let highest = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
        // Nothing seen yet: any finite number keeps the exponents from being undefined.
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
        self.total = self.total * fade + sums.into_iter().sum::<f32>();
        self.highest = highest;
        fade
    }
}

/// Adds the weighted values of a page to the queries' sums.
#[inline(always)]
fn add_values<T: Stored, const FAST: bool, const N: usize>(
    values: &[T],
    weights: &[[f32; PAGE_TOKENS]; N],
    fades: [f32; N],
    queries: &mut [Query; N],
) {
    let head_dim = values.len() / PAGE_TOKENS;
    for start in (0..head_dim).step_by(LANES) {
        let width = LANES.min(head_dim - start);
        let mut sums = [[0f32; LANES]; N];
        for ((sums, query), fade) in sums.iter_mut().zip(&*queries).zip(fades) {
            sums[..width].copy_from_slice(&query.out[start..start + width]);
            sums.iter_mut().for_each(|sum| *sum *= fade);
        }
        for token in 0..PAGE_TOKENS {
            let at = token * head_dim + start;
            let values = match values[at..at + width].first_chunk::<LANES>() {
                Some(values) => T::widen::<FAST>(values),
                None => widen_few::<T, FAST>(&values[at..at + width]),
            };
            for (sums, weights) in sums.iter_mut().zip(weights) {
                let weight = weights[token];
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum = multiply_add::<FAST>(value, weight, *sum);
                }
            }
        }
        for (sums, query) in sums.iter().zip(&mut *queries) {
            query.out[start..start + width].copy_from_slice(&sums[..width]);
        }
    }
}

/// Fewer than [`LANES`] values, filled up with zeros: heads whose size is no multiple of sixteen.
#[cold]
fn widen_few<T: Stored, const FAST: bool>(values: &[T]) -> [f32; LANES] {
    let mut filled = [T::from_f32(0.0); LANES];
    filled[..values.len()].copy_from_slice(values);
    T::widen::<false>(&filled)
}
