//! The keys and tensors of a GGUF file about layers that differ: heads of two sizes, shared caches, inputs of each layer.

use super::{File, describe::Keys};
use crate::networks::{
    text::{
        config,
        family::{Family, Naming, Part, Role},
        gemma3n::usual_cutoffs,
        layer_kinds::{AlternatingUpdateSpec, GlobalHeads, LayerInputSpec},
        spec::DecoderSpec,
    },
    weights::{Flaw, GgufValue},
};

const KV_HEADS: &str = "attention.head_count_kv";
const CUTOFFS: &str = "activation_sparsity_scale";
const FEED_SIZES: &str = "feed_forward_length";

impl File<'_> {
    /// The number of layers that share a KV cache.
    pub(super) fn shared_layers(&self) -> Result<usize, Flaw> {
        let shared = self.optional_size("attention.shared_kv_layers")?;
        let shared = shared.unwrap_or(0);
        match self.rules.shares_caches || shared == 0 {
            true => Ok(shared),
            false => {
                let key = self.key("attention.shared_kv_layers");
                Err(Flaw::unsupported(key, shared, "0"))
            }
        }
    }

    /// Heads of global layers, which Gemma 4's files list separately.
    pub(super) fn global_heads(
        &self,
        windows: &[Option<usize>],
        head_dim: usize,
        (heads, layers): (usize, usize),
    ) -> Result<Option<GlobalHeads>, Flaw> {
        if self.family != Family::Gemma4 {
            return Ok(None);
        }
        let is_global = |layer: &usize| windows.get(*layer).copied().flatten().is_none();
        let first = (0..layers).find(is_global).unwrap_or(0);
        let value = Naming::Gguf.weight(Role::Layer(first, Part::Value));
        Ok(Some(GlobalHeads {
            kv_heads: self.layer_kv_heads(heads, (0..layers).filter(is_global))?,
            head_dim,
            keys_are_values: self.checkpoint.tensor(&value).is_none(),
        }))
    }

    pub(super) fn windowed_kv_heads(
        &self,
        windows: &[Option<usize>],
        heads: usize,
    ) -> Result<usize, Flaw> {
        let windowed = windows.iter().enumerate();
        let windowed = windowed.filter_map(|(layer, window)| window.map(|_| layer));
        // Without a window all layers are of one kind.
        match windows.is_empty() {
            true => self.layer_kv_heads(heads, std::iter::once(0)),
            false => self.layer_kv_heads(heads, windowed),
        }
    }

    /// One number for all layers, or a list with the same number for all of these layers.
    fn layer_kv_heads(
        &self,
        heads: usize,
        layers: impl Iterator<Item = usize>,
    ) -> Result<usize, Flaw> {
        let key = self.key(KV_HEADS);
        let Some(GgufValue::List(list)) = self.metadata.value(&key) else {
            return Ok(self.optional_size(KV_HEADS)?.unwrap_or(heads));
        };
        let counts = layers.map(|layer| list.get(layer).and_then(GgufValue::unsigned));
        let mut counts = counts.collect::<Vec<_>>();
        counts.dedup();
        match counts.as_slice() {
            [Some(count)] => Ok(usize::try_from(*count).unwrap_or(usize::MAX)),
            _ => {
                let known = "the same number for all layers of a kind";
                Err(Flaw::unsupported(key, format!("{counts:?}"), known))
            }
        }
    }

    /// The rank of the product parallel to attention is that of its tensor.
    pub(super) fn alternating_updates(&self) -> Result<Option<AlternatingUpdateSpec>, Flaw> {
        if self.family != Family::Gemma3n {
            return Ok(None);
        }
        let name = Naming::Gguf.weight(Role::Layer(0, Part::ResidualLeft));
        let header = self.checkpoint.tensor(&name);
        let rank = header.and_then(|header| header.shape.first().copied());
        Ok(Some(AlternatingUpdateSpec {
            streams: self.size("altup.num_inputs")?,
            active: self.size("altup.active_idx")?,
            rank: rank.unwrap_or(0),
            is_scaled: true,
        }))
    }

    /// Layers with dense gates have minus infinity.
    pub(super) fn gate_cutoffs(&self, layers: usize) -> Result<Vec<Option<f64>>, Flaw> {
        if self.family != Family::Gemma3n {
            return Ok(Vec::new());
        }
        let key = self.key(CUTOFFS);
        match self.metadata.value(&key) {
            None => Ok(usual_cutoffs(layers)),
            Some(GgufValue::List(list)) if list.len() >= layers => {
                let cutoffs = list[..layers].iter().map(|value| match value {
                    GgufValue::Float(number) if *number > f64::NEG_INFINITY => Some(*number),
                    _ => None,
                });
                Ok(config::trimmed(cutoffs.collect()))
            }
            Some(value) => {
                let wanted = format!("a number for each of {layers} layers");
                Err(Flaw::broken(key, format!("{value:?}"), wanted))
            }
        }
    }

    pub(super) fn layer_inputs(&self) -> Result<Option<LayerInputSpec>, Flaw> {
        let size = self.optional_size("embedding_length_per_layer_input")?;
        let Some(size) = size.filter(|&size| size > 0) else {
            return Ok(None);
        };
        let name = Naming::Gguf.weight(Role::LayerInputTable);
        let header = self.checkpoint.tensor(&name);
        let rows = header.and_then(|header| header.shape.first().copied());
        match rows {
            Some(vocab_size) => Ok(Some(LayerInputSpec { size, vocab_size })),
            None => Err(Flaw::broken(
                format!("the tensor {name:?}"),
                "nothing",
                "the table of the inputs of layers",
            )),
        }
    }

    /// Empty where one size is that of all layers.
    pub(super) fn intermediate_sizes(&self, layers: usize) -> Result<Vec<usize>, Flaw> {
        let key = self.key(FEED_SIZES);
        let Some(GgufValue::List(list)) = self.metadata.value(&key) else {
            return Ok(Vec::new());
        };
        let sizes = list
            .iter()
            .map(|size| size.unsigned().unwrap_or(0) as usize);
        let mut sizes: Vec<usize> = sizes.collect();
        if sizes.len() < layers || !self.rules.shares_caches {
            let found = format!("{} numbers", sizes.len());
            return Err(Flaw::unsupported(key, found, "a single integer"));
        }
        sizes.truncate(layers);
        Ok(sizes)
    }

    pub(super) fn says_no(&self, name: &str) -> bool {
        self.metadata.value(&self.key(name)).is_none()
    }
}

