//! Differences between the layers of a decoder: heads, feed-forward widths, shared KV caches, and per-layer inputs.

use std::collections::HashSet;

use super::{
    family::{Naming, Part, Role},
    spec::DecoderSpec,
};
use crate::networks::weights::Flaw;
use muster_kernels::KvDtype;

/// Heads of layers without a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GlobalHeads {
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Values are the keys as they are before their norm.
    pub keys_are_values: bool,
}

/// The inputs of layers: see [`PerLayerEmbeddings`](crate::networks::layers::PerLayerEmbeddings).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerInputSpec {
    /// Numbers of the input of a layer.
    pub size: usize,
    /// Rows of the table; tokens past them take the first one.
    pub vocab_size: usize,
}

/// The streams of hidden states: see [`AlternatingUpdate`](crate::networks::layers::AlternatingUpdate).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlternatingUpdateSpec {
    pub streams: usize,
    /// The one that layers compute.
    pub active: usize,
    /// Rank of the product parallel to attention.
    pub rank: usize,
    /// The active stream is scaled on its way to the input of a layer.
    pub is_scaled: bool,
}

impl DecoderSpec {
    /// Key heads and head size of a layer.
    pub fn layer_heads(&self, layer: usize) -> GlobalHeads {
        let global = self.global_heads.filter(|_| self.window(layer).is_none());
        global.unwrap_or(GlobalHeads {
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            keys_are_values: false,
        })
    }

    pub fn widest_head(&self) -> usize {
        let global = self.global_heads.map_or(0, |heads| heads.head_dim);
        self.head_dim.max(global)
    }

    /// The size of the first head that cannot be stored as this.
    pub fn head_that_cannot_be_stored(&self, dtype: KvDtype) -> Option<usize> {
        let sizes = (0..self.layers).map(|layer| self.layer_heads(layer).head_dim);
        let mut others = sizes.filter(|&size| !dtype.takes(size));
        others.next()
    }

    /// The layer whose KV cache a layer shares.
    pub fn cache_source(&self, layer: usize) -> Option<usize> {
        let first = self.layers.saturating_sub(self.shared_layers);
        let has_window = |layer| self.window(layer).is_some();
        let mut before = (0..first).rev().filter(|_| layer >= first);
        before.find(|&other| has_window(other) == has_window(layer))
    }

    /// Whether a layer has its own KV cache.
    pub fn keeps_pages(&self, layer: usize) -> bool {
        !self.is_recurrent_layer(layer) && self.cache_source(layer).is_none()
    }

    /// The tensors that make keys and values of layers which keep none: older files have them all the same.
    pub fn unread_tensors(&self, naming: Naming) -> HashSet<String> {
        let first = self.layers.saturating_sub(self.shared_layers);
        let roles = (first..self.layers).flat_map(|layer| {
            let parts = [Part::Key, Part::Value, Part::KeyNorm];
            parts.map(|part| Role::Layer(layer, part))
        });
        let names = roles.flat_map(|role| [naming.weight(role), naming.bias(role)]);
        names.collect()
    }

    /// Width of a layer's dense feed-forward part.
    pub fn intermediate_size(&self, layer: usize) -> usize {
        let own = self.intermediate_sizes.get(layer).copied();
        own.unwrap_or(self.intermediate_size)
    }

    pub fn widest_intermediate(&self) -> usize {
        let widest = self.intermediate_sizes.iter().copied().max();
        self.intermediate_size.max(widest.unwrap_or(0))
    }

    /// The numbers in a layer's matrices that its input and its streams meet.
    pub fn layer_input_parameters(&self) -> usize {
        let inputs = self.layer_inputs.as_ref();
        let inputs = inputs.map_or(0, |inputs| 2 * self.hidden_size * inputs.size);
        let updates = self.alternating_updates.as_ref();
        inputs + updates.map_or(0, |it| 2 * self.hidden_size * (it.streams + it.rank))
    }

