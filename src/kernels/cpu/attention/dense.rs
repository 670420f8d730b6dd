//! Attention without pages: keys and values are laid out as pages are, then seen in the same way.

use candle_core::{Result, Tensor, bail};

use super::queries::{Query, Softmax, TileAtEveryLevel, attend};
use super::tile::FloatTile;
use super::{LANES, Level, QUERIES, Stored};
use crate::cpu::tensors::{from_floats, with_floats};
use crate::cpu::threads::{Disjoint, share};
use crate::{AttentionOptions, AttentionReach, PAGE_TOKENS};

/// The keys that a query attends to. Queries are the last tokens of the keys.
#[derive(Debug, Clone, Copy, Default)]
pub enum Mask<'a> {
    /// All.
    #[default]
    None,
    /// All up to its own.
    Causal,
    /// This many keys before the query's own position, and this many after it.
    Band { before: usize, after: usize },
    /// All, after this is added: `[batch or 1, heads or 1, queries, keys]`.
    Bias(&'a Tensor),
}

/// See [`crate::dense_attention()`].
pub fn dense_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    scale: f32,
    mask: Mask,
) -> Result<Tensor> {
    dense_attention_at(Level::best(), [q, k, v], scale, mask)
}

pub(super) fn dense_attention_at(
    level: Level,
    [q, k, v]: [&Tensor; 3],
    scale: f32,
    mask: Mask,
) -> Result<Tensor> {
    let (batch, queries, heads, head_dim) = q.dims4()?;
    let (_, keys, kv_heads, _) = k.dims4()?;
    let wanted = [batch, keys, kv_heads, head_dim];
    if k.dims() != wanted || v.dims() != wanted || !heads.is_multiple_of(kv_heads.max(1)) {
        bail!(
            "keys {:?} and values {:?} do not fit queries {:?}",
            k.dims(),
            v.dims(),
            q.dims()
        );
    }
    if q.elem_count() == 0 || keys == 0 {
        bail!("attention of {queries} queries to {keys} keys has no result");
    }
    let mut sizes = Sizes {
        queries,
        keys,
        heads,
        kv_heads,
        head_dim,
        pages: keys.div_ceil(PAGE_TOKENS),
        bias: [0; 2],
    };
    let no_bias = Tensor::zeros(1, candle_core::DType::F32, q.device())?;
    let bias = match mask {
        Mask::Bias(bias) => {
            sizes.bias = sizes.bias_strides(batch, bias)?;
            bias
        }
        Mask::None | Mask::Causal | Mask::Band { .. } => &no_bias,
    };
    let result = with_floats(q, |q| {
        with_floats(k, |k| {
            with_floats(v, |v| {
                with_floats(bias, |bias| {
                    let tiles = sizes.tiles(batch, k, v);
                    Ok(sizes.attend(level, batch, q, &tiles, bias, scale, mask))
                })
            })
        })
    })?;
    from_floats(result, q.dims())
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub queries: usize,
    pub keys: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Tiles of a head, whose last one may be partly filled.
    pub pages: usize,
    /// Rows of the bias from one entry of the batch to the next, and from one head to the next.
    pub bias: [usize; 2],
}

impl Sizes {
    fn bias_strides(&self, batch: usize, bias: &Tensor) -> Result<[usize; 2]> {
        let (batches, heads, queries, keys) = bias.dims4()?;
        let fits = [1, batch].contains(&batches) && [1, self.heads].contains(&heads);
        if !fits || [queries, keys] != [self.queries, self.keys] {
            bail!(
                "a bias of shape {:?} does not fit {} queries and {} keys of {} heads",
                bias.dims(),
                self.queries,
                self.keys,
                self.heads
            );
        }
        let of_head = if heads == 1 { 0 } else { queries };
        Ok([if batches == 1 { 0 } else { heads * queries }, of_head])
    }

    /// Values are filled up with zeros to whole registers.
    fn value_dim(&self) -> usize {
        self.head_dim.next_multiple_of(LANES)
    }

    pub fn tile_len(&self) -> usize {
        PAGE_TOKENS * (self.head_dim + self.value_dim())
    }

    /// Lays out, per entry of the batch, head and page, keys `[2][d][16]`, then values `[32][value_dim]`.
    fn tiles(&self, batch: usize, k: &[f32], v: &[f32]) -> Vec<f32> {
        let mut tiles = vec![0f32; batch * self.kv_heads * self.pages * self.tile_len()];
        let written = Disjoint::new(&mut tiles);
        share(batch * self.kv_heads * self.pages, k.len() * 4, |range| {
            for index in range {
                let (page, head) = (index % self.pages, index / self.pages % self.kv_heads);
                let batch = index / self.pages / self.kv_heads;
                // SAFETY: every tile is visited once.
                let tile =
                    unsafe { written.part(index * self.tile_len()..(index + 1) * self.tile_len()) };
                for token in 0..PAGE_TOKENS.min(self.keys - page * PAGE_TOKENS) {
                    let row = batch * self.keys + page * PAGE_TOKENS + token;
                    let from = (row * self.kv_heads + head) * self.head_dim;
                    let numbers = from..from + self.head_dim;
                    self.lay_out(tile, token, &k[numbers.clone()], &v[numbers]);
                }
            }
        });
        tiles
    }

