//! Loads a checkpoint's tensors as a decoder on a device: assembles parts from tensors, which `tensors.rs` finds and
//! places.

mod experts;
mod gemma;
mod latent;
mod recurrent;
mod tensors;

use candle_core::{DType, Device};

use super::{
    config,
    decoder::{Decoder, Layer, Norms, Ropes},
    family::{Naming, Nesting, Part, Role},
    gguf,
    images::AxisFrequencies,
    rope::Rope,
    spec::{DecoderSpec, NormPlacement, QueryKeyNorm},
};
use crate::networks::{
    layers::{Attention, FeedForward, GatedFeedForward, KeyValues, QueryKeyNorms},
    weights::{Checkpoint, CheckpointError, Description, Flaw, Quantize, TensorSource},
};
use muster_kernels::{AttentionOptions, Constants};
use tensors::{Loader, RowRange};

/// An operator's options for the weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadOptions {
    /// Quantize dense weights while loading.
    pub quantize: Option<Quantize>,
    /// Hold dense weights as this type: f32, f16 or bf16. `None` leaves them as they are stored.
    pub dtype: Option<DType>,
    /// The most tokens of one sequence, when less than the model could.
    pub context: Option<usize>,
    /// Omits the output matrix, for hidden states only.
    pub is_headless: bool,
}