    /// The numbers in the matrices that make the inputs of all layers, and the streams.
    pub fn all_inputs_parameters(&self) -> usize {
        let inputs = self.layer_inputs.as_ref();
        let inputs = inputs.map_or(0, |inputs| inputs.size * self.layers);
        let updates = self.alternating_updates.as_ref();
        let streams = updates.map_or(0, |it| 2 * (it.streams - 1) * self.hidden_size);
        self.hidden_size * (inputs + streams)
    }

    /// The widths that a row has for the inputs of layers, and for streams.
    pub fn layer_input_width(&self) -> usize {
        let inputs = self.layer_inputs.as_ref();
        let inputs = inputs.map_or(0, |inputs| (4 * self.layers + 3) * inputs.size);
        let updates = self.alternating_updates.as_ref();
        inputs + updates.map_or(0, |it| 4 * it.streams * self.hidden_size)
    }
}

/// Sizes of single layers that a file could have wrong.
pub fn check(spec: &DecoderSpec) -> Result<(), Flaw> {
    if let Some(heads) = spec.global_heads {
        for (name, size) in [
            ("the key heads of layers that see all", heads.kv_heads),
            ("the size of a head of layers that see all", heads.head_dim),
        ] {
            in_range(name, size, 1 << 12)?;
        }
        if !spec.heads.is_multiple_of(heads.kv_heads) {
            let found = format!("{} heads and {} key heads", spec.heads, heads.kv_heads);
            let wanted = "a multiple of the key heads";
            return Err(Flaw::broken(
                "attention of layers that see all",
                found,
                wanted,
            ));
        }
    }
    if let Some(inputs) = spec.layer_inputs {
        in_range("the size of a layer's input", inputs.size, 1 << 14)?;
        in_range("the vocabulary of inputs", inputs.vocab_size, 1 << 24)?;
    }
    if let Some(updates) = spec.alternating_updates {
        in_range("the streams of hidden states", updates.streams, 16)?;
        in_range("the rank beside attention", updates.rank, 1 << 14)?;
        if updates.active >= updates.streams {
            let wanted = format!("less than {}", updates.streams);
            return Err(Flaw::broken("the active stream", updates.active, wanted));
        }
    }
    if let Some(cutoff) = spec
        .gate_cutoffs
        .iter()
        .flatten()
        .find(|it| !it.is_finite())
    {
        return Err(Flaw::broken(
            "the cutoff of a gate",
            cutoff,
            "a finite number",
        ));
    }
    for &size in &spec.intermediate_sizes {
        in_range("the feed-forward size of a layer", size, 1 << 22)?;
    }
    if !(spec.intermediate_sizes.is_empty() || spec.intermediate_sizes.len() == spec.layers) {
        let found = format!("{} sizes", spec.intermediate_sizes.len());
        let wanted = format!("one for each of {} layers", spec.layers);
        return Err(Flaw::broken("the feed-forward sizes", found, wanted));
    }
    let first = spec.layers.saturating_sub(spec.shared_layers);
    match (first..spec.layers).find(|&layer| spec.cache_source(layer).is_none()) {
        None if spec.shared_layers < spec.layers => Ok(()),
        _ => {
            let found = format!("{} of {} layers", spec.shared_layers, spec.layers);
            let wanted = "a layer of the same kind before them that keeps keys and values";
            Err(Flaw::broken("layers that share a cache", found, wanted))
        }
    }
}

