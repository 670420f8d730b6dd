//! Attention over pages.
//!
//! A page holds, for each key/value head, its keys transposed in two sub-tiles of sixteen tokens
//! (`[2][d][16]`) and its values row-wise (`[32][d]`). A query goes through its pages in order, so its
//! result depends on nothing but its own context.

#![expect(unsafe_code, reason = "threads write disjoint tiles of the pages")]

use std::ops::Range;

use candle_core::{Result, Tensor, bail};
use half::{bf16, f16};

#[cfg(target_arch = "x86_64")]
mod avx512;
mod cache;
mod dense;
mod latent;
mod queries;
mod resize;
mod step;
mod tile;

pub use self::cache::KvTiles;
pub use self::dense::{Mask, dense_attention};
use self::latent::{LatentTile, LatentTileMut};
use self::step::{Step, StepHeads};
use self::tile::{BLOCK, FloatTile, FloatTileMut, Q8Tile, Q8TileMut, TileWriter};
use super::level::Level;
use super::memory::Aligned;
use super::stored::{LANES, Stored};
use super::tensors::{from_floats, with_floats};
use super::threads::{Disjoint, share};
use crate::{AttentionOptions, KvDtype, PAGE_TOKENS, Span};

/// Queries that see a page while it is in the cache, of all heads that share its keys.
const QUERIES: usize = 64;

/// The KV cache of one layer.
#[derive(Debug)]
pub struct Pages {
    numbers: Aligned,
    /// Scales of [`KvDtype::Q8_0`]: one per [`BLOCK`] of numbers, in the same order of tiles.
    scales: Option<Aligned>,
    dtype: KvDtype,
    shape: Shape,
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    pages: usize,
    kv_heads: usize,
    head_dim: usize,
    /// For latents, the number of leading numbers of a key that are its value.
    latent_value_dim: Option<usize>,
}

impl Shape {
    /// Numbers of one head's keys in one page; its values take as many, or none of latents.
    fn half_tile(self) -> usize {
        PAGE_TOKENS * self.head_dim
    }

    fn tile_len(self) -> usize {
        match self.latent_value_dim {
            Some(_) => self.half_tile(),
            None => 2 * self.half_tile(),
        }
    }

    fn value_dim(self) -> usize {
        self.latent_value_dim.unwrap_or(self.head_dim)
    }

    fn tile_at(self, page: u32, head: usize) -> usize {
        (page as usize * self.kv_heads + head) * self.tile_len()
    }

    /// The latents of a head in a page.
    fn latents<T>(self, numbers: &[T], page: u32, head: usize) -> &[T] {
        &numbers[self.tile_at(page, head)..][..self.tile_len()]
    }

    /// The keys and values of a head in a page.
    fn tile<T>(self, numbers: &[T], page: u32, head: usize) -> (&[T], &[T]) {
        let at = self.tile_at(page, head);
        numbers[at..at + 2 * self.half_tile()].split_at(self.half_tile())
    }

    /// Their scales.
    fn scales(self, scales: &[f16], page: u32, head: usize) -> (&[f16], &[f16]) {
        let (at, half) = (self.tile_at(page, head) / BLOCK, self.half_tile() / BLOCK);
        scales[at..at + 2 * half].split_at(half)
    }
}

impl Pages {
    pub fn new(pages: usize, kv_heads: usize, head_dim: usize, dtype: KvDtype) -> Result<Self> {
        if !dtype.takes(head_dim) {
            bail!(
                "keys and values are stored as {dtype} where {BLOCK} divides the size of a head, which is {head_dim}; use f16"
            );
        }
        Self::of_shape(
            Shape {
                pages,
                kv_heads,
                head_dim,
                latent_value_dim: None,
            },
            dtype,
        )
    }

