//! The experts of a decoder's layers: their sizes, from `config.json`.

use serde::Deserialize;

use super::{config::ConfigJson, spec::DecoderSpec};
use crate::networks::{
    layers::{ExpertGroups, GroupScore, RouterScore, Routing},
    weights::{Flaw, sized},
};

/// The experts of the layers that have them.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpertsSpec {
    pub count: usize,
    /// Width of one.
    pub intermediate_size: usize,
    pub routing: Routing,
    /// Scores are corrected for the choice.
    pub has_correction: bool,
    /// Biases of the router and of the experts.
    pub has_biases: bool,
    pub shared: Option<SharedExpertSpec>,
    /// Routing weights scale the inputs of experts instead of their outputs.
    pub scales_inputs: bool,
    /// Layers with experts have a dense part besides.
    pub is_beside_dense: bool,
    /// Layers with a dense feed-forward part instead, in order.
    pub dense_layers: Vec<usize>,
}

/// An expert that all tokens take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedExpertSpec {
    pub intermediate_size: usize,
    /// Whether a gate weights it per token.
    pub is_gated: bool,
}

/// The fields of `config.json` about experts.
#[derive(Debug, Deserialize)]
pub struct ExpertsJson {
    num_experts: Option<usize>,
    /// Mixtral's name of the same, which newer programs write for other families too.
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    /// gpt-oss's name of the same.
    experts_per_token: Option<usize>,
    pub moe_intermediate_size: Option<usize>,
    pub norm_topk_prob: Option<bool>,
    mlp_only_layers: Option<Vec<usize>>,
    decoder_sparse_step: Option<usize>,
    pub shared_expert_intermediate_size: Option<usize>,
    /// The names of DeepSeek and GLM.
    n_routed_experts: Option<usize>,
    pub n_shared_experts: Option<usize>,
    pub n_group: Option<usize>,
    pub topk_group: Option<usize>,
    pub routed_scaling_factor: Option<f32>,
    pub first_k_dense_replace: Option<usize>,
    pub scoring_func: Option<String>,
    pub topk_method: Option<String>,
    pub moe_layer_freq: Option<usize>,
    /// Which layers have experts, in newer files of GLM.
    pub mlp_layer_types: Option<Vec<String>>,
    num_nextn_predict_layers: Option<usize>,
}

impl ConfigJson {
    /// Experts of this width in all layers that the file does not call dense.
    pub fn experts(
        &self,
        intermediate_size: usize,
        is_normalized: bool,
    ) -> Result<ExpertsSpec, Flaw> {
        let json = &self.experts;
        let count = json.num_experts.or(json.num_local_experts);
        let count = count.or(json.n_routed_experts);
        let active = json.num_experts_per_tok.or(json.experts_per_token);
        Ok(ExpertsSpec {
            count: wanted(count, "num_experts")?,
            intermediate_size,
            routing: Routing::softmax(wanted(active, "num_experts_per_tok")?, is_normalized),
            has_correction: false,
            has_biases: false,
            shared: None,
            scales_inputs: false,
            is_beside_dense: false,
            dense_layers: json.dense_layers(self.num_hidden_layers)?,
        })
    }
}

impl ConfigJson {
    /// The same with the routing of DeepSeek V3 and GLM 4.5: sigmoids with a correction, in groups, with shared
    /// experts.
    pub fn corrected_experts(&self) -> Result<ExpertsSpec, Flaw> {
        let json = &self.experts;
        let feed = wanted(json.moe_intermediate_size, "moe_intermediate_size")?;
        let plain = self.experts(feed, json.norm_topk_prob.unwrap_or(true))?;
        let shared = json.n_shared_experts.unwrap_or(0);
        let groups = ExpertGroups {
            count: json.n_group.unwrap_or(1),
            active: json.topk_group.unwrap_or(1),
            score: GroupScore::BestTwo,
        };
        let first = json.first_k_dense_replace.unwrap_or(0);
        Ok(ExpertsSpec {
            routing: Routing {
                score: RouterScore::Sigmoid,
                scale: json.routed_scaling_factor.unwrap_or(1.0),
                groups: Some(groups).filter(|groups| groups.count != 1),
                ..plain.routing
            },
            has_correction: true,
            shared: match shared {
                0 => None,
                _ => Some(SharedExpertSpec {
                    intermediate_size: sized("n_shared_experts", shared)?.saturating_mul(feed),
                    is_gated: false,
                }),
            },
            dense_layers: (0..first.min(self.num_hidden_layers)).collect(),
            ..plain
        })
    }

    pub fn prediction_layers(&self) -> Result<usize, Flaw> {
        match self.experts.num_nextn_predict_layers.unwrap_or(0) {
            0 => Ok(0),
            layers => sized("num_nextn_predict_layers", layers),
        }
    }
}