fn in_range(name: &str, size: usize, most: usize) -> Result<(), Flaw> {
    match (1..=most).contains(&size) {
        true => Ok(()),
        false => Err(Flaw::broken(name, size, format!("1 to {most}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{
        config,
        golden::{fixture, load},
    };
    use muster_kernels::KvDtype;

    #[test]
    fn layers_that_share_a_cache_take_its_memory_once() {
        for (name, numbers) in [
            // Two layers with a window and one without keep keys and values of one head.
            ("gemma4-shared", 2 * (16 + 16 + 24)),
            ("gemma3n", 2 * 3 * 2 * 16),
            ("gemma4", 2 * (3 * 16 + 2 * 32)),
        ] {
            let decoder = load(&format!("golden/{name}"), None);
            let spec = decoder.spec();
            assert_eq!(spec.kv_bytes_per_token(KvDtype::F32), 4 * numbers, "{name}");
            let pages = decoder.new_pages(4, KvDtype::F32).unwrap();
            assert_eq!(pages.bytes(), 4 * 32 * 4 * numbers, "{name}");
        }
        let spec = load("golden/gemma4-shared", None).spec().clone();
        let sources: Vec<_> = (0..6).map(|layer| spec.cache_source(layer)).collect();
        assert_eq!(sources, [None, None, None, Some(2), Some(0), Some(0)]);
    }

    /// The refusal of a golden model's configuration with these fields changed.
    fn refusal(name: &str, changes: Value) -> String {
        let path = fixture(&format!("golden/{name}/config.json"));
        let mut config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for (field, value) in changes.as_object().unwrap() {
            config[field] = value.clone();
        }
        let flaw = config::spec(&config).unwrap_err();
        flaw.in_file("config.json".as_ref()).to_string()
    }

    #[test]
    fn kinds_of_layers_that_cannot_be_are_refused_by_name() {
        for (name, changes, expected) in [
            (
                "gemma4-shared",
                json!({"num_kv_shared_layers": 6}),
                "layers that share a cache: found 6 of 6 layers",
            ),
            // No layer with a window would have its own cache.
            (
                "gemma4-shared",
                json!({"num_kv_shared_layers": 5}),
                "layers that share a cache: found 5 of 6 layers",
            ),
            (
                "gemma4-shared",
                json!({"layer_types": ["full_attention"]}),
                "layer_types: found 1 types, expected one for each of 6 layers",
            ),
            (
                "gemma4-shared",
                json!({"hidden_size_per_layer_input": 100_000}),
                "the size of a layer's input: found 100000",
            ),
            (
                "gemma4",
                json!({"per_layer_config": {"0": {"head_dim": 8}}}),
                "per_layer_config: found 1 layers with settings of their own",
            ),
            (
                "gemma4",
                json!({"per_layer_config": {
                    "1": {"head_dim": 8, "num_key_value_heads": 4},
                    "2": {"head_dim": 8, "num_key_value_heads": 4},
                }}),
                "attention of layers that see all: found 6 heads and 4 key heads",
            ),
            (
                "gemma4",
                json!({"use_bidirectional_attention": "all"}),
                "use_bidirectional_attention: found all",
            ),
            (
                "gemma3n",
                json!({"altup_active_idx": 4}),
                "the active stream: found 4, expected less than 4",
            ),
            (
                "gemma3n",
                json!({"altup_num_inputs": 0}),
                "the streams of hidden states: found 0",
            ),
            (
                "gemma3n",
                json!({"activation_sparsity_pattern": [1.0, 0.0, 0.0, 0.0, 0.0]}),
                "activation_sparsity_pattern: found 1",
            ),
            (
                "gemma3n",
                json!({"intermediate_size": [40, 48]}),
                "the feed-forward sizes: found 2 sizes",
            ),
            (
                "llama4",
                json!({"attention_chunk_size": 0}),
                "a sliding window or a chunk: found 0",
            ),
            (
                "llama4",
                json!({"attention_chunk_size": null}),
                "attention_chunk_size: found nothing",
            ),
            (
                "llama4",
                json!({"no_rope_layers": [1]}),
                "no_rope_layers: found 1 flags",
            ),
            (
                "llama4",
                json!({"floor_scale": 0}),
                "the attention temperature",
            ),
        ] {
            let message = refusal(name, changes);
            assert!(message.contains(expected), "{message}");
        }
    }
}