    /// Pages of latents of `dim` numbers, whose first `value_dim` are their values.
    pub fn of_latents(pages: usize, dim: usize, value_dim: usize, dtype: KvDtype) -> Result<Self> {
        if dtype == KvDtype::Q8_0 {
            bail!("latents are stored as f32, f16 or bf16, not {dtype}; use f16");
        }
        if !(1..=dim).contains(&value_dim) {
            bail!("a latent of {dim} numbers has no value of {value_dim}");
        }
        Self::of_shape(
            Shape {
                pages,
                kv_heads: 1,
                head_dim: dim,
                latent_value_dim: Some(value_dim),
            },
            dtype,
        )
    }

    fn of_shape(shape: Shape, dtype: KvDtype) -> Result<Self> {
        let Shape {
            pages,
            kv_heads,
            head_dim,
            latent_value_dim,
        } = shape;
        let parts = if latent_value_dim.is_some() { 1 } else { 2 };
        let numbers = [pages, kv_heads, head_dim, parts * PAGE_TOKENS]
            .into_iter()
            .try_fold(1usize, usize::checked_mul);
        let size = match dtype {
            KvDtype::F32 => size_of::<f32>(),
            KvDtype::F16 | KvDtype::Bf16 => size_of::<f16>(),
            KvDtype::Q8_0 => size_of::<i8>(),
        };
        let bytes = numbers.and_then(|numbers| numbers.checked_mul(size));
        let (Some(numbers), Some(bytes)) = (numbers, bytes) else {
            bail!("{pages} pages of {kv_heads} heads of {head_dim} exceed the largest allocation");
        };
        let scales = (dtype == KvDtype::Q8_0)
            .then(|| Aligned::zeroed(numbers / BLOCK * size_of::<f16>()))
            .transpose()?;
        Ok(Self {
            numbers: Aligned::zeroed(bytes)?,
            scales,
            dtype,
            shape,
        })
    }

    pub fn holds_latents(&self) -> bool {
        self.shape.latent_value_dim.is_some()
    }

    pub fn bytes(&self) -> usize {
        let scales = self.scales.as_ref().map_or(0, Aligned::bytes);
        self.numbers.bytes() + scales
    }
}

/// See [`crate::paged_attention`] and [`crate::paged_attention_with_sinks`].
pub fn paged_attention(
    operands: [&Tensor; 3],
    pages: &mut Pages,
    spans: &[Span],
    options: AttentionOptions,
    sinks: Option<&[f32]>,
) -> Result<Tensor> {
    paged_attention_at(Level::best(), operands, pages, (spans, &[]), options, sinks)
}

/// The same where rows see others up to the end of their blocks: positions for each row, or none at all.
pub fn paged_attention_in_blocks(
    operands: [&Tensor; 3],
    pages: &mut Pages,
    rows: (&[Span], &[usize]),
    options: AttentionOptions,
) -> Result<Tensor> {
    paged_attention_at(Level::best(), operands, pages, rows, options, None)
}

/// See [`crate::shared_attention`].
pub fn shared_attention(
    q: &Tensor,
    pages: &Pages,
    spans: &[Span],
    options: AttentionOptions,
) -> Result<Tensor> {
    shared_attention_at(Level::best(), q, pages, (spans, &[]), options, None)
}

fn paged_attention_at(
    level: Level,
    [q, k, v]: [&Tensor; 3],
    pages: &mut Pages,
    (spans, block_ends): (&[Span], &[usize]),
    options: AttentionOptions,
    sinks: Option<&[f32]>,
) -> Result<Tensor> {
    check(q, pages, spans)?;
    check_new(q, [k, v], pages)?;
    with_floats(k, |k| {
        with_floats(v, |v| {
            pages.write(spans, k, v);
            Ok(())
        })
    })?;
    shared_attention_at(level, q, pages, (spans, block_ends), options, sinks)
}

