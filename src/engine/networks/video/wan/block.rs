//! A transformer block: self-attention, cross-attention to the text, feed-forward.

use candle_core::{D, Result, Tensor};

use super::{WanRope, WanSpec};
use crate::networks::blocks::{AffineNorm, ComponentReader, Projection, block_end};
use crate::networks::weights::Flaw;
use muster_kernels::{Mask, dense_attention, gelu, layer_norm, rms_norm, rotate};

/// Queries are cut so that queries, keys and heads together make fewer pairs at once: a bound for the scores that some
/// devices write out, and for the time until a job can be cancelled.
const MOST_PAIRS: usize = 1 << 27;
const LEAST_QUERIES: usize = 64;

pub struct WanBlock {
    own: WanAttention,
    text_norm: Option<AffineNorm>,
    text: WanAttention,
    up: Projection,
    down: Projection,
    /// `[6, width]`: shift, scale and gate of the first part, then of the last.
    table: Tensor,
}

struct WanAttention {
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    /// Over all heads together.
    query_norm: Tensor,
    key_norm: Tensor,
}

/// Shifts, scales and gates of a run of tokens.
pub struct WanModulation {
    pub tokens: usize,
    /// `[kinds, width]`.
    pub rows: Tensor,
}

/// The norm without weights, then `x * (1 + scale) + shift` for each run of tokens of the whole batch. `kinds` are the
/// rows of shift and scale.
pub fn modulated(
    x: &Tensor,
    runs: &[WanModulation],
    [shift, scale]: [usize; 2],
    eps: f64,
) -> Result<Tensor> {
    each_run(x, runs, |part, run| {
        let scale = (run.rows.get(scale)? + 1.0)?;
        layer_norm(part, Some(&scale), Some(&run.rows.get(shift)?), eps)
    })
}

/// Tokens `[1, tokens, width]` of each run, joined again in the shape of `x`.
fn each_run(
    x: &Tensor,
    runs: &[WanModulation],
    change: impl Fn(&Tensor, &WanModulation) -> Result<Tensor>,
) -> Result<Tensor> {
    if let [run] = runs {
        return change(x, run);
    }
    let flat = x.flatten(0, 1)?.unsqueeze(0)?;
    let (mut parts, mut from) = (Vec::new(), 0);
    for run in runs {
        parts.push(change(
            &flat.narrow(1, from, run.tokens)?.contiguous()?,
            run,
        )?);
        from += run.tokens;
    }
    Tensor::cat(&parts, 1)?.reshape(x.dims())
}

impl WanBlock {
    pub fn load(
        reader: &mut ComponentReader,
        index: usize,
        spec: &WanSpec,
    ) -> std::result::Result<Self, Flaw> {
        let stem = format!("blocks.{index}");
        let (width, feed) = (spec.width(), spec.feed);
        let table = reader.numbers(&format!("{stem}.scale_shift_table"), &[&[1, 6, width]])?;
        Ok(Self {
            own: WanAttention::load(reader, &format!("{stem}.attn1"), width)?,
            text_norm: match spec.has_text_norm {
                true => Some(reader.norm(&format!("{stem}.norm2"), width, spec.eps)?),
                false => None,
            },
            text: WanAttention::load(reader, &format!("{stem}.attn2"), width)?,
            up: reader.projection(&format!("{stem}.ffn.net.0.proj"), (feed, width), true)?,
            down: reader.projection(&format!("{stem}.ffn.net.2"), (width, feed), true)?,
            table: table.squeeze(0)?,
        })
    }

    pub async fn forward(
        &self,
        x: &Tensor,
        texts: &Tensor,
        modulations: &[WanModulation],
        rope: &WanRope,
        spec: &WanSpec,
    ) -> Result<Tensor> {
        let runs = modulations.iter().map(|run| {
            let rows = (&self.table + &run.rows)?;
            let tokens = run.tokens;
            Ok(WanModulation { tokens, rows })
        });
        let runs = runs.collect::<Result<Vec<WanModulation>>>()?;
        let gated = |y: &Tensor, gate: usize| {
            each_run(y, &runs, |part, run| {
                part.broadcast_mul(&run.rows.get(gate)?)
            })
        };
        let normed = modulated(x, &runs, [0, 1], spec.eps)?;
        let attended = self.own.forward(&normed, &normed, Some(rope), spec).await?;
        let x = (x + gated(&attended, 2)?)?;
        let normed = match &self.text_norm {
            Some(norm) => norm.of_rows(&x)?,
            None => x.clone(),
        };
        let x = (&x + self.text.forward(&normed, texts, None, spec).await?)?;
        let normed = modulated(&x, &runs, [3, 4], spec.eps)?;
        let inner = gelu(&self.up.apply(&normed)?)?;
        &x + gated(&self.down.apply(&inner)?, 5)?
    }
}

