//! Converts the metadata of a GGUF file to a decoder's spec, and back.

mod describe;
mod experts;
mod gemma;
#[cfg(test)]
pub mod golden;
#[cfg(test)]
mod golden_recurrent;
mod latent;
mod llama4;
mod recurrent;
mod rope;
#[cfg(test)]
mod tests;

use super::{
    config,
    family::{BIDIRECTIONAL_GEMMA, Family, Naming, Part, Role},
    limits,
    rules::FamilyRules,
    spec::{Biases, DecoderSpec, QueryKeyNorm, Scales, SoftCaps},
};
use crate::networks::weights::{Checkpoint, Flaw, GgufMetadata, GgufValue, layered};

pub use describe::{describe, rope_tensors};
pub use rope::ROPE_TENSORS;

pub fn spec(checkpoint: &Checkpoint, metadata: &GgufMetadata) -> Result<DecoderSpec, Flaw> {
    let family = family(metadata)?;
    let file = File {
        checkpoint,
        metadata,
        architecture: metadata.text("general.architecture").unwrap_or_default(),
        family,
        rules: family.rules(),
    };
    file.refuse_what_we_do_not_compute()?;
    let heads = file.size("attention.head_count")?;
    let hidden_size = file.size("embedding_length")?;
    let blocks = layered("block_count", file.size("block_count")?)?;
    let predicting = file.optional_size("nextn_predict_layers")?.unwrap_or(0);
    let layers = layered("block_count", blocks.saturating_sub(predicting))?;
    let latent = file.latent()?;
    let share = hidden_size.checked_div(heads).unwrap_or(0);
    let wide_dim = match &latent {
        Some(latent) => latent.sizes.query_dim(),
        None => file.optional_size("attention.key_length")?.unwrap_or(share),
    };
    let windows = file.windows(layers)?;
    let shared_layers = file.shared_layers()?;
    let global_heads = file.global_heads(&windows, wide_dim, (heads, layers))?;
    let head_dim = match global_heads {
        Some(_) => file
            .optional_size("attention.key_length_swa")?
            .unwrap_or(wide_dim),
        None => wide_dim,
    };
    let ropes = file.ropes([wide_dim, head_dim], !windows.is_empty())?;
    let experts = file.experts(layers)?;
    let recurrent = file.recurrent(layers)?;
    // Files of families whose layers all have experts omit the width of dense layers.
    let intermediate_sizes = file.intermediate_sizes(layers)?;
    let intermediate_size = match (intermediate_sizes.first(), &experts) {
        (Some(size), _) => *size,
        (None, Some(experts)) if file.says_no("feed_forward_length") => experts.intermediate_size,
        (None, _) => file.size("feed_forward_length")?,
    };
    let spec = DecoderSpec {
        family,
        vocab_size: file.vocab_size()?,
        hidden_size,
        intermediate_size,
        intermediate_sizes,
        experts,
        layers,
        prediction_layers: blocks - layers,
        heads,
        kv_heads: match global_heads {
            Some(_) => file.windowed_kv_heads(&windows, heads)?,
            None => file.kv_heads(heads, recurrent.as_ref(), layers)?,
        },
        head_dim,
        global_heads,
        shared_layers,
        norms_values: file.rules.norms_values,
        layer_inputs: file.layer_inputs()?,
        alternating_updates: file.alternating_updates()?,
        gate_cutoffs: file.gate_cutoffs(layers)?,
        scales_layers: file.has_part(0, Part::LayerScale),
        latent,
        context: file.size("context_length")?,
        norm_eps: file
            .float("attention.layer_norm_rms_epsilon")?
            .unwrap_or(1e-5),
        norms: file.rules.norms,
        query_key_norm: match family {
            Family::Llama4 => file.llama4_norm()?,
            _ => file.query_key_norm([head_dim, wide_dim], layers),
        },
        activation: file.rules.activation,
        rope: ropes.global,
        // Images come with files that name a tower.
        rope_axes: None,
        vision: None,
        window_rope: ropes.windowed,
        layers_without_rope: file.layers_without_rope(layers)?,
        attention_scale: match &latent {
            Some(latent) => file.latent_scale(latent)?,
            None => file.attention_scale(hidden_size, heads, head_dim)?,
        },
        query_temperature: file.query_temperature()?,
        attention_sinks: file.has_sinks(),
        attention_gate: file.rules.gates_attention,
        soft_caps: file.soft_caps()?,
        scales: file.scales(hidden_size)?,
        biases: Biases {
            query_key_value: [Part::Query, Part::QueryKeyValue, Part::LatentDown]
                .into_iter()
                .any(|part| file.has_bias(part)),
            attention_output: file.has_bias(Part::AttentionOutput),
            feed_forward: file.has_bias(Part::Gate),
        },
        is_bidirectional: file.is_bidirectional(),
        tied_embeddings: checkpoint
            .tensor(&Naming::Gguf.weight(Role::Head))
            .is_none(),
        windows,
        chunks: file.chunks(layers)?,
        recurrent,
    };
    limits::check(&spec)?;
    Ok(spec)
}