fn shared_attention_at(
    level: Level,
    q: &Tensor,
    pages: &Pages,
    (spans, block_ends): (&[Span], &[usize]),
    options: AttentionOptions,
    sinks: Option<&[f32]>,
) -> Result<Tensor> {
    check(q, pages, spans)?;
    let heads = q.dim(1)?;
    if let Some(sinks) = sinks.filter(|sinks| sinks.len() != heads) {
        bail!("{} sinks do not fit {heads} heads", sinks.len());
    }
    with_floats(q, |values| {
        let shape = pages.shape;
        let step = Step {
            level,
            queries: values,
            spans,
            block_ends,
            heads: StepHeads {
                queries: heads,
                kv: shape.kv_heads,
                key_dim: shape.head_dim,
                value_dim: shape.value_dim(),
            },
            options,
            sinks,
        };
        let (rows, heads, _) = q.dims3()?;
        from_floats(pages.attend(&step), &[rows, heads, shape.value_dim()])
    })
}

fn check_new(q: &Tensor, new: [&Tensor; 2], pages: &Pages) -> Result<()> {
    let wanted = [q.dim(0)?, pages.shape.kv_heads, pages.shape.head_dim];
    match new.iter().find(|given| given.dims() != wanted) {
        Some(given) => bail!(
            "keys or values have shape {:?}, expected {wanted:?}",
            given.dims()
        ),
        None => Ok(()),
    }
}

fn check(q: &Tensor, pages: &Pages, spans: &[Span]) -> Result<()> {
    let (tokens, heads, head_dim) = q.dims3()?;
    let wanted = [tokens, pages.shape.kv_heads, pages.shape.head_dim];
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

impl Pages {
    fn attend(&self, step: &Step) -> Vec<f32> {
        let shape = self.shape;
        if let Some(value_dim) = shape.latent_value_dim {
            return match self.dtype {
                KvDtype::F32 => step.attend(self.latents::<f32>(value_dim)),
                KvDtype::Bf16 => step.attend(self.latents::<bf16>(value_dim)),
                KvDtype::F16 | KvDtype::Q8_0 => step.attend(self.latents::<f16>(value_dim)),
            };
        }
        match (self.dtype, &self.scales) {
            (KvDtype::F32, _) => step.attend(self.floats::<f32>()),
            (KvDtype::F16, _) => step.attend(self.floats::<f16>()),
            (KvDtype::Bf16, _) => step.attend(self.floats::<bf16>()),
            (KvDtype::Q8_0, scales) => {
                let numbers = self.numbers.view::<i8>();
                let scales = scales.as_ref().map_or(&[][..], Aligned::view::<f16>);
                step.attend(|page, head| {
                    let scales = shape.scales(scales, page, head);
                    Q8Tile::new(shape.tile(numbers, page, head), scales)
                })
            }
        }
    }

    /// How to see a page of a head.
    fn floats<'a, T: Stored>(
        &'a self,
    ) -> impl Fn(u32, usize) -> FloatTile<'a, T> + Sync + use<'a, T> {
        let (shape, numbers) = (self.shape, self.numbers.view::<T>());
        move |page, head| FloatTile::new(shape.tile(numbers, page, head))
    }

    /// How to see a page of latents.
    fn latents<'a, T: Stored>(
        &'a self,
        value_dim: usize,
    ) -> impl Fn(u32, usize) -> LatentTile<'a, T> + Sync + use<'a, T> {
        let (shape, numbers) = (self.shape, self.numbers.view::<T>());
        move |page, head| LatentTile::new(shape.latents(numbers, page, head), value_dim)
    }

    fn write(&mut self, spans: &[Span], k: &[f32], v: &[f32]) {
        if self.shape.latent_value_dim.is_some() {
            return match self.dtype {
                KvDtype::F32 => self.write_latents::<f32>(spans, k),
                KvDtype::Bf16 => self.write_latents::<bf16>(spans, k),
                KvDtype::F16 | KvDtype::Q8_0 => self.write_latents::<f16>(spans, k),
            };
        }
        match self.dtype {
            KvDtype::F32 => self.write_floats::<f32>(spans, k, v),
            KvDtype::F16 => self.write_floats::<f16>(spans, k, v),
            KvDtype::Bf16 => self.write_floats::<bf16>(spans, k, v),
            KvDtype::Q8_0 => self.write_q8(spans, k, v),
        }
    }

    fn write_floats<T: Stored>(&mut self, spans: &[Span], k: &[f32], v: &[f32]) {
        let shape = self.shape;
        let numbers = Disjoint::new(self.numbers.view_mut::<T>());
        shape.write(spans, k, v, |at| {
            let (start, half) = (at, shape.half_tile());
            // SAFETY: one call at a time writes a tile, see `Shape::write`.
            let tile = unsafe { numbers.part(start..start + 2 * half) };
            let (keys, values) = tile.split_at_mut(half);
            FloatTileMut { keys, values }
        });
    }

    fn write_latents<T: Stored>(&mut self, spans: &[Span], k: &[f32]) {
        let shape = self.shape;
        let numbers = Disjoint::new(self.numbers.view_mut::<T>());
        shape.write(spans, k, k, |at| {
            // SAFETY: one call at a time writes a tile, see `Shape::write`.
            LatentTileMut(unsafe { numbers.part(at..at + shape.tile_len()) })
        });
    }

    fn write_q8(&mut self, spans: &[Span], k: &[f32], v: &[f32]) {
        let shape = self.shape;
        let numbers = Disjoint::new(self.numbers.view_mut::<i8>());
        let scales = self.scales.as_mut();
        let scales = Disjoint::new(scales.map_or(&mut [][..], Aligned::view_mut::<f16>));
        shape.write(spans, k, v, |at| {
            let (half, scale_at) = (shape.half_tile(), at / BLOCK);
            let half_scales = half / BLOCK;
            // SAFETY: one call at a time writes a tile, see `Shape::write`.
            let (tile, scales) = unsafe {
                (
                    numbers.part(at..at + 2 * half),
                    scales.part(scale_at..scale_at + 2 * half_scales),
                )
            };
            let (keys, values) = tile.split_at_mut(half);
            let (key_scales, value_scales) = scales.split_at_mut(half_scales);
            Q8TileMut {
                keys,
                values,
                key_scales,
                value_scales,
            }
        });
    }
}

