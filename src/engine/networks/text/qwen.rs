//! Qwen2, 2.5 and 2.5-VL, with biases of queries, keys and values, and Qwen3, with norms of queries and keys, also with
//! experts. Qwen3-VL is a Qwen3 with rope by rows and columns of images.

use super::{
    config::ConfigJson,
    experts::{ExpertsSpec, SharedExpertSpec, wanted},
    family::Family,
    llama,
    rope::{Rope, RopeAxes, RopeScaling},
    spec::{Biases, DecoderSpec, QueryKeyNorm},
};
use crate::networks::weights::Flaw;

/// Includes Qwen2.5-VL, whose files have sections of its rope.
pub fn qwen2_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let llama = llama::spec(config, Family::Qwen2)?;
    let sections = RopeSections {
        usual: None,
        is_interleaved: false,
    };
    Ok(DecoderSpec {
        rope_axes: rope_axes(config, &llama.rope, sections)?,
        biases: Biases {
            query_key_value: true,
            attention_output: false,
            feed_forward: false,
        },
        windows: windows(config)?,
        ..llama
    })
}

pub fn qwen3_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    Ok(DecoderSpec {
        windows: windows(config)?,
        ..with_norms(config, Family::Qwen3)?
    })
}

/// Has a gated shared expert in addition to the chosen ones.
pub fn qwen2_moe_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let json = &config.experts;
    let feed = wanted(json.moe_intermediate_size, "moe_intermediate_size")?;
    let shared = json.shared_expert_intermediate_size;
    let shared = wanted(shared, "shared_expert_intermediate_size")?;
    let experts = config.experts(feed, json.norm_topk_prob.unwrap_or(false))?;
    let has_window = config.use_sliding_window.unwrap_or(false);
    let most = config.max_window_layers.unwrap_or(28);
    let llama = llama::spec(config, Family::Qwen2Moe)?;
    Ok(DecoderSpec {
        experts: Some(ExpertsSpec {
            shared: Some(SharedExpertSpec {
                intermediate_size: shared,
                is_gated: true,
            }),
            ..experts
        }),
        biases: Biases {
            query_key_value: config.qkv_bias.unwrap_or(true),
            attention_output: false,
            feed_forward: false,
        },
        windows: match has_window {
            true => config.windows(|layer| layer % 2 == 0 && layer < most)?,
            false => Vec::new(),
        },
        ..llama
    })
}

/// If windows are enabled, all layers have one.
pub fn qwen3_moe_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let json = &config.experts;
    let feed = wanted(json.moe_intermediate_size, "moe_intermediate_size")?;
    let is_normalized = json.norm_topk_prob.unwrap_or(false);
    Ok(DecoderSpec {
        experts: Some(config.experts(feed, is_normalized)?),
        windows: match config.use_sliding_window {
            Some(true) => config.windows(|_| true)?,
            _ => Vec::new(),
        },
        ..with_norms(config, Family::Qwen3Moe)?
    })
}

fn with_norms(config: &ConfigJson, family: Family) -> Result<DecoderSpec, Flaw> {
    let llama = llama::spec(config, family)?;
    Ok(DecoderSpec {
        query_key_norm: Some(QueryKeyNorm::PerHead),
        biases: Biases {
            feed_forward: false,
            ..llama.biases
        },
        ..llama
    })
}

/// `text_config`; the rest of the file is about the vision tower.
pub fn qwen3_vl_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let qwen3 = qwen3_spec(config)?;
    let rope = config.rope_with(qwen3.head_dim, 500_000.0)?;
    if rope.scaling != RopeScaling::None {
        let found = format!("{:?}", rope.scaling);
        let known = "default, beside mrope_section";
        return Err(Flaw::unsupported("the rope_scaling type", found, known));
    }
    let axes = rope_axes(config, &rope, RopeSections::interleaved([24, 20, 20]))?;
    let Some(axes) = axes else {
        let wanted = format!("three numbers that add up to {}", rope.dims / 2);
        return Err(Flaw::broken("mrope_section", "nothing", wanted));
    };
    Ok(DecoderSpec {
        family: Family::Qwen3Vl,
        rope,
        rope_axes: Some(axes),
        ..qwen3
    })
}

/// How a family's axes share the frequencies.
#[derive(Debug, Clone, Copy)]
pub struct RopeSections {
    /// For files that list none.
    usual: Option<[usize; 3]>,
    is_interleaved: bool,
}

impl RopeSections {
    pub fn interleaved(usual: [usize; 3]) -> Self {
        Self {
            usual: Some(usual),
            is_interleaved: true,
        }
    }
}

/// Rope axes of image tokens. `None` if the file lists no sections and the default ones do not fit.
pub fn rope_axes(
    config: &ConfigJson,
    rope: &Rope,
    RopeSections {
        usual,
        is_interleaved,
    }: RopeSections,
) -> Result<Option<RopeAxes>, Flaw> {
    let half = rope.dims / 2;
    let fits = |sections: &[usize; 3]| {
        sections.iter().all(|&section| section <= half) && sections.iter().sum::<usize>() == half
    };
    let (named, interleaved) = config.rope_sections();
    if let Some(found) = interleaved.filter(|&found| found != is_interleaved) {
        return Err(Flaw::unsupported(
            "mrope_interleaved",
            found,
            is_interleaved.to_string(),
        ));
    }
    let sections = match named {
        Some(sections) if !fits(&sections) => {
            let found = format!("{sections:?}");
            let wanted = format!("three numbers that add up to {half}");
            return Err(Flaw::broken("mrope_section", found, wanted));
        }
        Some(sections) => Some(sections),
        None => usual.filter(fits),
    };
    Ok(sections.map(|sections| RopeAxes {
        sections,
        is_interleaved,
    }))
}

/// The field `sliding_window` is always there and counts only when it is switched on, from a layer upwards.
fn windows(config: &ConfigJson) -> Result<Vec<Option<usize>>, Flaw> {
    if !config.use_sliding_window.unwrap_or(false) {
        return Ok(Vec::new());
    }
    let first = config.max_window_layers.unwrap_or(0);
    config.windows(|layer| layer >= first)
}
