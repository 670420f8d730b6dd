//! Attention over pages.
//!
//! A page holds, for each key/value head, its keys transposed in two sub-tiles of sixteen tokens
//! (`[2][d][16]`) and its values row-wise (`[32][d]`). A query goes through its pages in order, so its
//! result depends on nothing but its own context.

#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use candle_core::{DType, Result, Tensor, bail};
use half::{bf16, f16};

mod queries;
mod stored;

use self::queries::{AtEveryLevel, Query, attend};
use self::stored::Stored;
use super::level::Level;
use super::memory::Aligned;
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};
use crate::{AttentionOptions, PAGE_TOKENS, Span};

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
            bail!("{pages} pages of {kv_heads} heads of {head_dim} exceed the largest allocation");
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

/// See [`crate::paged_attention`].
pub fn paged_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    pages: &mut Pages,
    spans: &[Span],
    options: AttentionOptions,
) -> Result<Tensor> {
    paged_attention_at(Level::best(), [q, k, v], pages, spans, options)
}

fn paged_attention_at(
    level: Level,
    [q, k, v]: [&Tensor; 3],
    pages: &mut Pages,
    spans: &[Span],
    options: AttentionOptions,
) -> Result<Tensor> {
    check(q, k, v, pages, spans)?;
    match pages.dtype {
        DType::F32 => attend_as::<f32>(level, [q, k, v], pages, spans, options),
        DType::F16 => attend_as::<f16>(level, [q, k, v], pages, spans, options),
        _ => attend_as::<bf16>(level, [q, k, v], pages, spans, options),
    }
}

fn check(q: &Tensor, k: &Tensor, v: &Tensor, pages: &Pages, spans: &[Span]) -> Result<()> {
    let (tokens, heads, head_dim) = q.dims3()?;
    let wanted = [tokens, pages.shape.kv_heads, pages.shape.head_dim];
    for given in [k, v] {
        if given.dims() != wanted {
            bail!(
                "keys or values have shape {:?}, expected {wanted:?}",
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
        bail!("the plan has {planned} rows, but the queries have {tokens}");
    }
    let listed = spans.iter().flat_map(|span| &span.pages);
    match listed.max() {
        Some(&page) if page as usize >= pages.shape.pages => {
            bail!("page {page} is out of range (pages: {})", pages.shape.pages)
        }
        _ => Ok(()),
    }
}

fn attend_as<T: AtEveryLevel>(
    level: Level,
    [q, k, v]: [&Tensor; 3],
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
    let (_, heads, head_dim) = q.dims3()?;
    let group = heads / shape.kv_heads;
    with_floats(q, |values| {
        let mut result = vec![0f32; values.len()];
        let rows = Disjoint::new(&mut result);
        let places = placed(spans);
        let blocks = blocks(spans);
        let seen: usize = places.iter().map(|(_, position)| position + 1).sum();
        let cost = seen.saturating_mul(heads * head_dim / 8);
        share(blocks.len() * shape.kv_heads, cost, |range| {
            for item in range {
                let (block, head) = (&blocks[item / shape.kv_heads], item % shape.kv_heads);
                let mut queries: Vec<_> = (block.start..block.end)
                    .flat_map(|row| (head * group..(head + 1) * group).map(move |head| (row, head)))
                    .map(|(row, head)| {
                        let at = (row * heads + head) * head_dim;
                        let at = at..at + head_dim;
                        Query {
                            values: &values[at.clone()],
                            position: places[row].1,
                            // SAFETY: each row and head belongs to one item.
                            out: unsafe { rows.part(at) },
                        }
                    })
                    .collect();
                let span = places[block.start].0;
                let tiles = span.pages.iter().map(|page| {
                    let at = shape.tile_at(*page, head);
                    stored[at..at + 2 * shape.half_tile()].split_at(shape.half_tile())
                });
                let tiles: Vec<_> = tiles.collect();
                attend(level, &tiles, &mut queries, options);
            }
        });
        from_floats(result, q.dims())
    })
}

/// Rows of the flat batch that are attended together: a few neighbours of one span.
fn blocks(spans: &[Span]) -> Vec<std::ops::Range<usize>> {
    const ROWS: usize = 16;
    let (mut blocks, mut first) = (Vec::new(), 0);
    for span in spans {
        let end = first + span.new_tokens;
        blocks.extend(
            (first..end)
                .step_by(ROWS)
                .map(|row| row..end.min(row + ROWS)),
        );
        first = end;
    }
    blocks
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

#[cfg(test)]
mod tests;
