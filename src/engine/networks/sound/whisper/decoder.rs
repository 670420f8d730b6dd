//! The decoder: each token attends to the tokens before it, and to the states of its window.

use candle_core::{Device, Result, Tensor, bail};

use super::{NORM_EPS, WhisperSpec};
use crate::networks::blocks::{AffineNorm, ComponentReader};
use crate::networks::layers::{Embedding, Linear};
use crate::networks::weights::{Flaw, Weight};
use muster_kernels::{KvCache, KvDtype, Mask, gelu_erf};

pub(super) struct WhisperDecoder {
    spec: WhisperSpec,
    table: Embedding,
    /// The rows of the table once more, for scores.
    head: Weight,
    positions: Tensor,
    layers: Vec<WhisperDecoderLayer>,
    norm: AffineNorm,
    /// The type that keys and values are stored as.
    stored: KvDtype,
}

struct WhisperDecoderLayer {
    attention: Linears,
    attention_norm: AffineNorm,
    cross: Linears,
    cross_norm: AffineNorm,
    feed_norm: AffineNorm,
    up: Linear,
    down: Linear,
}

/// The projections of one attention.
struct Linears {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
}

/// Keys and values of one window's states, layer by layer.
pub struct WindowKeys {
    layers: Vec<KvCache>,
    frames: usize,
}

/// Keys and values of one text's tokens, layer by layer.
pub struct DecoderCache {
    layers: Vec<KvCache>,
    length: usize,
}

/// A text in progress: its KV cache, the cross-attention keys of its window, and its new tokens.
pub struct SpokenText<'a> {
    pub cache: &'a mut DecoderCache,
    pub cross: &'a WindowKeys,
    pub tokens: &'a [u32],
}

/// Called with a layer, and the queries and keys of its cross-attention.
type Note<'a> = dyn FnMut(usize, &Tensor, &KvCache) -> Result<()> + 'a;

impl Linears {
    fn load(
        reader: &mut ComponentReader<'_>,
        stem: &str,
        width: usize,
    ) -> std::result::Result<Self, Flaw> {
        let mut part = |name: &str, has_bias| {
            reader.linear(&format!("{stem}.{name}_proj"), (width, width), has_bias)
        };
        Ok(Self {
            query: part("q", true)?,
            key: part("k", false)?,
            value: part("v", true)?,
            output: part("out", true)?,
        })
    }
}

impl DecoderCache {
    pub fn length(&self) -> usize {
        self.length
    }

    /// An independent copy.
    pub fn fork(&self) -> Result<Self> {
        let copies = self.layers.iter().map(KvCache::fork);
        Ok(Self {
            layers: copies.collect::<Result<_>>()?,
            length: self.length,
        })
    }
}

impl WhisperDecoder {
    pub fn load(
        spec: &WhisperSpec,
        reader: &mut ComponentReader<'_>,
    ) -> std::result::Result<Self, Flaw> {
        let (width, feed) = (spec.width, spec.decoder.feed);
        let mut layers = Vec::with_capacity(spec.decoder.layers);
        for index in 0..spec.decoder.layers {
            let stem = format!("decoder.layers.{index}");
            let mut norm = |name: &str| reader.norm(&format!("{stem}.{name}"), width, NORM_EPS);
            let [attention_norm, cross_norm, feed_norm] = [
                norm("self_attn_layer_norm")?,
                norm("encoder_attn_layer_norm")?,
                norm("final_layer_norm")?,
            ];
            layers.push(WhisperDecoderLayer {
                attention: Linears::load(reader, &format!("{stem}.self_attn"), width)?,
                cross: Linears::load(reader, &format!("{stem}.encoder_attn"), width)?,
                up: reader.linear(&format!("{stem}.fc1"), (feed, width), true)?,
                down: reader.linear(&format!("{stem}.fc2"), (width, feed), true)?,
                attention_norm,
                cross_norm,
                feed_norm,
            });
        }
        let name = "decoder.embed_tokens.weight";
        let stored = match reader.is_in_blocks(name) {
            true => KvDtype::F16,
            false => KvDtype::F32,
        };
        Ok(Self {
            stored,
            table: reader.embedding(name, (spec.vocab_size, width))?,
            head: reader.matrix(name, (spec.vocab_size, width))?,
            positions: reader.table("decoder.embed_positions.weight", (spec.context, width))?,
            norm: reader.norm("decoder.layer_norm", width, NORM_EPS)?,
            spec: spec.clone(),
            layers,
        })
    }

    pub fn cache(&self) -> Result<DecoderCache> {
        Ok(DecoderCache {
            layers: self
                .layers
                .iter()
                .map(|_| self.room(self.spec.context))
                .collect::<Result<_>>()?,
            length: 0,
        })
    }