/// New tokens on the same page.
struct Run {
    page: u32,
    /// The row of the first one.
    row: usize,
    /// Their places on the page.
    tokens: Range<usize>,
}

fn runs(spans: &[Span]) -> Vec<Run> {
    let (mut runs, mut row) = (Vec::new(), 0);
    for span in spans {
        let mut position = span.past_tokens;
        let end = span.past_tokens + span.new_tokens;
        while position < end {
            let first = position % PAGE_TOKENS;
            let tokens = first..PAGE_TOKENS.min(first + end - position);
            runs.push(Run {
                page: span.pages[position / PAGE_TOKENS],
                row,
                tokens: tokens.clone(),
            });
            position += tokens.len();
            row += tokens.len();
        }
    }
    runs
}

impl Shape {
    /// Writes the keys and values of the new tokens; `tile` returns the writer of the tile at an offset. Each tile has
    /// one writer at a time.
    fn write<W: TileWriter>(
        self,
        spans: &[Span],
        k: &[f32],
        v: &[f32],
        tile: impl Fn(usize) -> W + Sync,
    ) {
        let runs = runs(spans);
        let mut pages: Vec<u32> = runs.iter().map(|run| run.page).collect();
        pages.sort_unstable();
        let is_shared = pages.windows(2).any(|pair| pair[0] == pair[1]);
        // A page with writes from two spans is written sequentially, on this thread.
        let cost = if is_shared { 0 } else { k.len() * 4 };
        share(runs.len() * self.kv_heads, cost, |range| {
            for index in range {
                let (run, head) = (&runs[index / self.kv_heads], index % self.kv_heads);
                let mut writer = tile(self.tile_at(run.page, head));
                for (row, token) in (run.row..).zip(run.tokens.clone()) {
                    let at = (row * self.kv_heads + head) * self.head_dim;
                    let numbers = at..at + self.head_dim;
                    writer.write(token, &k[numbers.clone()], &v[numbers]);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
