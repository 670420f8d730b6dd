//! Sizes of the tower, from `vision_config` of a `config.json`.

use serde::Deserialize;
use serde_json::Value;

use crate::networks::vision::block::BlockShape;
use crate::networks::vision::image::CHANNELS;
use crate::networks::weights::{Flaw, layered, sized};

/// The largest side of a patch, and patches in a row of a token.
const MOST_PATCH: usize = 256;

#[derive(Debug, Clone, PartialEq)]
pub struct Qwen2Spec {
    pub block: BlockShape,
    pub layers: usize,
    pub patch_size: usize,
    /// Patches in a row of a token.
    pub merge_size: usize,
    /// Frames of a patch. An image is the same in all of them.
    pub temporal_patch_size: usize,
    /// Tokens in a row of a window.
    pub window: usize,
    /// Layers that see the whole image.
    pub whole_layers: Vec<usize>,
    pub rope_theta: f64,
    pub out_size: usize,
}

#[derive(Deserialize)]
#[serde(default)]
struct Qwen2Json {
    depth: usize,
    hidden_size: usize,
    hidden_act: String,
    intermediate_size: usize,
    num_heads: usize,
    /// Older files have `in_chans`.
    #[serde(alias = "in_chans")]
    in_channels: usize,
    patch_size: usize,
    spatial_merge_size: usize,
    temporal_patch_size: usize,
    window_size: usize,
    out_hidden_size: usize,
    fullatt_block_indexes: Vec<usize>,
    rope_parameters: Option<Qwen2RopeJson>,
}

#[derive(Deserialize)]
struct Qwen2RopeJson {
    rope_theta: Option<f64>,
}

/// Defaults of the reference.
impl Default for Qwen2Json {
    fn default() -> Self {
        Self {
            depth: 32,
            hidden_size: 3584,
            hidden_act: "silu".to_owned(),
            intermediate_size: 3420,
            num_heads: 16,
            in_channels: CHANNELS,
            patch_size: 14,
            spatial_merge_size: 2,
            temporal_patch_size: 2,
            window_size: 112,
            out_hidden_size: 3584,
            fullatt_block_indexes: vec![7, 15, 23, 31],
            rope_parameters: None,
        }
    }
}

impl Qwen2Spec {
    pub fn read(vision_config: &Value) -> Result<Self, Flaw> {
        let json: Qwen2Json = serde_json::from_value(vision_config.clone())
            .map_err(|error| Flaw::broken("vision_config", error, "a vision tower of Qwen"))?;
        if json.in_channels != CHANNELS {
            return Err(Flaw::unsupported("in_channels", json.in_channels, "3"));
        }
        if json.hidden_act != "silu" {
            return Err(Flaw::unsupported("hidden_act", json.hidden_act, "silu"));
        }
        let (hidden, heads) = (json.hidden_size, json.num_heads);
        let block = BlockShape {
            has_root_norms: true,
            has_bias: true,
            ..BlockShape::checked(hidden, json.intermediate_size, heads)?
        };
        if !(hidden / heads).is_multiple_of(4) {
            let found = format!("{heads} heads of {hidden}");
            let wanted = "heads of a size that 4 divides";
            return Err(Flaw::broken("vision_config.num_heads", found, wanted));
        }
        for (name, size) in [
            ("patch_size", json.patch_size),
            ("spatial_merge_size", json.spatial_merge_size),
            ("temporal_patch_size", json.temporal_patch_size),
        ] {
            if !(1..=MOST_PATCH).contains(&size) {
                return Err(Flaw::broken(name, size, format!("1 to {MOST_PATCH}")));
            }
        }
        let window = json.window_size / json.spatial_merge_size / json.patch_size;
        if window == 0 {
            let wanted = "at least one token";
            return Err(Flaw::broken("window_size", json.window_size, wanted));
        }
        let theta = json.rope_parameters.and_then(|rope| rope.rope_theta);
        let theta = theta.unwrap_or(10_000.0);
        if !(theta.is_finite() && theta > 0.0) {
            return Err(Flaw::broken("rope_theta", theta, "a finite number above 0"));
        }
        Ok(Self {
            block,
            layers: layered("vision_config.depth", json.depth)?,
            patch_size: json.patch_size,
            merge_size: json.spatial_merge_size,
            temporal_patch_size: json.temporal_patch_size,
            window,
            whole_layers: json.fullatt_block_indexes,
            rope_theta: theta,
            out_size: sized("out_hidden_size", json.out_hidden_size)?,
        })
    }
}
