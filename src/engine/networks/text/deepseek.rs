//! DeepSeek V2 and V3 and GLM-4.7-Flash: latent attention before experts.

use super::{
    config::ConfigJson,
    experts::{ExpertsSpec, SharedExpertSpec, wanted},
    family::Family,
    llama,
    rope::Rope,
    spec::{Biases, DecoderSpec},
};
use crate::networks::{
    layers::{ExpertGroups, GroupScore, Routing},
    weights::{Flaw, sized},
};
use muster_kernels::RopeStyle;

/// Experts chosen by a softmax. Groups count by their best expert.
pub fn deepseek_v2_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let json = &config.experts;
    named("scoring_func", json.scoring_func.as_deref(), &["softmax"])?;
    named(
        "topk_method",
        json.topk_method.as_deref(),
        &["greedy", "group_limited_greedy"],
    )?;
    if json.norm_topk_prob == Some(true) {
        // The makers' program and the reference differ here, and no published model has it.
        return Err(Flaw::unsupported("norm_topk_prob", true, "false"));
    }
    if config.latent.rope_interleave == Some(false) {
        return Err(Flaw::unsupported("rope_interleave", false, "true"));
    }
    let feed = wanted(json.moe_intermediate_size, "moe_intermediate_size")?;
    let plain = config.experts(feed, false)?;
    let groups = ExpertGroups {
        count: json.n_group.unwrap_or(1),
        active: json.topk_group.unwrap_or(1),
        score: GroupScore::Best,
    };
    let in_groups = json.topk_method.as_deref() == Some("group_limited_greedy");
    let shared = json.n_shared_experts.unwrap_or(0);
    let first = json.first_k_dense_replace.unwrap_or(0);
    let experts = ExpertsSpec {
        routing: Routing {
            scale: json.routed_scaling_factor.unwrap_or(1.0),
            groups: Some(groups).filter(|groups| in_groups && groups.count != 1),
            ..plain.routing
        },
        shared: match shared {
            0 => None,
            _ => Some(SharedExpertSpec {
                intermediate_size: sized("n_shared_experts", shared)?.saturating_mul(feed),
                is_gated: false,
            }),
        },
        dense_layers: (0..first.min(config.num_hidden_layers)).collect(),
        ..plain
    };
    with_latents(config, Family::DeepseekV2, experts)
}

/// Experts chosen by corrected sigmoids.
pub fn deepseek_v3_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let json = &config.experts;
    named("scoring_func", json.scoring_func.as_deref(), &["sigmoid"])?;
    named("topk_method", json.topk_method.as_deref(), &["noaux_tc"])?;
    with_latents(config, Family::DeepseekV3, config.corrected_experts()?)
}

/// The first layer is dense, unless the file lists more.
pub fn glm4_moe_lite_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let json = &config.experts;
    named("scoring_func", json.scoring_func.as_deref(), &["sigmoid"])?;
    named("topk_method", json.topk_method.as_deref(), &["noaux_tc"])?;
    let experts = config.corrected_experts()?;
    let layers = config.num_hidden_layers;
    let dense_layers = match (&json.mlp_layer_types, json.first_k_dense_replace) {
        (Some(types), _) => dense_layers(types, layers)?,
        (None, Some(_)) => experts.dense_layers.clone(),
        (None, None) => (0..layers.min(1)).collect(),
    };
    let experts = ExpertsSpec {
        dense_layers,
        ..experts
    };
    with_latents(config, Family::Glm4MoeLite, experts)
}

fn dense_layers(types: &[String], layers: usize) -> Result<Vec<usize>, Flaw> {
    if types.len() != layers {
        let found = format!("{} entries", types.len());
        let wanted = format!("one for each of {layers} layers");
        return Err(Flaw::broken("mlp_layer_types", found, wanted));
    }
    for name in types {
        named("mlp_layer_types", Some(name), &["dense", "sparse"])?;
    }
    let is_dense = |layer: &usize| types[*layer] == "dense";
    Ok((0..layers).filter(is_dense).collect())
}

fn with_latents(
    config: &ConfigJson,
    family: Family,
    experts: ExpertsSpec,
) -> Result<DecoderSpec, Flaw> {
    if let Some(step) = config.experts.moe_layer_freq.filter(|&step| step != 1) {
        return Err(Flaw::unsupported("moe_layer_freq", step, "1"));
    }
    let latent = config.latent()?;
    let head_dim = latent.sizes.query_dim();
    let rope = config.rope(latent.sizes.rope_dim)?;
    let weight = config.rope_weight();
    let has_biases = config.attention_bias.unwrap_or(false);
    Ok(DecoderSpec {
        kv_heads: 1,
        head_dim,
        latent: Some(latent),
        context: config.context(&rope),
        rope: Rope {
            // The original files have interleaved pairs.
            style: match config.latent.rope_interleave {
                Some(false) => RopeStyle::Halves,
                _ => RopeStyle::Pairs,
            },
            ..rope
        },
        attention_scale: Some(weight / (head_dim as f64).sqrt()).filter(|_| weight != 1.0),
        experts: Some(experts),
        prediction_layers: config.prediction_layers()?,
        biases: Biases {
            query_key_value: has_biases,
            attention_output: has_biases,
            feed_forward: false,
        },
        ..llama::spec(config, family)?
    })
}

fn named(field: &str, found: Option<&str>, known: &[&str]) -> Result<(), Flaw> {
    match found {
        Some(name) if !known.contains(&name) => {
            Err(Flaw::unsupported(field, name, known.join(" and ")))
        }
        _ => Ok(()),
    }
}
