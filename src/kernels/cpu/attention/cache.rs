//! A KV cache that many calls read, laid out once like pages.

use candle_core::{Result, Tensor, bail};
use half::f16;

use super::dense::{Mask, Sizes};
use super::queries::TileAtEveryLevel;
use super::tile::FloatTile;
use super::{LANES, Level, Stored};
use crate::cpu::memory::Aligned;
use crate::cpu::tensors::{from_floats, with_floats};
use crate::cpu::threads::each;
use crate::{KvDtype, PAGE_TOKENS};

/// See [`crate::KvCache`].
#[derive(Debug)]
pub struct KvTiles {
    tiles: Aligned,
    dtype: KvDtype,
    sizes: Sizes,
}

impl KvTiles {
    /// Allocates space for this many tokens; `[tokens, heads, head_dim]`.
    pub fn new([tokens, heads, head_dim]: [usize; 3], dtype: KvDtype) -> Result<Self> {
        let sizes = Sizes {
            queries: 0,
            keys: tokens,
            heads,
            kv_heads: heads,
            head_dim,
            pages: tokens.div_ceil(PAGE_TOKENS),
            bias: [0; 2],
        };
        let size = match dtype {
            KvDtype::F32 => size_of::<f32>(),
            KvDtype::F16 => size_of::<f16>(),
            KvDtype::Bf16 | KvDtype::Q8_0 => bail!("keys and values of a cache are f32 or f16"),
        };
        Ok(Self {
            tiles: Aligned::zeroed(heads * sizes.pages * sizes.tile_len() * size)?,
            dtype,
            sizes,
        })
    }

    /// An independent copy.
    pub fn fork(&self) -> Result<Self> {
        let mut tiles = Aligned::zeroed(self.tiles.bytes())?;
        tiles.view_mut::<u8>().copy_from_slice(self.tiles.view());
        Ok(Self { tiles, ..*self })
    }

    pub fn write(&mut self, from: usize, k: &Tensor, v: &Tensor) -> Result<()> {
        let (tokens, heads, head_dim) = k.dims3()?;
        let sizes = self.sizes;
        let fits =
            from + tokens <= sizes.keys && [heads, head_dim] == [sizes.heads, sizes.head_dim];
        if !fits || v.dims() != k.dims() {
            bail!(
                "keys {:?} and values {:?} from {from} on do not fit a cache of {} tokens of {} heads of {}",
                k.dims(),
                v.dims(),
                sizes.keys,
                sizes.heads,
                sizes.head_dim
            );
        }
        with_floats(k, |k| {
            with_floats(v, |v| {
                match self.dtype {
                    KvDtype::F16 => write_as(self.tiles.view_mut::<f16>(), sizes, from, [k, v]),
                    _ => write_as(self.tiles.view_mut::<f32>(), sizes, from, [k, v]),
                }
                Ok(())
            })
        })
    }

    /// The queries are the last of `keys` tokens.
    pub fn attend(&self, q: &Tensor, keys: usize, scale: f32, mask: Mask) -> Result<Tensor> {
        self.attend_at(Level::best(), q, keys, scale, mask)
    }

    fn attend_at(
        &self,
        level: Level,
        q: &Tensor,
        keys: usize,
        scale: f32,
        mask: Mask,
    ) -> Result<Tensor> {
        let (queries, heads, head_dim) = q.dims3()?;
        let room = self.sizes.keys;
        let is_covered = (1..=room).contains(&keys) && queries > 0;
        if !is_covered || [heads, head_dim] != [self.sizes.heads, self.sizes.head_dim] {
            bail!(
                "queries {:?} of {keys} keys do not fit a cache of {room} tokens of {} heads of {}",
                q.dims(),
                self.sizes.heads,
                self.sizes.head_dim
            );
        }
        if matches!(mask, Mask::Bias(_)) {
            bail!("attention to a cache takes no bias");
        }
        let sizes = Sizes {
            queries,
            keys,
            ..self.sizes
        };
        with_floats(q, |values| {
            let attended = match self.dtype {
                KvDtype::F16 => {
                    attend_to(self.tiles.view::<f16>(), sizes, level, values, scale, mask)
                }
                _ => attend_to(self.tiles.view::<f32>(), sizes, level, values, scale, mask),
            };
            from_floats(attended, q.dims())
        })
    }

    /// The keys of a head, `[tokens, head_dim]`.
    pub fn keys(&self, head: usize) -> Result<Tensor> {
        if head >= self.sizes.heads {
            bail!("a cache of {} heads has no head {head}", self.sizes.heads);
        }
        let numbers = match self.dtype {
            KvDtype::F16 => keys_of(self.tiles.view::<f16>(), self.sizes, head),
            _ => keys_of(self.tiles.view::<f32>(), self.sizes, head),
        };
        from_floats(numbers, &[self.sizes.keys, self.sizes.head_dim])
    }
}

fn write_as<T: Stored>(tiles: &mut [T], sizes: Sizes, from: usize, [k, v]: [&[f32]; 2]) {
    let row = sizes.heads * sizes.head_dim;
    let (tokens, of_head) = (k.len() / row, sizes.pages * sizes.tile_len());
    let mut heads: Vec<(usize, &mut [T])> = tiles.chunks_exact_mut(of_head).enumerate().collect();
    each(&mut heads, k.len() * 4, |(head, tiles)| {
        for token in 0..tokens {
            let (page, place) = ((from + token) / PAGE_TOKENS, (from + token) % PAGE_TOKENS);
            let tile = &mut tiles[page * sizes.tile_len()..][..sizes.tile_len()];
            let at = token * row + *head * sizes.head_dim;
            let numbers = at..at + sizes.head_dim;
            sizes.lay_out(tile, place, &k[numbers.clone()], &v[numbers]);
        }
    });
}

fn attend_to<T: Stored>(
    tiles: &[T],
    sizes: Sizes,
    level: Level,
    q: &[f32],
    scale: f32,
    mask: Mask,
) -> Vec<f32>
where
    for<'t> FloatTile<'t, T>: TileAtEveryLevel,
{
    sizes.attend(level, 1, q, tiles, &[], scale, mask)
}

fn keys_of<T: Stored>(tiles: &[T], sizes: Sizes, head: usize) -> Vec<f32> {
    let mut numbers = Vec::with_capacity(sizes.keys * sizes.head_dim);
    for token in 0..sizes.keys {
        let tile = head * sizes.pages + token / PAGE_TOKENS;
        let half = token % PAGE_TOKENS / LANES;
        for i in 0..sizes.head_dim {
            let at = tile * sizes.tile_len() + (half * sizes.head_dim + i) * LANES;
            let wide = tiles[at..].first_chunk::<LANES>().map(T::widen::<false>);
            numbers.push(wide.map_or(0.0, |wide| wide[token % LANES]));
        }
    }
    numbers
}