    /// Writes the key and the value of one token of a tile.
    pub fn lay_out<T: Stored>(&self, tile: &mut [T], token: usize, key: &[f32], value: &[f32]) {
        let (keys, values) = tile.split_at_mut(PAGE_TOKENS * self.head_dim);
        let column = token / LANES * LANES * self.head_dim + token % LANES;
        for (cell, number) in keys[column..].iter_mut().step_by(LANES).zip(key) {
            *cell = T::from_f32(*number);
        }
        let cells = &mut values[token * self.value_dim()..][..self.head_dim];
        for (cell, number) in cells.iter_mut().zip(value) {
            *cell = T::from_f32(*number);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "operands of one operation")]
    pub fn attend<T: Stored>(
        &self,
        level: Level,
        batch: usize,
        q: &[f32],
        tiles: &[T],
        bias: &[f32],
        scale: f32,
        mask: Mask,
    ) -> Vec<f32>
    where
        for<'t> FloatTile<'t, T>: TileAtEveryLevel,
    {
        let mut result = vec![0f32; q.len()];
        let written = Disjoint::new(&mut result);
        let group = self.heads / self.kv_heads;
        let rows = (QUERIES / group).max(1);
        let blocks = self.queries.div_ceil(rows);
        let options = AttentionOptions {
            scale,
            window: None,
            softcap: None,
            reach: AttentionReach::Past,
        };
        let of_head = self.pages * self.tile_len();
        share(
            batch * self.kv_heads * blocks,
            q.len() / 8 * self.keys,
            |range| {
                let mut sums = Vec::new();
                for index in range {
                    let (block, head) = (index % blocks, index / blocks % self.kv_heads);
                    let batch = index / blocks / self.kv_heads;
                    let rows = block * rows..self.queries.min((block + 1) * rows);
                    let pairs = rows.flat_map(|row| {
                        (head * group..(head + 1) * group).map(move |head| (row, head))
                    });
                    let pairs: Vec<(usize, usize)> = pairs.collect();
                    sums.clear();
                    sums.resize(pairs.len() * self.value_dim(), 0.0);
                    let at = |row: usize, head: usize| {
                        ((batch * self.queries + row) * self.heads + head) * self.head_dim
                    };
                    let outs = sums.chunks_exact_mut(self.value_dim());
                    let queries = pairs.iter().zip(outs).map(|(&(row, head), out)| Query {
                        values: &q[at(row, head)..at(row, head) + self.head_dim],
                        seen: self.seen(row, mask),
                        bias: matches!(mask, Mask::Bias(_)).then(|| {
                            let row = batch * self.bias[0] + head * self.bias[1] + row;
                            &bias[row * self.keys..(row + 1) * self.keys]
                        }),
                        out,
                        softmax: Softmax::NOTHING_SEEN,
                    });
                    let mut queries: Vec<Query> = queries.collect();
                    let first = (batch * self.kv_heads + head) * of_head;
                    let tiles = tiles[first..first + of_head].chunks_exact(self.tile_len());
                    let tiles: Vec<_> = tiles
                        .map(|tile| FloatTile::new(tile.split_at(PAGE_TOKENS * self.head_dim)))
                        .collect();
                    attend(level, &tiles, &mut queries, options);
                    for query in queries {
                        query.softmax.normalize(query.out);
                    }
                    for (&(row, head), sums) in
                        pairs.iter().zip(sums.chunks_exact(self.value_dim()))
                    {
                        // SAFETY: each row and head belongs to one item.
                        let out =
                            unsafe { written.part(at(row, head)..at(row, head) + self.head_dim) };
                        out.copy_from_slice(&sums[..self.head_dim]);
                    }
                }
            },
        );
        result
    }

    fn seen(&self, row: usize, mask: Mask) -> std::ops::Range<usize> {
        let own = (row + self.keys).saturating_sub(self.queries);
        match mask {
            Mask::None | Mask::Bias(_) => 0..self.keys,
            Mask::Causal => 0..own + 1,
            Mask::Band { before, after } => {
                own.saturating_sub(before)..self.keys.min(own.saturating_add(after) + 1)
            }
        }
    }
}
