//! Attention over pages.
//!
//! A page holds, for each key/value head, its keys transposed in two sub-tiles of sixteen tokens
//! (`[2][d][16]`) and its values row-wise (`[32][d]`). A query goes through its pages in order, so its
//! result depends on nothing but its own context.

#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use candle_core::{DType, Result, Tensor, bail};
use half::{bf16, f16};

use super::memory::{Aligned, Plain};
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};
use crate::kernels::{AttentionOptions, PAGE_TOKENS, Span};

/// Tokens whose keys lie side by side.
const LANES: usize = 16;

/// One layer's keys and values.
#[derive(Debug)]
pub struct Pages {
    memory: Aligned,
    dtype: DType,
    shape: Shape,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    pages: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl Shape {
    /// Values of one head's keys in one page; its values take as many.
    fn half_tile(self) -> usize {
        PAGE_TOKENS * self.head_dim
    }

    fn tile_at(self, page: u32, head: usize) -> usize {
        (page as usize * self.kv_heads + head) * 2 * self.half_tile()
    }
}

/// A number as pages store it.
trait Stored: Plain {
    fn from_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;
}

impl Stored for f32 {
    fn from_f32(value: f32) -> Self {
        value
    }
    fn to_f32(self) -> f32 {
        self
    }
}

impl Stored for f16 {
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
}

impl Stored for bf16 {
    fn from_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }
}

impl Pages {
    pub fn new(pages: usize, kv_heads: usize, head_dim: usize, dtype: DType) -> Result<Self> {
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            bail!("keys and values are stored as f32, f16 or bf16, not {dtype:?}");
        }
        let shape = Shape {
            pages,
            kv_heads,
            head_dim,
        };
        let bytes = [
            pages,
            kv_heads,
            head_dim,
            2 * PAGE_TOKENS,
            dtype.size_in_bytes(),
        ]
        .into_iter()
        .try_fold(1usize, usize::checked_mul);
        let Some(bytes) = bytes else {
            bail!(
                "{pages} pages of {kv_heads} heads of {head_dim} are more than memory can be asked for"
            );
        };
        Ok(Self {
            memory: Aligned::zeroed(bytes)?,
            dtype,
            shape,
        })
    }

    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}

/// See [`crate::kernels::paged_attention`].
pub fn paged_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    pages: &mut Pages,
    spans: &[Span],
    options: AttentionOptions,
) -> Result<Tensor> {
    check(q, k, v, pages, spans)?;
    match pages.dtype {
        DType::F32 => attend_as::<f32>(q, k, v, pages, spans, options),
        DType::F16 => attend_as::<f16>(q, k, v, pages, spans, options),
        _ => attend_as::<bf16>(q, k, v, pages, spans, options),
    }
}

fn check(q: &Tensor, k: &Tensor, v: &Tensor, pages: &Pages, spans: &[Span]) -> Result<()> {
    let (tokens, heads, head_dim) = q.dims3()?;
    let wanted = [tokens, pages.shape.kv_heads, pages.shape.head_dim];
    for given in [k, v] {
        if given.dims() != wanted {
            bail!(
                "keys or values of shape {:?} where {wanted:?} were wanted",
                given.dims()
            );
        }
    }
    if head_dim != pages.shape.head_dim || heads == 0 || !heads.is_multiple_of(pages.shape.kv_heads)
    {
        bail!(
            "queries of shape {:?} do not fit keys of shape {wanted:?}",
            q.dims()
        );
    }
    let planned: usize = spans.iter().map(|span| span.new_tokens).sum();
    if planned != tokens {
        bail!("the plan has {planned} rows and the queries {tokens}");
    }
    let listed = spans.iter().flat_map(|span| &span.pages);
    match listed.max() {
        Some(&page) if page as usize >= pages.shape.pages => {
            bail!(
                "page {page} was asked for and there are {}",
                pages.shape.pages
            )
        }
        _ => Ok(()),
    }
}