    fn room(&self, tokens: usize) -> Result<KvCache> {
        let (width, heads) = (self.spec.width, self.spec.decoder.heads);
        KvCache::new([tokens, heads, width / heads], self.stored, self.device())
    }

    pub fn cross(&self, states: &Tensor) -> Result<WindowKeys> {
        let (_, frames, width) = states.dims3()?;
        let rows = states.reshape((frames, width))?;
        let layers = self.layers.iter().map(|layer| {
            let pair = Linear::together([&layer.cross.key, &layer.cross.value], &rows)?;
            let [keys, values] = pair.map(|x| self.in_heads(&x, 0, frames));
            let mut cache = self.room(frames)?;
            cache.write(0, &keys?, &values?)?;
            Ok(cache)
        });
        Ok(WindowKeys {
            layers: layers.collect::<Result<_>>()?,
            frames,
        })
    }

    pub fn forward(&self, texts: &mut [SpokenText<'_>], note: &mut Note<'_>) -> Result<Tensor> {
        let mut x = self.embed(texts)?;
        for (index, layer) in self.layers.iter().enumerate() {
            x = self.through(layer, index, &x, texts, note)?;
        }
        for text in texts {
            text.cache.length += text.tokens.len();
        }
        self.norm.of_rows(&x)
    }

    pub fn logits(&self, states: &Tensor) -> Result<Tensor> {
        self.head.product(states)
    }

    fn device(&self) -> &Device {
        self.positions.device()
    }

    fn embed(&self, texts: &[SpokenText<'_>]) -> Result<Tensor> {
        let (mut tokens, mut places) = (Vec::new(), Vec::new());
        for text in texts {
            let (from, most) = (text.cache.length, self.spec.context);
            let to = from + text.tokens.len();
            if to > most {
                bail!("a text has {to} tokens, but the decoder reads {most}");
            }
            tokens.extend(text.tokens);
            places.extend(from as u32..to as u32);
        }
        let places = Tensor::new(places, self.device())?;
        let places = self.positions.index_select(&places, 0)?;
        self.table.gather(&tokens, self.device())? + places
    }

    fn through(
        &self,
        layer: &WhisperDecoderLayer,
        index: usize,
        x: &Tensor,
        texts: &mut [SpokenText<'_>],
        note: &mut Note<'_>,
    ) -> Result<Tensor> {
        let own = &layer.attention;
        let normed = layer.attention_norm.of_rows(x)?;
        let [q, k, v] = Linear::together([&own.query, &own.key, &own.value], &normed)?;
        let attended = self.for_each(texts, |text, start| {
            let rows = text.tokens.len();
            let part = |x: &Tensor| self.in_heads(x, start, rows);
            let (cache, length) = (&mut text.cache.layers[index], text.cache.length);
            cache.write(length, &part(&k)?, &part(&v)?)?;
            self.attend(&part(&q)?, cache, length + rows, Mask::Causal)
        })?;
        let x = (x + own.output.forward(&attended)?)?;
        let q = layer.cross.query.forward(&layer.cross_norm.of_rows(&x)?)?;
        let attended = self.for_each(texts, |text, start| {
            let q = self.in_heads(&q, start, text.tokens.len())?;
            let keys = &text.cross.layers[index];
            note(index, &q, keys)?;
            self.attend(&q, keys, text.cross.frames, Mask::None)
        })?;
        let x = (x + layer.cross.output.forward(&attended)?)?;
        let up = layer.up.forward(&layer.feed_norm.of_rows(&x)?)?;
        &x + layer.down.forward(&gelu_erf(&up)?)?
    }

    /// The rows of one text after the other.
    fn for_each(
        &self,
        texts: &mut [SpokenText<'_>],
        mut attend: impl FnMut(&mut SpokenText<'_>, usize) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mut start = 0;
        let mut found = Vec::with_capacity(texts.len());
        for text in texts {
            found.push(attend(text, start)?);
            start += text.tokens.len();
        }
        match found.as_slice() {
            [one] => Ok(one.clone()),
            many => Tensor::cat(many, 0),
        }
    }

    /// Rows of `[tokens, width]` as `[rows, heads, size]`.
    fn in_heads(&self, x: &Tensor, start: usize, rows: usize) -> Result<Tensor> {
        let heads = self.spec.decoder.heads;
        let shape = (rows, heads, self.spec.width / heads);
        x.narrow(0, start, rows)?.contiguous()?.reshape(shape)
    }

    fn attend(&self, q: &Tensor, cache: &KvCache, keys: usize, mask: Mask) -> Result<Tensor> {
        let scale = (q.dim(2)? as f32).powf(-0.5);
        cache.attend(q, keys, scale, mask)?.flatten_from(1)
    }
}