fn family(metadata: &GgufMetadata) -> Result<Family, Flaw> {
    let name = metadata.text("general.architecture");
    name.and_then(Family::of_gguf).ok_or_else(|| {
        let found = name.unwrap_or("none");
        Flaw::unsupported("general.architecture", found, Family::known_gguf_names())
    })
}

struct File<'a> {
    checkpoint: &'a Checkpoint,
    metadata: &'a GgufMetadata,
    /// The prefix of the keys.
    architecture: &'a str,
    family: Family,
    rules: FamilyRules,
}

impl File<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// Whether attention is bidirectional.
    fn is_bidirectional(&self) -> bool {
        let is_causal = self.metadata.flag(&self.key("attention.causal"));
        self.architecture == BIDIRECTIONAL_GEMMA || is_causal == Some(false)
    }

    fn size(&self, name: &str) -> Result<usize, Flaw> {
        let size = self.optional_size(name)?;
        size.ok_or_else(|| Flaw::broken(self.key(name), "nothing", "a number"))
    }

    fn optional_size(&self, name: &str) -> Result<Option<usize>, Flaw> {
        let key = self.key(name);
        let Some(value) = self.metadata.value(&key) else {
            return Ok(None);
        };
        let size = value.unsigned().and_then(|size| usize::try_from(size).ok());
        match size {
            Some(size) => Ok(Some(size)),
            None => Err(Flaw::unsupported(
                key,
                format!("{value:?}"),
                "a single integer",
            )),
        }
    }

    fn float(&self, name: &str) -> Result<Option<f64>, Flaw> {
        let key = self.key(name);
        match (self.metadata.float(&key), self.metadata.value(&key)) {
            (None, Some(value)) => Err(Flaw::broken(key, format!("{value:?}"), "a number")),
            (float, _) => Ok(float),
        }
    }

    /// A number; zero means none.
    fn nonzero(&self, name: &str) -> Result<Option<f64>, Flaw> {
        Ok(self.float(name)?.filter(|&number| number != 0.0))
    }

    fn vocab_size(&self) -> Result<usize, Flaw> {
        let name = Naming::Gguf.weight(Role::Embedding);
        let header = self.checkpoint.tensor(&name);
        let rows = header.and_then(|header| header.shape.first().copied());
        rows.ok_or_else(|| Flaw::broken(format!("the tensor {name:?}"), "nothing", "the embedding"))
    }

    fn has_bias(&self, part: Part) -> bool {
        let name = Naming::Gguf.bias(Role::Layer(0, part));
        self.checkpoint.tensor(&name).is_some()
    }

    fn has_sinks(&self) -> bool {
        let name = Naming::Gguf.weight(Role::Layer(0, Part::Sinks));
        self.checkpoint.tensor(&name).is_some()
    }

    fn query_key_norm(&self, sizes: [usize; 2], layers: usize) -> Option<QueryKeyNorm> {
        let name = |layer| Naming::Gguf.weight(Role::Layer(layer, Part::QueryNorm));
        // The first layers may be recurrent.
        let norm = (0..layers).find_map(|layer| self.checkpoint.tensor(&name(layer)))?;
        let is_of_head = sizes.iter().any(|&size| norm.shape == [size]);
        match is_of_head && !self.rules.norms_whole_queries {
            true => Some(QueryKeyNorm::PerHead),
            false => Some(QueryKeyNorm::Whole),
        }
    }

    fn attention_scale(
        &self,
        hidden_size: usize,
        heads: usize,
        head_dim: usize,
    ) -> Result<Option<f64>, Flaw> {
        if let Some(scale) = self.nonzero("attention.scale")? {
            return Ok(Some(scale));
        }
        if self.rules.attention_scale.is_some() {
            return Ok(self.rules.attention_scale);
        }
        let layers = self.size("block_count")?;
        // The format has no key for the attention scale: the largest Gemmas use the model's width divided by the heads,
        // and are identified by their number of layers.
        Ok(match self.rules.layers_scaled_by_share == Some(layers) {
            true => {
                let share = hidden_size.checked_div(heads).unwrap_or(0);
                Some(share)
                    .filter(|&share| share != head_dim)
                    .map(|share| 1.0 / (share as f64).sqrt())
            }
            false => None,
        })
    }

    fn soft_caps(&self) -> Result<SoftCaps, Flaw> {
        let defaults = self.rules.soft_caps;
        let cap = |name, default| match self.float(name) {
            Ok(None) => Ok(default),
            Ok(Some(cap)) => Ok(Some(cap).filter(|&cap| cap != 0.0)),
            Err(flaw) => Err(flaw),
        };
        Ok(SoftCaps {
            attention: cap("attn_logit_softcapping", defaults.attention)?,
            logits: cap("final_logit_softcapping", defaults.logits)?,
        })
    }

    fn scales(&self, hidden_size: usize) -> Result<Scales, Flaw> {
        let embedding = self.rules.embedding_scale(hidden_size);
        Ok(Scales {
            embedding: self.nonzero("embedding_scale")?.unwrap_or(embedding),
            residual: self.nonzero("residual_scale")?.unwrap_or(1.0),
            logits: self.nonzero("logit_scale")?.unwrap_or(1.0),
        })
    }

    fn windows(&self, layers: usize) -> Result<Vec<Option<usize>>, Flaw> {
        let Some(window) = self.window()? else {
            return Ok(Vec::new());
        };
        if self.family == Family::Llama4 {
            return Ok(Vec::new());
        }
        let key = self.key("attention.sliding_window_pattern");
        let by_period = |period| config::windows(window, layers, |layer| is_within(layer, period));
        match (self.metadata.value(&key), self.rules.window_period) {
            (Some(GgufValue::List(list)), _) if list.len() == layers => {
                let has_window = |layer: usize| match &list[layer] {
                    GgufValue::Bool(flag) => *flag,
                    value => value.unsigned().is_some_and(|number| number != 0),
                };
                Ok(config::windows(window, layers, has_window))
            }
            (Some(value), _) => match value.unsigned() {
                Some(period) => Ok(by_period(period as usize)),
                None => {
                    let found = format!("{value:?}");
                    let wanted = "a number, or a flag for each layer";
                    Err(Flaw::broken(key, found, wanted))
                }
            },
            (None, Some(period)) => Ok(by_period(period)),
            (None, None) if window >= self.size("context_length")? => Ok(Vec::new()),
            (None, None) => {
                let found = format!("nothing, and a window of {window} tokens");
                let known = format!("the layers that have it, for the {} family", self.family);
                Err(Flaw::unsupported(key, found, known))
            }
        }
    }

    fn window(&self) -> Result<Option<usize>, Flaw> {
        let window = self.optional_size("attention.sliding_window")?;
        let window = window.or(self.rules.window);
        let window = window.filter(|&window| window > 0);
        Ok(match self.is_bidirectional() {
            // Half of it on each side of a token.
            true => window.map(|window| window / 2 + 1),
            false => window,
        })
    }

    fn refuse_what_we_do_not_compute(&self) -> Result<(), Flaw> {
        if let Some(limit) = self.nonzero("attention.clamp_kqv")? {
            let key = self.key("attention.clamp_kqv");
            return Err(Flaw::unsupported(key, limit, "0"));
        }
        for ending in ["", "_swa"] {
            let key_length = self.optional_size(&format!("attention.key_length{ending}"))?;
            let name = format!("attention.value_length{ending}");
            let value_length = self.optional_size(&name)?;
            if key_length != value_length && !self.has_latents() {
                let found = format!("{value_length:?} with a key length of {key_length:?}");
                return Err(Flaw::unsupported(
                    self.key(&name),
                    found,
                    "the same length for keys and values",
                ));
            }
        }
        Ok(())
    }
}

/// Whether a layer has a window where each `period` of layers ends with one that has none; in a period of zero
/// all have one.
fn is_within(layer: usize, period: usize) -> bool {
    period == 0 || layer % period + 1 < period
}
