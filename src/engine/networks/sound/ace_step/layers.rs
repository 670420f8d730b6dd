//! The layers that all networks of ACE-Step are made of. Sequences are `[batch, places, width]`.

use candle_core::{D, Device, Result, Tensor};

use super::SongLayerSpec;
use crate::networks::blocks::{ComponentReader, Projection, block_end};
use crate::networks::weights::Flaw;
use muster_kernels::{Mask, RopeStyle, RopeTable, dense_attention, rms_norm, rotate, silu_mul};

/// Queries are cut so that queries, keys and heads together make fewer pairs at once: a bound for the scores that some
/// devices write out, and for the time until a job can be cancelled.
const MOST_PAIRS: usize = 1 << 27;
const LEAST_QUERIES: usize = 64;

/// The angles of the places of a sequence.
pub struct SongRope {
    table: RopeTable,
}

/// Attention with norms of queries and keys, several of which share a head of keys.
pub struct SongAttention {
    spec: SongLayerSpec,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    query_norm: Tensor,
    key_norm: Tensor,
}

/// Keys and values, `[batch, places, heads, size]`.
pub struct SongKeys([Tensor; 2]);

pub struct SongFeed {
    gate: Projection,
    up: Projection,
    down: Projection,
}

/// A stack of layers that encodes a condition.
pub struct SongEncoder {
    spec: SongLayerSpec,
    inward: Projection,
    layers: Vec<SongEncoderLayer>,
    norm: Tensor,
}

struct SongEncoderLayer {
    attention: SongAttention,
    attention_norm: Tensor,
    feed: SongFeed,
    feed_norm: Tensor,
    window: Option<usize>,
}

impl SongLayerSpec {
    /// The window of a layer with limited attention.
    pub(super) fn sight(&self, has_window: bool) -> Option<usize> {
        has_window.then_some(self.window)
    }

    pub(super) fn rope(&self, places: usize, device: &Device) -> Result<SongRope> {
        let half = self.head_size / 2;
        let powers = (0..half).map(|at| at as f64 / half as f64);
        let frequencies = powers.map(|power| self.theta.powf(-power)).collect();
        let table = RopeTable::new(frequencies, places.max(1), RopeStyle::Halves, 1.0, device)?;
        Ok(SongRope { table })
    }
}

impl SongRope {
    fn turned(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, places, heads, size) = x.dims4()?;
        let at = (0..batch).flat_map(|_| 0..places as u32);
        let at = Tensor::from_vec(at.collect(), batch * places, x.device())?;
        let flat = x.reshape((batch * places, heads, size))?;
        rotate(&flat, &self.table, &at)?.reshape(x.dims())
    }
}

impl SongAttention {
    pub fn load(
        reader: &mut ComponentReader<'_>,
        stem: &str,
        spec: &SongLayerSpec,
    ) -> std::result::Result<Self, Flaw> {
        let (width, size) = (spec.width, spec.head_size);
        let mut layer =
            |part: &str, shape| reader.projection(&format!("{stem}.{part}"), shape, false);
        Ok(Self {
            query: layer("to_q", (spec.heads * size, width))?,
            key: layer("to_k", (spec.kv_heads * size, width))?,
            value: layer("to_v", (spec.kv_heads * size, width))?,
            output: layer("to_out.0", (width, spec.heads * size))?,
            query_norm: reader.vector(&format!("{stem}.norm_q.weight"), size)?,
            key_norm: reader.vector(&format!("{stem}.norm_k.weight"), size)?,
            spec: spec.clone(),
        })
    }

    /// Keys and values for cross-attention, without rope.
    pub fn keys(&self, seen: &Tensor) -> Result<SongKeys> {
        let key = self.in_heads(&self.key.apply(seen)?)?;
        let value = self.in_heads(&self.value.apply(seen)?)?;
        Ok(SongKeys([
            rms_norm(&key, &self.key_norm, self.spec.eps)?,
            value,
        ]))
    }

    /// Self-attention of all positions, or within a window of this many on each side.
    pub async fn to_itself(
        &self,
        x: &Tensor,
        rope: &SongRope,
        window: Option<usize>,
    ) -> Result<Tensor> {
        let SongKeys([key, value]) = self.keys(x)?;
        let query = rope.turned(&self.queries(x)?)?;
        let attended = attend([&query, &rope.turned(&key)?, &value], window, MOST_PAIRS).await?;
        self.output.apply(&attended.flatten_from(D::Minus2)?)
    }

    pub async fn to_others(&self, x: &Tensor, keys: &SongKeys) -> Result<Tensor> {
        let SongKeys([key, value]) = keys;
        let attended = attend([&self.queries(x)?, key, value], None, MOST_PAIRS).await?;
        self.output.apply(&attended.flatten_from(D::Minus2)?)
    }

    fn queries(&self, x: &Tensor) -> Result<Tensor> {
        let query = self.in_heads(&self.query.apply(x)?)?;
        rms_norm(&query, &self.query_norm, self.spec.eps)
    }