impl WanAttention {
    fn load(
        reader: &mut ComponentReader,
        stem: &str,
        width: usize,
    ) -> std::result::Result<Self, Flaw> {
        let square = (width, width);
        let mut layer = |part: &str| reader.projection(&format!("{stem}.{part}"), square, true);
        Ok(Self {
            query: layer("to_q")?,
            key: layer("to_k")?,
            value: layer("to_v")?,
            output: layer("to_out.0")?,
            query_norm: reader.vector(&format!("{stem}.norm_q.weight"), width)?,
            key_norm: reader.vector(&format!("{stem}.norm_k.weight"), width)?,
        })
    }

    /// Attention of the tokens of `x` to those of `seen`, with rope for tokens with positions.
    async fn forward(
        &self,
        x: &Tensor,
        seen: &Tensor,
        rope: Option<&WanRope>,
        spec: &WanSpec,
    ) -> Result<Tensor> {
        let in_heads = |x: Tensor| {
            let (batch, tokens, _) = x.dims3()?;
            x.reshape((batch, tokens, spec.heads, spec.head_size))
        };
        let mut q = in_heads(rms_norm(&self.query.apply(x)?, &self.query_norm, spec.eps)?)?;
        let mut k = in_heads(rms_norm(&self.key.apply(seen)?, &self.key_norm, spec.eps)?)?;
        let v = in_heads(self.value.apply(seen)?)?;
        if let Some(rope) = rope {
            q = rope.turned(&q)?;
            k = rope.turned(&k)?;
        }
        let attended = attend(&q, &k, &v, MOST_PAIRS).await?;
        self.output.apply(&attended.flatten_from(D::Minus2)?)
    }
}

/// Attention in chunks of at most `most_pairs` query-key pairs, yielding between them.
async fn attend(q: &Tensor, k: &Tensor, v: &Tensor, most_pairs: usize) -> Result<Tensor> {
    let (_, queries, heads, size) = q.dims4()?;
    let scale = (size as f32).powf(-0.5);
    let most = (most_pairs / (heads * k.dim(1)?).max(1)).max(LEAST_QUERIES);
    if queries <= most {
        return dense_attention(q, k, v, scale, Mask::None);
    }
    let mut parts = Vec::new();
    for from in (0..queries).step_by(most) {
        let part = q.narrow(1, from, most.min(queries - from))?.contiguous()?;
        parts.push(dense_attention(&part, k, v, scale, Mask::None)?);
        block_end().await;
    }
    Tensor::cat(&parts, 1)
}

impl WanRope {
    fn turned(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, tokens, heads, size) = x.dims4()?;
        let places = (0..batch).flat_map(|_| 0..tokens as u32);
        let places = Tensor::from_vec(places.collect(), batch * tokens, x.device())?;
        let flat = x.reshape((batch * tokens, heads, size))?;
        rotate(&flat, &self.table, &places)?.reshape(x.dims())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::networks::blocks::run;

    #[test]
    fn attention_in_parts_is_that_of_the_whole() {
        let random = |shape: [usize; 4]| Tensor::randn(0f32, 1.0, &shape, &Device::Cpu).unwrap();
        let (q, k, v) = (
            random([2, 150, 3, 8]),
            random([2, 70, 3, 8]),
            random([2, 70, 3, 8]),
        );
        let found = |most_pairs| -> Vec<f32> {
            let attended = run(attend(&q, &k, &v, most_pairs)).unwrap();
            assert_eq!(attended.dims(), q.dims());
            attended.flatten_all().unwrap().to_vec1().unwrap()
        };
        assert_eq!(found(1), found(MOST_PAIRS));
    }
}