fn attend_as<T: Stored>(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    pages: &mut Pages,
    spans: &[Span],
    options: AttentionOptions,
) -> Result<Tensor> {
    let shape = pages.shape;
    let stored = pages.memory.view_mut::<T>();
    with_floats(k, |k| {
        with_floats(v, |v| {
            write(stored, shape, spans, k, v);
            Ok(())
        })
    })?;
    let stored = pages.memory.view::<T>();
    let (tokens, heads, _) = q.dims3()?;
    with_floats(q, |queries| {
        let mut result = vec![0f32; queries.len()];
        let rows = Disjoint::new(&mut result);
        let places = placed(spans);
        let longest: usize = places.iter().map(|(_, position)| position + 1).sum();
        share(tokens * heads, longest * heads * shape.head_dim, |range| {
            let mut scratch = Scratch::default();
            for item in range {
                let (span, position) = places[item / heads];
                let head = item % heads / (heads / shape.kv_heads);
                let at = item * shape.head_dim..(item + 1) * shape.head_dim;
                // SAFETY: each item is visited once.
                let out = unsafe { rows.part(at.clone()) };
                let one = Query {
                    values: &queries[at],
                    position,
                    head,
                };
                attend_one(stored, shape, &span.pages, one, options, &mut scratch, out);
            }
        });
        from_floats(result, q.dims())
    })
}

/// The span and position of each row of the flat batch.
fn placed(spans: &[Span]) -> Vec<(&Span, usize)> {
    let mut places = Vec::new();
    for span in spans {
        let end = span.past_tokens + span.new_tokens;
        places.extend((span.past_tokens..end).map(|position| (span, position)));
    }
    places
}

fn write<T: Stored>(stored: &mut [T], shape: Shape, spans: &[Span], k: &[f32], v: &[f32]) {
    let d = shape.head_dim;
    for (row, (span, position)) in placed(spans).into_iter().enumerate() {
        let (page, token) = (span.pages[position / PAGE_TOKENS], position % PAGE_TOKENS);
        for head in 0..shape.kv_heads {
            let at = shape.tile_at(page, head);
            let (keys, values) =
                stored[at..at + 2 * shape.half_tile()].split_at_mut(shape.half_tile());
            let from = (row * shape.kv_heads + head) * d;
            let column = token / LANES * LANES * d + token % LANES;
            for (i, value) in k[from..from + d].iter().enumerate() {
                keys[column + i * LANES] = T::from_f32(*value);
            }
            for (to, value) in values[token * d..(token + 1) * d]
                .iter_mut()
                .zip(&v[from..from + d])
            {
                *to = T::from_f32(*value);
            }
        }
    }
}

struct Query<'a> {
    values: &'a [f32],
    position: usize,
    head: usize,
}

#[derive(Default)]
struct Scratch {
    sums: Vec<f32>,
}

fn attend_one<T: Stored>(
    stored: &[T],
    shape: Shape,
    pages: &[u32],
    query: Query,
    options: AttentionOptions,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let first = options
        .window
        .map_or(0, |window| (query.position + 1).saturating_sub(window));
    let sums = &mut scratch.sums;
    sums.clear();
    sums.resize(shape.head_dim, 0.0);
    let (mut highest, mut total) = (f32::NEG_INFINITY, 0f32);
    let seen = pages
        .iter()
        .enumerate()
        .take(query.position / PAGE_TOKENS + 1);
    for (page, id) in seen.skip(first / PAGE_TOKENS) {
        let at = shape.tile_at(*id, query.head);
        let (keys, values) = stored[at..at + 2 * shape.half_tile()].split_at(shape.half_tile());
        let mut scores = scores(keys, query.values, options);
        for (token, score) in scores.iter_mut().enumerate() {
            let position = page * PAGE_TOKENS + token;
            if position < first || position > query.position {
                *score = f32::NEG_INFINITY;
            }
        }
        let high = scores.iter().copied().fold(highest, f32::max);
        let fade = (highest - high).exp();
        highest = high;
        total *= fade;
        sums.iter_mut().for_each(|sum| *sum *= fade);
        for (score, values) in scores.iter().zip(values.chunks_exact(shape.head_dim)) {
            let weight = (score - highest).exp();
            total += weight;
            if weight > 0.0 {
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += weight * value.to_f32();
                }
            }
        }
    }
    for (out, sum) in out.iter_mut().zip(sums.iter()) {
        *out = sum / total;
    }
}

fn scores<T: Stored>(keys: &[T], query: &[f32], options: AttentionOptions) -> [f32; PAGE_TOKENS] {
    let mut scores = [0f32; PAGE_TOKENS];
    let tiles = keys.chunks_exact(query.len() * LANES);
    for (scores, tile) in scores.chunks_exact_mut(LANES).zip(tiles) {
        for (value, keys) in query.iter().zip(tile.chunks_exact(LANES)) {
            for (score, key) in scores.iter_mut().zip(keys) {
                *score += value * key.to_f32();
            }
        }
    }
    for score in &mut scores {
        *score *= options.scale;
        if let Some(cap) = options.softcap {
            *score = cap * (*score / cap).tanh();
        }
    }
    scores
}

#[cfg(test)]
mod tests;