impl ExpertsJson {
    /// The number of experts in Granite's files, which may be zero.
    pub fn local_experts(&self) -> usize {
        self.num_local_experts.unwrap_or(0)
    }

    fn dense_layers(&self, layers: usize) -> Result<Vec<usize>, Flaw> {
        let step = self.decoder_sparse_step.unwrap_or(1);
        if step == 0 {
            return Err(Flaw::broken("decoder_sparse_step", step, "1 or more"));
        }
        let listed = self.mlp_only_layers.as_deref().unwrap_or_default();
        let is_dense = |layer: &usize| listed.contains(layer) || !(layer + 1).is_multiple_of(step);
        Ok((0..layers).filter(is_dense).collect())
    }
}

pub fn wanted<T>(value: Option<T>, name: &str) -> Result<T, Flaw> {
    value.ok_or_else(|| Flaw::broken(name, "nothing", "a number"))
}

impl ExpertsSpec {
    pub fn with_biases(self) -> Self {
        Self {
            has_biases: true,
            ..self
        }
    }

    pub fn check(&self) -> Result<(), Flaw> {
        for (name, size, most) in [
            ("the number of experts", self.count, 1 << 12),
            ("the experts of a token", self.routing.active, self.count),
            ("the size of an expert", self.intermediate_size, 1 << 22),
        ] {
            if !(1..=most).contains(&size) {
                return Err(Flaw::broken(name, size, format!("1 to {most}")));
            }
        }
        if let Some(shared) = self.shared
            && !(1..=1 << 22).contains(&shared.intermediate_size)
        {
            let size = shared.intermediate_size;
            return Err(Flaw::broken(
                "the size of the shared expert",
                size,
                "1 to 4194304",
            ));
        }
        if !self.routing.scale.is_normal() {
            let scale = self.routing.scale;
            return Err(Flaw::broken(
                "the scale of experts",
                scale,
                "a finite number but 0",
            ));
        }
        self.check_groups()
    }

    fn check_groups(&self) -> Result<(), Flaw> {
        let Some(groups) = self.routing.groups else {
            return Ok(());
        };
        let is_whole = groups.count > 0 && self.count.is_multiple_of(groups.count);
        let size = self.count.checked_div(groups.count).unwrap_or(0);
        let in_chosen = size.saturating_mul(groups.active);
        match is_whole && groups.active <= groups.count && self.routing.active <= in_chosen {
            true => Ok(()),
            false => {
                let found = format!(
                    "{} of {} groups for {} of {} experts",
                    groups.active, groups.count, self.routing.active, self.count
                );
                let wanted = "whole groups, and experts enough in the chosen ones";
                Err(Flaw::broken("the groups of experts", found, wanted))
            }
        }
    }
}

impl DecoderSpec {
    /// The experts of a layer; none where it is dense.
    pub fn layer_experts(&self, layer: usize) -> Option<&ExpertsSpec> {
        let experts = self.experts.as_ref();
        experts.filter(|experts| !experts.dense_layers.contains(&layer))
    }

    /// The numbers of a layer's feed-forward part that a token is multiplied by.
    pub fn feed_parameters(&self, layer: usize) -> u64 {
        let dense = 3 * self.hidden_size * self.intermediate_size(layer);
        let parameters = match self.layer_experts(layer) {
            None => dense,
            Some(experts) => {
                let dense = if experts.is_beside_dense { dense } else { 0 };
                let each = 3 * self.hidden_size * experts.intermediate_size;
                let shared = experts
                    .shared
                    .map_or(0, |shared| 3 * self.hidden_size * shared.intermediate_size);
                self.hidden_size * experts.count + experts.routing.active * each + shared + dense
            }
        };
        parameters as u64
    }

    /// The widths that a row has on its way through a feed-forward part, all together and at most.
    pub fn feed_width(&self) -> usize {
        let dense = 3 * self.widest_intermediate();
        let experts = self.experts.as_ref().map_or(0, |experts| {
            let each = 2 * self.hidden_size + 3 * experts.intermediate_size;
            let shared = experts
                .shared
                .map_or(0, |shared| 3 * shared.intermediate_size);
            experts.count + experts.routing.active * each + shared
        });
        let is_beside = self
            .experts
            .as_ref()
            .is_some_and(|experts| experts.is_beside_dense);
        let fed = if is_beside {
            dense + experts
        } else {
            dense.max(experts)
        };
        fed + self.layer_input_width()
    }

    /// The widest of a layer's matrices that multiply the hidden state.
    pub fn widest_output(&self) -> usize {
        let experts = self.experts.as_ref();
        let experts = experts.map_or(0, |experts| experts.intermediate_size);
        let query = self.heads * self.widest_head();
        self.widest_intermediate().max(query).max(experts)
    }
}
