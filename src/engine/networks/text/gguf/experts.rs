//! The keys and tensors of a GGUF file about experts.

use super::File;
use crate::networks::{
    layers::{ExpertGroups, GroupScore, RouterScore, Routing},
    text::{
        experts::{ExpertsSpec, SharedExpertSpec},
        family::{Family, Naming, Part, Role},
    },
    weights::{Flaw, GgufValue},
};

/// `expert_gating_func` of a softmax over all experts, and over the chosen ones.
const SOFTMAX: usize = 1;
const SOFTMAX_OF_CHOSEN: usize = 3;
const SIGMOID: usize = 2;

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
        let feed = self.optional_size("expert_feed_forward_length")?;
        let feed = match feed.filter(|&feed| feed > 0) {
            Some(feed) => feed,
            None => self.size("feed_forward_length")?,
        };
        let has_router = |layer: &usize| self.has_part(*layer, Part::Router);
        let first = (0..layers).find(has_router).unwrap_or(0);
        let correction = Naming::Gguf.bias(Role::Layer(first, Part::Correction));
        let score = self.score()?;
        let groups = ExpertGroups {
            // DeepSeek V2 and V3 share their name.
            score: match score {
                RouterScore::Softmax => GroupScore::Best,
                RouterScore::Sigmoid => GroupScore::BestTwo,
            },
            count: self.optional_size("expert_group_count")?.unwrap_or(1),
            active: self.optional_size("expert_group_used_count")?.unwrap_or(1),
        };
        Ok(Some(ExpertsSpec {
            count,
            intermediate_size: feed,
            routing: Routing {
                active: self.size("expert_used_count")?,
                score,
                is_normalized: self.flag("expert_weights_norm")?.unwrap_or(is_normalized),
                scale: self.nonzero("expert_weights_scale")?.unwrap_or(1.0) as f32,
                groups: Some(groups).filter(|groups| groups.count > 1),
            },
            has_correction: self.checkpoint.tensor(&correction).is_some(),
            has_biases: self.has_bias(Part::GateExperts) || self.has_bias(Part::GateUpExperts),
            shared: self.shared_expert(first, feed)?,
            scales_inputs: self.family == Family::Llama4,
            is_beside_dense: self.has_part(first, Part::ExpertsPreNorm),
            dense_layers: (0..layers).filter(|layer| !has_router(layer)).collect(),
        }))
    }

    pub(super) fn has_part(&self, layer: usize, part: Part) -> bool {
        let name = Naming::Gguf.weight(Role::Layer(layer, part));
        self.checkpoint.tensor(&name).is_some()
    }

    fn score(&self) -> Result<RouterScore, Flaw> {
        let function = self.optional_size("expert_gating_func")?.unwrap_or(0);
        match (function, self.rules.normalizes_experts) {
            (0, _) => Ok(self.rules.expert_score),
            (SOFTMAX, _) | (SOFTMAX_OF_CHOSEN, Some(true)) => Ok(RouterScore::Softmax),
            (SIGMOID, _) => Ok(RouterScore::Sigmoid),
            _ => {
                let key = self.key("expert_gating_func");
                Err(Flaw::unsupported(
                    key,
                    function,
                    "1 (softmax) and 2 (sigmoid)",
                ))
            }
        }
    }

    /// Inferred from the tensors of a layer: its size is that of the up projection.
    fn shared_expert(&self, layer: usize, feed: usize) -> Result<Option<SharedExpertSpec>, Flaw> {
        if !self.has_part(layer, Part::SharedUp) {
            return Ok(None);
        }
        let size = self.optional_size("expert_shared_feed_forward_length")?;
        let count = self.optional_size("expert_shared_count")?.unwrap_or(1);
        Ok(Some(SharedExpertSpec {
            intermediate_size: size.unwrap_or(count.saturating_mul(feed)),
            is_gated: self.has_part(layer, Part::SharedRouter),
        }))
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Flaw> {
        let key = self.key(name);
        match self.metadata.value(&key) {
            None => Ok(None),
            Some(GgufValue::Bool(flag)) => Ok(Some(*flag)),
            Some(value) => Err(Flaw::broken(key, format!("{value:?}"), "true or false")),
        }
    }
}