impl Keys<'_> {
    pub(super) fn feed_sizes(&mut self, spec: &DecoderSpec) {
        if spec.intermediate_sizes.is_empty() {
            return self.size(FEED_SIZES, spec.intermediate_size);
        }
        let sizes = spec.intermediate_sizes.iter();
        self.list(
            FEED_SIZES,
            sizes.map(|&size| GgufValue::Unsigned(size as u64)),
        );
    }

    /// The key heads, head sizes and rope of layers with and without a window.
    pub(super) fn global_heads(&mut self, spec: &DecoderSpec, heads: GlobalHeads) {
        let counts = (0..spec.layers).map(|layer| spec.layer_heads(layer).kv_heads as u64);
        self.list(KV_HEADS, counts.map(GgufValue::Unsigned));
        for name in ["attention.key_length", "attention.value_length"] {
            self.size(name, heads.head_dim);
            self.size(&format!("{name}_swa"), spec.head_dim);
        }
        self.size("rope.dimension_count", spec.rope.dims);
        if let Some(rope) = &spec.window_rope {
            self.size("rope.dimension_count_swa", rope.dims);
        }
    }

    pub(super) fn layer_kinds(&mut self, spec: &DecoderSpec) {
        if spec.shared_layers > 0 {
            self.size("attention.shared_kv_layers", spec.shared_layers);
        }
        if let Some(inputs) = spec.layer_inputs {
            self.size("embedding_length_per_layer_input", inputs.size);
        }
        if let Some(updates) = spec.alternating_updates {
            self.size("altup.num_inputs", updates.streams);
            self.size("altup.active_idx", updates.active);
            let cutoffs = (0..spec.layers).map(|layer| {
                let cutoff = spec.gate_cutoffs.get(layer).copied().flatten();
                GgufValue::Float(cutoff.unwrap_or(f64::NEG_INFINITY))
            });
            self.list(CUTOFFS, cutoffs);
        }
    }
}
