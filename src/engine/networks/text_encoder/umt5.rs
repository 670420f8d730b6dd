//! umT5's encoder, with a separate relative position bias in every layer.

use candle_core::{D, Result, Tensor, bail};
use serde::Deserialize;

use super::TextNames;
use crate::networks::blocks::{ComponentReader, ComponentSource, Projection, block_end};
use crate::networks::layers::Embedding;
use crate::networks::weights::{Flaw, layered, sized};
use muster_kernels::{Mask, dense_attention, gelu_mul, rms_norm};

#[derive(Debug, Clone, PartialEq)]
pub struct UmT5Spec {
    pub vocab_size: usize,
    pub width: usize,
    pub heads: usize,
    pub head_size: usize,
    pub feed: usize,
    pub layers: usize,
    /// Number of relative position buckets, half of them per direction.
    pub buckets: usize,
    /// Larger distances share a bucket.
    pub farthest: usize,
    pub eps: f64,
}

/// `config.json` of transformers.
#[derive(Deserialize)]
struct UmT5Json {
    vocab_size: usize,
    d_model: usize,
    d_kv: usize,
    d_ff: usize,
    num_layers: usize,
    num_heads: usize,
    #[serde(default = "usual_buckets")]
    relative_attention_num_buckets: usize,
    #[serde(default = "usual_distance")]
    relative_attention_max_distance: usize,
    layer_norm_epsilon: f64,
    feed_forward_proj: Option<String>,
}

fn usual_buckets() -> usize {
    32
}

fn usual_distance() -> usize {
    128
}

/// Texts are cut long before: the biases grow with the square.
const MOST_TOKENS: usize = 4096;

impl UmT5Spec {
    /// Reads the `config.json` of transformers' UMT5EncoderModel.
    pub fn read(value: &serde_json::Value) -> std::result::Result<Self, Flaw> {
        let json: UmT5Json = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "a umT5 text encoder"))?;
        let kind = value["model_type"].as_str().unwrap_or_default();
        if kind != "umt5" {
            return Err(Flaw::unsupported("model_type", kind, "umt5"));
        }
        let feed_forward = json.feed_forward_proj.as_deref();
        if let Some(found) = feed_forward.filter(|&name| name != "gated-gelu") {
            return Err(Flaw::unsupported("feed_forward_proj", found, "gated-gelu"));
        }
        let buckets = json.relative_attention_num_buckets;
        if buckets < 4 || !buckets.is_multiple_of(4) || buckets > 1 << 10 {
            let wanted = "a multiple of 4 up to 1024";
            return Err(Flaw::broken(
                "relative_attention_num_buckets",
                buckets,
                wanted,
            ));
        }
        let farthest = json.relative_attention_max_distance;
        if farthest <= buckets / 4 {
            let wanted = format!("more than {}", buckets / 4);
            return Err(Flaw::broken(
                "relative_attention_max_distance",
                farthest,
                wanted,
            ));
        }
        Ok(Self {
            vocab_size: sized("vocab_size", json.vocab_size)?,
            width: sized("d_model", json.d_model)?,
            heads: sized("num_heads", json.num_heads)?,
            head_size: sized("d_kv", json.d_kv)?,
            feed: sized("d_ff", json.d_ff)?,
            layers: layered("num_layers", json.num_layers)?,
            buckets,
            farthest,
            eps: json.layer_norm_epsilon,
        })
    }

    /// The bucket of a key this many tokens after the query.
    fn bucket(&self, distance: isize) -> usize {
        let half = self.buckets / 2;
        let direction = if distance > 0 { half } else { 0 };
        let distance = distance.unsigned_abs();
        let exact = half / 2;
        if distance < exact {
            return direction + distance;
        }
        // In f32 like the reference, so that the same distances are rounded down.
        let share =
            (distance as f32 / exact as f32).ln() / (self.farthest as f32 / exact as f32).ln();
        let rest = (half - exact) as f32;
        direction + (exact + (share * rest) as usize).min(half - 1)
    }
}

/// The text encoder on a device.
pub struct UmT5 {
    spec: UmT5Spec,
    tokens: Embedding,
    layers: Vec<UmT5Layer>,
    norm: Tensor,
    device: candle_core::Device,
}

struct UmT5Layer {
    attention_norm: Tensor,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    /// `[buckets, heads]`.
    biases: Tensor,
    feed_norm: Tensor,
    gate: Projection,
    up: Projection,
    down: Projection,
}

const TOKENS: &str = "shared.weight";
/// The same table in other files.
const ENCODER_TOKENS: &str = "encoder.embed_tokens.weight";
/// A tensor with SentencePiece's tokenizer, which some files contain.
pub const PIECES: &str = "spiece_model";

