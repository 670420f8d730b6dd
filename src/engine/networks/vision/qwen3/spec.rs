//! Sizes of a vision tower, from `vision_config` of a `config.json`.

use serde::Deserialize;
use serde_json::Value;

use crate::networks::vision::block::BlockShape;
use crate::networks::vision::image::CHANNELS;
use crate::networks::weights::{Flaw, layered, sized};
use muster_kernels::GateKind;

/// Epsilon of all norms.
pub const EPSILON: f64 = 1e-6;
/// Limit of learned positions per row. Published towers have 48.
const MOST_POSITIONS: usize = 1024;
/// The largest side of a patch, and patches in a row of a block.
const MOST_PATCH: usize = 256;

#[derive(Debug, Clone, PartialEq)]
pub struct QwenSpec {
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    pub heads: usize,
    pub patch_size: usize,
    /// Patches in a row of a block, which is one token.
    pub merge_size: usize,
    /// Frames of a patch. An image is the same in all of them.
    pub temporal_patch_size: usize,
    /// The hidden size of the decoder.
    pub out_size: usize,
    /// Learned positions per row.
    pub positions: usize,
    /// Layers whose outputs are added to the decoder's first layers, in order.
    pub deepstack: Vec<usize>,
    pub rope_theta: f64,
}

#[derive(Deserialize)]
#[serde(default)]
struct VisionJson {
    depth: usize,
    hidden_size: usize,
    hidden_act: String,
    intermediate_size: usize,
    num_heads: usize,
    in_channels: usize,
    patch_size: usize,
    spatial_merge_size: usize,
    temporal_patch_size: usize,
    out_hidden_size: usize,
    num_position_embeddings: usize,
    deepstack_visual_indexes: Vec<usize>,
    rope_parameters: Option<VisionRopeJson>,
}

#[derive(Deserialize)]
struct VisionRopeJson {
    rope_theta: Option<f64>,
}

/// Defaults of the reference.
impl Default for VisionJson {
    fn default() -> Self {
        Self {
            depth: 27,
            hidden_size: 1152,
            hidden_act: "gelu_pytorch_tanh".to_owned(),
            intermediate_size: 4304,
            num_heads: 16,
            in_channels: CHANNELS,
            patch_size: 16,
            spatial_merge_size: 2,
            temporal_patch_size: 2,
            out_hidden_size: 3584,
            num_position_embeddings: 2304,
            deepstack_visual_indexes: vec![8, 16, 24],
            rope_parameters: None,
        }
    }
}

fn small(name: &str, value: usize) -> Result<usize, Flaw> {
    match (1..=MOST_PATCH).contains(&value) {
        true => Ok(value),
        false => Err(Flaw::broken(name, value, format!("1 to {MOST_PATCH}"))),
    }
}

impl QwenSpec {
    /// Without `has_deepstack` the file's setting is ignored, like in the reference.
    pub fn read(vision_config: &Value, has_deepstack: bool) -> Result<Self, Flaw> {
        let json: VisionJson = serde_json::from_value(vision_config.clone())
            .map_err(|error| Flaw::broken("vision_config", error, "a vision tower of Qwen"))?;
        if json.in_channels != CHANNELS {
            return Err(Flaw::unsupported("in_channels", json.in_channels, "3"));
        }
        if json.hidden_act != "gelu_pytorch_tanh" {
            let known = "gelu_pytorch_tanh";
            return Err(Flaw::unsupported("hidden_act", json.hidden_act, known));
        }
        let (heads, hidden) = (json.num_heads, sized("hidden_size", json.hidden_size)?);
        if heads == 0 || !hidden.is_multiple_of(heads) || !(hidden / heads).is_multiple_of(4) {
            let found = format!("{heads} heads of {hidden}");
            let wanted = "heads of a size that 4 divides";
            return Err(Flaw::broken("vision_config.num_heads", found, wanted));
        }
        let positions = json.num_position_embeddings.isqrt();
        let is_square = positions * positions == json.num_position_embeddings;
        if !is_square || !(1..=MOST_POSITIONS).contains(&positions) {
            let found = json.num_position_embeddings;
            let wanted = format!("a square of 1 to {MOST_POSITIONS}");
            return Err(Flaw::broken("num_position_embeddings", found, wanted));
        }
        let layers = layered("vision_config.depth", json.depth)?;
        let deepstack = match has_deepstack {
            true => json.deepstack_visual_indexes,
            false => Vec::new(),
        };
        // The reference takes the outputs in the order of the layers.
        let ascends = deepstack.is_sorted_by(|one, next| one < next);
        if !ascends || deepstack.last().is_some_and(|&last| last >= layers) {
            let found = format!("{deepstack:?}");
            let wanted = format!("ascending layers before {layers}");
            return Err(Flaw::broken("deepstack_visual_indexes", found, wanted));
        }
        let theta = json.rope_parameters.and_then(|rope| rope.rope_theta);
        let theta = theta.unwrap_or(10_000.0);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(Flaw::broken("rope_theta", theta, "a finite number above 0"));
        }
        Ok(Self {
            hidden_size: hidden,
            intermediate_size: sized("intermediate_size", json.intermediate_size)?,
            layers,
            heads,
            patch_size: small("patch_size", json.patch_size)?,
            merge_size: small("spatial_merge_size", json.spatial_merge_size)?,
            temporal_patch_size: small("temporal_patch_size", json.temporal_patch_size)?,
            out_size: sized("out_hidden_size", json.out_hidden_size)?,
            positions,
            deepstack,
            rope_theta: theta,
        })
    }

    pub fn block(&self) -> BlockShape {
        BlockShape {
            hidden: self.hidden_size,
            intermediate: self.intermediate_size,
            heads: self.heads,
            epsilon: EPSILON,
            has_root_norms: false,
            has_bias: true,
            gate: GateKind::Silu,
        }
    }

    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.heads
    }

    /// Patches of a block.
    pub fn merged(&self) -> usize {
        self.merge_size * self.merge_size
    }
}