    fn in_heads(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, places, width) = x.dims3()?;
        let size = self.spec.head_size;
        x.reshape((batch, places, width / size, size))
    }
}

/// Attention in chunks of at most `most_pairs` query-key pairs, yielding between them. A window has this many positions
/// on each side.
async fn attend(
    [query, key, value]: [&Tensor; 3],
    window: Option<usize>,
    most_pairs: usize,
) -> Result<Tensor> {
    let (_, queries, heads, size) = query.dims4()?;
    let (keys, scale) = (key.dim(1)?, (size as f32).powf(-0.5));
    let most = (most_pairs / (heads * keys).max(1)).max(LEAST_QUERIES);
    let mut parts = Vec::new();
    for from in (0..queries).step_by(most) {
        let end = queries.min(from + most);
        let part = query.narrow(1, from, end - from)?.contiguous()?;
        parts.push(match window {
            None => dense_attention(&part, key, value, scale, Mask::None)?,
            Some(window) => {
                let (first, last) = (from.saturating_sub(window), keys.min(end + window));
                let seen = |x: &Tensor| x.narrow(1, first, last - first)?.contiguous();
                // The last query of a chunk is before its last key.
                let behind = last - end;
                let mask = Mask::Band {
                    before: window + behind,
                    after: window - behind,
                };
                dense_attention(&part, &seen(key)?, &seen(value)?, scale, mask)?
            }
        });
        if end < queries {
            block_end().await;
        }
    }
    match parts.as_slice() {
        [whole] => Ok(whole.clone()),
        parts => Tensor::cat(parts, 1),
    }
}

impl SongFeed {
    pub fn load(
        reader: &mut ComponentReader<'_>,
        stem: &str,
        spec: &SongLayerSpec,
    ) -> std::result::Result<Self, Flaw> {
        let (width, feed) = (spec.width, spec.feed);
        let mut layer =
            |part: &str, shape| reader.projection(&format!("{stem}.{part}_proj"), shape, false);
        Ok(Self {
            gate: layer("gate", (feed, width))?,
            up: layer("up", (feed, width))?,
            down: layer("down", (width, feed))?,
        })
    }

    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down
            .apply(&silu_mul(&self.gate.apply(x)?, &self.up.apply(x)?)?)
    }
}

impl SongEncoder {
    pub fn load(
        reader: &mut ComponentReader<'_>,
        stem: &str,
        spec: &SongLayerSpec,
        (inputs, windows): (usize, &[bool]),
    ) -> std::result::Result<Self, Flaw> {
        let width = spec.width;
        let mut layers = Vec::with_capacity(windows.len());
        for (at, has_window) in windows.iter().enumerate() {
            let stem = format!("{stem}.layers.{at}");
            layers.push(SongEncoderLayer {
                attention: SongAttention::load(reader, &format!("{stem}.self_attn"), spec)?,
                attention_norm: reader.vector(&format!("{stem}.input_layernorm.weight"), width)?,
                feed: SongFeed::load(reader, &format!("{stem}.mlp"), spec)?,
                feed_norm: reader
                    .vector(&format!("{stem}.post_attention_layernorm.weight"), width)?,
                window: spec.sight(*has_window),
            });
        }
        Ok(Self {
            inward: reader.projection(&format!("{stem}.embed_tokens"), (width, inputs), true)?,
            norm: reader.vector(&format!("{stem}.norm.weight"), width)?,
            layers,
            spec: spec.clone(),
        })
    }

    pub async fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let rope = self.spec.rope(x.dim(1)?, x.device())?;
        let mut x = self.inward.apply(x)?;
        for layer in &self.layers {
            x = layer.forward(&x, &rope, self.spec.eps).await?;
            block_end().await;
        }
        rms_norm(&x, &self.norm, self.spec.eps)
    }
}

impl SongEncoderLayer {
    async fn forward(&self, x: &Tensor, rope: &SongRope, eps: f64) -> Result<Tensor> {
        let normed = rms_norm(x, &self.attention_norm, eps)?;
        let attended = self.attention.to_itself(&normed, rope, self.window).await?;
        let x = (x + attended)?;
        &x + self.feed.forward(&rms_norm(&x, &self.feed_norm, eps)?)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::networks::blocks::run;

    #[test]
    fn attention_in_parts_is_that_of_the_whole() {
        let random = |heads| {
            let shape = [2usize, 200, heads, 8];
            Tensor::randn(0f32, 1.0, &shape, &Device::Cpu).unwrap()
        };
        let (query, key, value) = (random(4), random(2), random(2));
        for window in [None, Some(1), Some(70), Some(500)] {
            let found = |most_pairs| -> Vec<f32> {
                let attended = run(attend([&query, &key, &value], window, most_pairs)).unwrap();
                assert_eq!(attended.dims(), query.dims());
                attended.flatten_all().unwrap().to_vec1().unwrap()
            };
            let (parts, whole) = (found(1), found(MOST_PAIRS));
            let gaps = parts.iter().zip(&whole).map(|(a, b)| (a - b).abs());
            assert!(gaps.fold(0.0, f32::max) < 1e-5, "{window:?}");
        }
    }
}