impl UmT5 {
    pub fn load(spec: UmT5Spec, source: ComponentSource) -> std::result::Result<Self, Flaw> {
        let names = TextNames::of(source.tensors);
        let mut reader = ComponentReader::new(source, |name| names.name(name));
        let name = match reader.has(TOKENS) {
            true => TOKENS,
            false => ENCODER_TOKENS,
        };
        let tokens = reader.embedding(name, (spec.vocab_size, spec.width))?;
        let mut layers = Vec::new();
        for index in 0..spec.layers {
            layers.push(UmT5Layer::load(&mut reader, index, &spec)?);
        }
        let norm = reader.vector("encoder.final_layer_norm.weight", spec.width)?;
        let others = [TOKENS, ENCODER_TOKENS, PIECES];
        reader.check_nothing_was_ignored(|name| !others.contains(&name))?;
        Ok(Self {
            tokens,
            layers,
            norm,
            device: source.device.clone(),
            spec,
        })
    }

    pub fn spec(&self) -> &UmT5Spec {
        &self.spec
    }

    /// The states of one text's tokens, `[1, tokens, width]`.
    pub async fn forward(&self, tokens: &[u32]) -> Result<Tensor> {
        let count = tokens.len();
        if count == 0 || count > MOST_TOKENS {
            bail!("a text has {count} tokens, but the encoder takes 1 to {MOST_TOKENS}");
        }
        let distances = self.distances(count)?;
        let mut x = self.tokens.gather(tokens, &self.device)?.unsqueeze(0)?;
        for layer in &self.layers {
            x = layer.forward(&x, &distances, &self.spec)?;
            block_end().await;
        }
        rms_norm(&x, &self.norm, self.spec.eps)
    }

    /// The buckets of all pairs of a query and a key.
    fn distances(&self, count: usize) -> Result<Tensor> {
        let span = count as isize;
        let by_distance = (1 - span..span).map(|distance| self.spec.bucket(distance) as u32);
        let by_distance: Vec<u32> = by_distance.collect();
        let rows = (0..count)
            .rev()
            .flat_map(|first| by_distance.iter().skip(first).take(count));
        Tensor::from_vec(rows.copied().collect(), count * count, &self.device)
    }
}

impl UmT5Layer {
    fn load(
        reader: &mut ComponentReader,
        index: usize,
        spec: &UmT5Spec,
    ) -> std::result::Result<Self, Flaw> {
        let stem = format!("encoder.block.{index}.layer");
        let (width, inner) = (spec.width, spec.heads * spec.head_size);
        let mut matrix = |part: &str, shape| {
            let name = format!("{stem}.{part}");
            reader.projection(&name, shape, false)
        };
        let attention = |part: &str| format!("0.SelfAttention.{part}");
        let feed = |part: &str| format!("1.DenseReluDense.{part}");
        Ok(Self {
            query: matrix(&attention("q"), (inner, width))?,
            key: matrix(&attention("k"), (inner, width))?,
            value: matrix(&attention("v"), (inner, width))?,
            output: matrix(&attention("o"), (width, inner))?,
            gate: matrix(&feed("wi_0"), (spec.feed, width))?,
            up: matrix(&feed("wi_1"), (spec.feed, width))?,
            down: matrix(&feed("wo"), (width, spec.feed))?,
            biases: reader.table(
                &format!("{stem}.0.SelfAttention.relative_attention_bias.weight"),
                (spec.buckets, spec.heads),
            )?,
            attention_norm: reader.vector(&format!("{stem}.0.layer_norm.weight"), width)?,
            feed_norm: reader.vector(&format!("{stem}.1.layer_norm.weight"), width)?,
        })
    }

    fn forward(&self, x: &Tensor, distances: &Tensor, spec: &UmT5Spec) -> Result<Tensor> {
        let (_, count, _) = x.dims3()?;
        let normed = rms_norm(x, &self.attention_norm, spec.eps)?;
        let in_heads = |projection: &Projection| {
            let shape = (1, count, spec.heads, spec.head_size);
            projection.apply(&normed)?.reshape(shape)
        };
        let (q, k, v) = (
            in_heads(&self.query)?,
            in_heads(&self.key)?,
            in_heads(&self.value)?,
        );
        let bias = self.biases.index_select(distances, 0)?;
        let bias = bias.reshape((count, count, spec.heads))?;
        let bias = bias.permute((2, 0, 1))?.unsqueeze(0)?.contiguous()?;
        // The scores are not scaled.
        let attended = dense_attention(&q, &k, &v, 1.0, Mask::Bias(&bias))?;
        let x = (x + self.output.apply(&attended.flatten_from(D::Minus2)?)?)?;
        let normed = rms_norm(&x, &self.feed_norm, spec.eps)?;
        let inner = gelu_mul(&self.gate.apply(&normed)?, &self.up.apply(&normed)?)?;
        &x + self.down.apply(&inner)?
    }
}
