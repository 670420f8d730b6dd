//! From a checkpoint's tensors to a decoder on a device: which tensors make which part. `tensors.rs` finds and
//! places each of them.

mod tensors;

use candle_core::{DType, Device};

use super::{
    config,
    decoder::{Decoder, Layer},
    family::{Naming, Part, Role},
    gguf,
    spec::DecoderSpec,
};
use crate::networks::{
    layers::{Attention, FeedForward, RmsNorm},
    weights::{Checkpoint, CheckpointError, Description, Flaw, Quantize, TensorSource},
};
use tensors::Loader;

/// What an operator may ask of the weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadOptions {
    /// Quantize dense weights while loading.
    pub quantize: Option<Quantize>,
    /// Hold dense weights as this type: f32, f16 or bf16. `None` leaves them as they are stored.
    pub dtype: Option<DType>,
    /// The most tokens of one sequence, when less than the model could.
    pub context: Option<usize>,
    /// Leave out the way to logits: hidden states are wanted alone.
    pub is_headless: bool,
}

/// Told how many bytes of the weights are on the device, and how many there are.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Checkpoint {
    /// What the decoder in these files is; refuses by name whatever it would have to ignore.
    pub fn spec(&self) -> Result<DecoderSpec, CheckpointError> {
        let spec = match self.description() {
            Description::Config(value) => config::spec(value),
            Description::Gguf(metadata) => gguf::spec(self, metadata),
        };
        spec.map_err(|flaw| flaw.in_file(self.path()))
    }

    /// Whether the network was saved by itself, without the model around it.
    fn is_bare(&self) -> bool {
        let is_there = |naming: Naming| self.tensor(&naming.weight(Role::Embedding)).is_some();
        is_there(Naming::Bare) && !is_there(Naming::Hub)
    }

    pub(super) fn naming(&self) -> Naming {
        match self.description() {
            Description::Config(_) if self.is_bare() => Naming::Bare,
            Description::Config(_) => Naming::Hub,
            Description::Gguf(_) => Naming::Gguf,
        }
    }
}

impl Decoder {
    pub fn load(
        checkpoint: &Checkpoint,
        device: &Device,
        options: &LoadOptions,
        progress: Progress<'_>,
    ) -> Result<Self, CheckpointError> {
        let mut spec = checkpoint.spec()?;
        // A GPU holds a table as long as the context, which need not be as long as a header says.
        spec.context = options.context.unwrap_or(spec.context).min(spec.context);
        let naming = checkpoint.naming();
        Self::from_source(checkpoint, naming, spec, device, options, progress)
    }

    pub(super) fn from_source(
        source: &dyn TensorSource,
        naming: Naming,
        spec: DecoderSpec,
        device: &Device,
        options: &LoadOptions,
        progress: Progress<'_>,
    ) -> Result<Self, CheckpointError> {
        let mut loader = Loader::new(source, naming, device, options, progress);
        let decoder = loader.decoder(spec).and_then(|decoder| {
            loader.check_nothing_was_ignored(&decoder.spec)?;
            Ok(decoder)
        });
        decoder.map_err(|flaw| flaw.in_file(source.path()))
    }
}

impl Loader<'_> {
    fn decoder(&mut self, spec: DecoderSpec) -> Result<Decoder, Flaw> {
        let embedding = self.embedding(&spec)?;
        let layers = (0..spec.layers).map(|index| self.layer(&spec, index));
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        let norm = self.norm(Role::FinalNorm, spec.hidden_size, &spec)?;
        let role = if spec.tied_embeddings {
            Role::Embedding
        } else {
            Role::Head
        };
        let head = match self.is_headless() {
            true => None,
            false => Some(self.matrix(role, (spec.vocab_size, spec.hidden_size), true)?),
        };
        self.report_all();
        Ok(Decoder {
            rope: spec.rope_table(self.device)?,
            device: self.device.clone(),
            dtype: self.dtype,
            weights_are_f32: self.weights_are_f32(),
            spec,
            embedding,
            layers,
            norm,
            head,
        })
    }

    fn layer(&mut self, spec: &DecoderSpec, index: usize) -> Result<Layer, Flaw> {
        let (hidden, query, kv) = (spec.hidden_size, spec.query_size(), spec.kv_size());
        let feed = spec.intermediate_size;
        let biases = spec.biases;
        let role = |part| Role::Layer(index, part);
        let attention_norm = self.norm(role(Part::AttentionNorm), hidden, spec)?;
        let qkv = biases.query_key_value;
        let attention = Attention {
            query: self.linear(role(Part::Query), (query, hidden), qkv)?,
            key: self.linear(role(Part::Key), (kv, hidden), qkv)?,
            value: self.linear(role(Part::Value), (kv, hidden), qkv)?,
            output: self.linear(
                role(Part::AttentionOutput),
                (hidden, query),
                biases.attention_output,
            )?,
            head_norms: self.head_norms(spec, index)?,
            head_dim: spec.head_dim,
            window: spec.window(index),
        };
        let feed_norm = self.norm(role(Part::FeedNorm), hidden, spec)?;
        let feed_forward = FeedForward {
            gate: self.linear(role(Part::Gate), (feed, hidden), biases.feed_forward)?,
            up: self.linear(role(Part::Up), (feed, hidden), biases.feed_forward)?,
            down: self.linear(role(Part::Down), (hidden, feed), biases.feed_forward)?,
        };
        Ok(Layer {
            attention_norm,
            attention,
            feed_norm,
            feed_forward,
        })
    }

    fn head_norms(
        &mut self,
        spec: &DecoderSpec,
        index: usize,
    ) -> Result<Option<(RmsNorm, RmsNorm)>, Flaw> {
        if !spec.query_key_norm {
            return Ok(None);
        }
        let role = |part| Role::Layer(index, part);
        let query = self.norm(role(Part::QueryNorm), spec.head_dim, spec)?;
        let key = self.norm(role(Part::KeyNorm), spec.head_dim, spec)?;
        Ok(Some((query, key)))
    }
}
