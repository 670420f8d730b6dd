//! The keys and tensors of a GGUF file about experts.

use super::File;
use crate::networks::{
    layers::Routing,
    text::{
        experts::ExpertsSpec,
        family::{Naming, Part, Role},
    },
    weights::{Flaw, GgufValue},
};

/// `expert_gating_func` of a softmax over all experts, and over the chosen ones.
const SOFTMAX: usize = 1;
const SOFTMAX_OF_CHOSEN: usize = 3;

impl File<'_> {
    /// Layers without a router are dense.
    pub(super) fn experts(&self, layers: usize) -> Result<Option<ExpertsSpec>, Flaw> {
        let count = self.optional_size("expert_count")?.unwrap_or(0);
        if count == 0 {
            return Ok(None);
        }
        let Some(is_normalized) = self.rules.normalizes_experts else {
            let found = format!("{count} experts per layer");
            let key = self.key("expert_count");
            return Err(Flaw::unsupported(key, found, "dense layers"));
        };
        self.refuse_other_routing()?;
        let feed = self.optional_size("expert_feed_forward_length")?;
        let has_router = |layer: &usize| {
            let name = Naming::Gguf.weight(Role::Layer(*layer, Part::Router));
            self.checkpoint.tensor(&name).is_some()
        };
        Ok(Some(ExpertsSpec {
            count,
            intermediate_size: match feed.filter(|&feed| feed > 0) {
                Some(feed) => feed,
                None => self.size("feed_forward_length")?,
            },
            routing: Routing {
                active: self.size("expert_used_count")?,
                is_normalized: self.flag("expert_weights_norm")?.unwrap_or(is_normalized),
            },
            has_biases: self.has_bias(Part::GateExperts) || self.has_bias(Part::GateUpExperts),
            dense_layers: (0..layers).filter(|layer| !has_router(layer)).collect(),
        }))
    }

    fn refuse_other_routing(&self) -> Result<(), Flaw> {
        if let Some(function) = self.optional_size("expert_gating_func")?
            && ![0, SOFTMAX].contains(&function)
            && (function, self.rules.normalizes_experts) != (SOFTMAX_OF_CHOSEN, Some(true))
        {
            let key = self.key("expert_gating_func");
            return Err(Flaw::unsupported(key, function, "1 (softmax)"));
        }
        if let Some(scale) = self.nonzero("expert_weights_scale")?
            && scale != 1.0
        {
            let key = self.key("expert_weights_scale");
            return Err(Flaw::unsupported(key, scale, "1"));
        }
        for name in ["expert_shared_count", "expert_group_count"] {
            if let Some(count @ 2..) = self.optional_size(name)? {
                return Err(Flaw::unsupported(self.key(name), count, "none"));
            }
        }
        Ok(())
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Flaw> {
        let key = self.key(name);
        match self.metadata.value(&key) {
            None => Ok(None),
            Some(GgufValue::Bool(flag)) => Ok(Some(*flag)),
            Some(value) => Err(Flaw::broken(key, format!("{value:?}"), "true or false")),
        }
    }
}
