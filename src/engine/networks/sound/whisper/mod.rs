//! Whisper: an encoder of a window of sound, and a decoder that transcribes it.

mod decoder;
mod encoder;
mod spec;

pub use self::{
    decoder::{DecoderCache, SpokenText, WindowKeys},
    spec::{StackSpec, WhisperSpec},
};

use candle_core::{D, Result, Tensor};

use self::decoder::WhisperDecoder;
use self::encoder::WhisperEncoder;
use super::super::blocks::{AffineNorm, ComponentReader, ComponentSource, Projection};
use crate::networks::weights::{Flaw, TensorSource};
use muster_kernels::{KvCache, Mask, dense_attention};

/// A tensor of every Whisper.
const BARE: &str = "encoder.conv1.weight";

/// The network on a device.
pub struct Whisper {
    spec: WhisperSpec,
    encoder: WhisperEncoder,
    decoder: WhisperDecoder,
}

impl Whisper {
    /// Whether a file has the tensors of a Whisper.
    pub fn is_in(tensors: &dyn TensorSource) -> bool {
        let names = [BARE.to_owned(), format!("model.{BARE}")];
        names.iter().any(|name| tensors.header(name).is_some())
    }

    pub fn load(spec: WhisperSpec, source: ComponentSource) -> std::result::Result<Self, Flaw> {
        // Some files leave out the name of the model around it.
        let is_bare = source.tensors.header(BARE).is_some();
        let mut reader = ComponentReader::new(source, move |name| match is_bare {
            true => name.to_owned(),
            false => format!("model.{name}"),
        });
        let encoder = WhisperEncoder::load(&spec, &mut reader)?;
        let decoder = WhisperDecoder::load(&spec, &mut reader)?;
        // The table of tokens once more.
        reader.check_nothing_was_ignored(|name| name != "proj_out.weight")?;
        Ok(Self {
            spec,
            encoder,
            decoder,
        })
    }

    pub fn spec(&self) -> &WhisperSpec {
        &self.spec
    }

    /// The states of windows of features, `[windows, frames, bands]`.
    pub async fn encode(&self, features: &Tensor) -> Result<Tensor> {
        self.encoder.forward(features).await
    }

    /// The cross-attention keys and values for the states of a window, `[1, frames, width]`.
    pub fn cross(&self, states: &Tensor) -> Result<WindowKeys> {
        self.decoder.cross(states)
    }

    pub fn cache(&self) -> Result<DecoderCache> {
        self.decoder.cache()
    }

    /// Reads the new tokens of each text: the last states of all of them, `[tokens, width]`.
    pub fn read(&self, texts: &mut [SpokenText<'_>]) -> Result<Tensor> {
        self.decoder.forward(texts, &mut |_, _, _| Ok(()))
    }

    /// Scores of each token after each of these states, `[rows, tokens]`.
    pub fn logits(&self, states: &Tensor) -> Result<Tensor> {
        self.decoder.logits(states)
    }

    /// Decodes a text and records its cross-attention: returns the last states, and the scores before the softmax of
    /// these heads, given as layer and head, `[heads, tokens, frames]`.
    pub fn attention(
        &self,
        text: SpokenText<'_>,
        heads: &[(usize, usize)],
    ) -> Result<(Tensor, Tensor)> {
        let mut found = vec![None; heads.len()];
        let mut note = |layer: usize, q: &Tensor, keys: &KvCache| -> Result<()> {
            let places = heads.iter().zip(&mut found);
            for (&(_, head), slot) in places.filter(|(one, _)| one.0 == layer) {
                let q = q.narrow(1, head, 1)?.squeeze(1)?.contiguous()?;
                let scale = (q.dim(1)? as f64).powf(-0.5);
                *slot = Some((q.matmul(&keys.keys(head)?.t()?)? * scale)?);
            }
            Ok(())
        };
        let states = self.decoder.forward(&mut [text], &mut note)?;
        let found: Option<Vec<Tensor>> = found.into_iter().collect();
        match found {
            Some(found) => Ok((states, Tensor::stack(&found, 0)?)),
            None => candle_core::bail!("the decoder has no such heads: {heads:?}"),
        }
    }
}

/// Self-attention of a layer, shared by encoder and decoder.
struct SelfAttention {
    norm: AffineNorm,
    query: Projection,
    key: Projection,
    value: Projection,
    output: Projection,
    heads: usize,
}

impl SelfAttention {
    fn load(
        reader: &mut ComponentReader<'_>,
        stem: &str,
        (width, heads): (usize, usize),
    ) -> std::result::Result<Self, Flaw> {
        let mut part = |name: &str, has_bias| {
            let name = format!("{stem}.self_attn.{name}_proj");
            reader.projection(&name, (width, width), has_bias)
        };
        Ok(Self {
            query: part("q", true)?,
            key: part("k", false)?,
            value: part("v", true)?,
            output: part("out", true)?,
            norm: reader.norm(&format!("{stem}.self_attn_layer_norm"), width, NORM_EPS)?,
            heads,
        })
    }

    /// All rows of each window see each other.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (windows, frames, width) = x.dims3()?;
        let normed = self.norm.of_rows(x)?;
        let size = width / self.heads;
        let in_heads = |projection: &Projection| {
            projection
                .apply(&normed)?
                .reshape((windows, frames, self.heads, size))
        };
        let (q, k, v) = (
            in_heads(&self.query)?,
            in_heads(&self.key)?,
            in_heads(&self.value)?,
        );
        let scale = (size as f32).powf(-0.5);
        let attended = dense_attention(&q, &k, &v, scale, Mask::None)?;
        x + self.output.apply(&attended.flatten_from(D::Minus2)?)?
    }
}

const NORM_EPS: f64 = 1e-5;