/// Called with the loaded and total bytes of the weights.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Checkpoint {
    /// The spec of the decoder in these files; refuses unsupported settings by name.
    pub fn spec(&self) -> Result<DecoderSpec, CheckpointError> {
        let spec = match self.description() {
            Description::Config(value) => config::spec(value),
            Description::Gguf(metadata) => gguf::spec(self, metadata),
        };
        spec.map_err(|flaw| flaw.in_file(self.path()))
    }

    /// Whether the network was saved without the surrounding model.
    fn is_bare(&self) -> bool {
        let is_there = |naming: Naming| self.tensor(&naming.weight(Role::Embedding)).is_some();
        is_there(Naming::Bare) && !is_there(Naming::Hub)
    }

    fn has(&self, naming: Naming, role: Role) -> bool {
        self.tensor(&naming.weight(role)).is_some()
    }

    pub(super) fn naming(&self) -> Naming {
        if matches!(self.description(), Description::Gguf(_)) {
            return Naming::Gguf;
        }
        let experts = Role::Layer(0, Part::GateUpExperts);
        let dense = Role::Layer(0, Part::Gate);
        let telling = [
            // Towers are separate from the network, or all layers have a part with a unique name.
            (Naming::Gemma4BesideTower, experts),
            (Naming::BesideTower(Nesting::LanguageModel), Role::Embedding),
            (Naming::Lfm2, Role::FinalNorm),
            (Naming::GraniteHybrid, Role::Layer(0, Part::SharedGateUp)),
            (Naming::Gemma4, experts),
            (Naming::Llama4BesideTower, experts),
            (Naming::Llama4BesideTower, dense),
            (Naming::Llama4, experts),
            (Naming::Llama4, dense),
            (Naming::BesideTower(Nesting::Llava), Role::Embedding),
            (Naming::BesideTower(Nesting::TextModel), Role::Embedding),
        ];
        let named = telling.into_iter().find(|(it, role)| self.has(*it, *role));
        match named {
            _ if self.is_bare() => Naming::Bare,
            Some((naming, _)) => naming,
            None => Naming::Hub,
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
        // A GPU's rope table has the length of the context, which may be shorter than in the header.
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
        let layer_inputs = self.layer_inputs(&spec)?;
        let streams = self.streams(&spec)?;
        let layers = (0..spec.layers).map(|index| self.layer(&spec, index));
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        let norm = self.norm(Role::FinalNorm, spec.hidden_size, &spec)?;
        let role = if spec.tied_embeddings {
            Role::Embedding
        } else {
            Role::Head
        };
        let head = RowRange::all(role, spec.vocab_size);
        let head = match self.is_headless() {
            true => None,
            false => Some(self.matrix(head, spec.hidden_size, true)?),
        };
        self.report_all();
        let table = |rope: &Rope| rope.table(spec.context, self.device);
        Ok(Decoder {
            ropes: Ropes {
                global: table(&spec.rope)?,
                windowed: spec.window_rope.as_ref().map(table).transpose()?,
                axes: AxisFrequencies::new(&spec),
            },
            device: self.device.clone(),
            dtype: self.dtype,
            weights_are_f32: self.weights_are_f32(),
            spec,
            embedding,
            layer_inputs,
            streams,
            layers,
            norm,
            head,
        })
    }

    fn layer(&mut self, spec: &DecoderSpec, index: usize) -> Result<Layer, Flaw> {
        Ok(Layer {
            attention_norms: self.norms(
                spec,
                index,
                Part::AttentionNorm,
                Part::AttentionPostNorm,
            )?,
            mixer: self.mixer(spec, index)?,
            feed_norms: self.norms(spec, index, feed_norm(spec), Part::FeedPostNorm)?,
            feed_forward: self.feed_forward(spec, index)?,
            input: self.layer_input(spec, index)?,
            scale: self.layer_scale(spec, index)?,
            alternating: self.alternating_update(spec, index)?,
        })
    }

    pub fn attention(&mut self, spec: &DecoderSpec, index: usize) -> Result<Attention, Flaw> {
        let (hidden, query, kv) = (
            spec.hidden_size,
            spec.query_size(index),
            spec.kv_size(index),
        );
        let biases = spec.biases;
        let parts = [(Part::Query, query), (Part::Key, kv), (Part::Value, kv)];
        let [queries, keys, values] = self.rows(index, Part::QueryKeyValue, parts);
        let heads = spec.layer_heads(index);
        let output = RowRange::all(Role::Layer(index, Part::AttentionOutput), hidden);
        let (query_rows, gate) = match spec.attention_gate {
            true => {
                let (query, gate) = self.gated_queries(spec, index)?;
                (query, Some(gate))
            }
            false => (self.linear(queries, hidden, biases.query_key_value)?, None),
        };
        Ok(Attention {
            query: query_rows,
            gate,
            own: match spec.cache_source(index) {
                Some(_) => None,
                None => Some(KeyValues {
                    key: self.linear(keys, hidden, biases.query_key_value)?,
                    value: match heads.keys_are_values {
                        true => None,
                        false => Some(self.linear(values, hidden, biases.query_key_value)?),
                    },
                    value_norm: match spec.norms_values {
                        true => Some(self.plain_norm(heads.head_dim, spec)?),
                        false => None,
                    },
                }),
            },
            output: self.linear(output, query, biases.attention_output)?,
            norms: self.query_key_norms(spec, index)?,
            sinks: self.sinks(spec, index)?,
            head_dim: heads.head_dim,
            options: AttentionOptions {
                scale: spec.attention_scale() as f32,
                window: spec.window(index),
                softcap: spec.soft_caps.attention.map(|cap| cap as f32),
                reach: spec.reach(index),
            },
        })
    }

    fn feed_forward(&mut self, spec: &DecoderSpec, index: usize) -> Result<FeedForward, Flaw> {
        let Some(experts) = spec.layer_experts(index) else {
            return self.dense(spec, index).map(FeedForward::Dense);
        };
        if experts.is_beside_dense {
            let parallel = self.parallel(spec, experts, index)?;
            return Ok(FeedForward::Parallel(Box::new(parallel)));
        }
        let experts = self.experts(spec, experts, index)?;
        Ok(FeedForward::Experts(Box::new(experts)))
    }

    fn dense(&mut self, spec: &DecoderSpec, index: usize) -> Result<GatedFeedForward, Flaw> {
        let (hidden, feed) = (spec.hidden_size, spec.intermediate_size(index));
        let has_bias = spec.biases.feed_forward;
        let own = [(Part::Gate, feed), (Part::Up, feed)];
        let [gates, ups] = self.rows(index, Part::GateUp, own);
        let down = RowRange::all(Role::Layer(index, Part::Down), hidden);
        Ok(GatedFeedForward {
            gate: self.linear(gates, hidden, has_bias)?,
            up: self.linear(ups, hidden, has_bias)?,
            down: self.linear(down, feed, has_bias)?,
            activation: spec.activation,
            cutoff: spec.gate_cutoffs.get(index).copied().flatten(),
        })
    }

    fn norms(
        &mut self,
        spec: &DecoderSpec,
        index: usize,
        before: Part,
        after: Part,
    ) -> Result<Norms, Flaw> {
        let mut norm = |part, is_there: bool| match is_there {
            true => {
                let role = Role::Layer(index, part);
                self.norm(role, spec.hidden_size, spec).map(Some)
            }
            false => Ok(None),
        };
        Ok(Norms {
            before: norm(before, spec.norms.has_before())?,
            after: norm(after, spec.norms.has_after())?,
        })
    }

    fn sinks(&mut self, spec: &DecoderSpec, index: usize) -> Result<Option<Constants>, Flaw> {
        if !spec.attention_sinks {
            return Ok(None);
        }
        let name = self.naming.weight(Role::Layer(index, Part::Sinks));
        let sinks = self.numbers(&name, &[spec.heads])?;
        Ok(Some(sinks.into()))
    }

    fn query_key_norms(
        &mut self,
        spec: &DecoderSpec,
        index: usize,
    ) -> Result<Option<QueryKeyNorms>, Flaw> {
        let Some(kind) = spec.query_key_norm else {
            return Ok(None);
        };
        let (query, key) = match kind {
            QueryKeyNorm::Unweighted if spec.rope(index).is_none() => return Ok(None),
            QueryKeyNorm::Unweighted => {
                let norm = || self.plain_norm(spec.head_dim, spec);
                return Ok(Some(QueryKeyNorms::PerHead(norm()?, Some(norm()?))));
            }
            QueryKeyNorm::PerHead => [spec.layer_heads(index).head_dim; 2].into(),
            QueryKeyNorm::Whole => (spec.query_size(index), spec.kv_size(index)),
        };
        let role = |part| Role::Layer(index, part);
        let query = self.norm(role(Part::QueryNorm), query, spec)?;
        if spec.cache_source(index).is_some() {
            return Ok(Some(QueryKeyNorms::PerHead(query, None)));
        }
        let key = self.norm(role(Part::KeyNorm), key, spec)?;
        Ok(Some(match kind {
            QueryKeyNorm::Whole => QueryKeyNorms::Whole(query, key),
            _ => QueryKeyNorms::PerHead(query, Some(key)),
        }))
    }
}

/// The norm before the feed-forward part has another name where a norm follows attention.
pub fn feed_norm(spec: &DecoderSpec) -> Part {
    match spec.norms {
        _ if spec.family.rules().names_feed_norm_by_attention => Part::AttentionPostNorm,
        NormPlacement::Around => Part::FeedPreNorm,
        NormPlacement::Before | NormPlacement::After => Part::FeedNorm,
    }
}
