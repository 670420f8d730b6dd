//! Sizes of the tower and of its projector, from a `config.json`.

use serde::Deserialize;
use serde_json::Value;

use crate::networks::vision::block::BlockShape;
use crate::networks::vision::image::CHANNELS;
use crate::networks::weights::{Flaw, layered, sized};
use muster_kernels::GateKind;

/// The largest side of a patch, and patches in a row of a token.
const MOST_PATCH: usize = 256;
/// Epsilon of the tower's norms.
const EPSILON: f64 = 1e-5;

#[derive(Debug, Clone, PartialEq)]
pub struct PixtralSpec {
    pub block: BlockShape,
    pub layers: usize,
    pub patch_size: usize,
    /// Patches in a row of a token.
    pub merge_size: usize,
    pub rope_theta: f64,
    /// Epsilon of the norm after the tower.
    pub projector_epsilon: f64,
    pub projector_has_bias: bool,
    pub out_size: usize,
}

#[derive(Deserialize)]
#[serde(default)]
struct PixtralJson {
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_channels: usize,
    patch_size: usize,
    head_dim: Option<usize>,
    hidden_act: String,
    rope_theta: Option<f64>,
    rope_parameters: Option<PixtralRopeJson>,
}

#[derive(Deserialize)]
struct PixtralRopeJson {
    rope_theta: Option<f64>,
}

/// Defaults of the reference.
impl Default for PixtralJson {
    fn default() -> Self {
        Self {
            hidden_size: 1024,
            intermediate_size: 4096,
            num_hidden_layers: 24,
            num_attention_heads: 16,
            num_channels: CHANNELS,
            patch_size: 16,
            head_dim: None,
            hidden_act: "gelu".to_owned(),
            rope_theta: None,
            rope_parameters: None,
        }
    }
}

#[derive(Deserialize)]
struct ProjectorJson {
    spatial_merge_size: Option<usize>,
    vision_feature_layer: Option<i64>,
    multimodal_projector_bias: Option<bool>,
    projector_hidden_act: Option<String>,
    text_config: TextJson,
}

#[derive(Deserialize)]
struct TextJson {
    hidden_size: usize,
    rms_norm_eps: Option<f64>,
}

impl PixtralSpec {
    pub fn read(config: &Value) -> Result<Self, Flaw> {
        let json: PixtralJson = serde_json::from_value(config["vision_config"].clone())
            .map_err(|error| Flaw::broken("vision_config", error, "a Pixtral vision tower"))?;
        let projector: ProjectorJson = serde_json::from_value(config.clone())
            .map_err(|error| Flaw::broken("config.json", error, "a model with a Pixtral tower"))?;
        if json.num_channels != CHANNELS {
            return Err(Flaw::unsupported("num_channels", json.num_channels, "3"));
        }
        let layer = projector.vision_feature_layer.unwrap_or(-1);
        if layer != -1 {
            return Err(Flaw::unsupported("vision_feature_layer", layer, "-1"));
        }
        let act = projector.projector_hidden_act;
        if let Some(found) = act.filter(|found| found != "gelu") {
            return Err(Flaw::unsupported("projector_hidden_act", found, "gelu"));
        }
        let gate = match json.hidden_act.as_str() {
            "silu" => GateKind::Silu,
            "gelu" => GateKind::Gelu,
            other => return Err(Flaw::unsupported("hidden_act", other, "silu and gelu")),
        };
        let (hidden, heads) = (json.hidden_size, json.num_attention_heads);
        let block = BlockShape {
            epsilon: EPSILON,
            has_root_norms: true,
            gate,
            ..BlockShape::checked(hidden, json.intermediate_size, heads)?
        };
        let head = hidden / heads;
        if !head.is_multiple_of(4) || json.head_dim.is_some_and(|found| found != head) {
            let found = format!("{heads} heads of {hidden}, and {:?}", json.head_dim);
            let wanted = "heads of a size that 4 divides";
            return Err(Flaw::broken("vision_config.head_dim", found, wanted));
        }
        let theta = json.rope_parameters.and_then(|rope| rope.rope_theta);
        let theta = theta.or(json.rope_theta).unwrap_or(10_000.0);
        let epsilon = projector.text_config.rms_norm_eps.unwrap_or(1e-6);
        for (name, number) in [("rope_theta", theta), ("rms_norm_eps", epsilon)] {
            if !(number.is_finite() && number > 0.0) {
                return Err(Flaw::broken(name, number, "a finite number above 0"));
            }
        }
        let small = |name: &str, value: usize| match (1..=MOST_PATCH).contains(&value) {
            true => Ok(value),
            false => Err(Flaw::broken(name, value, format!("1 to {MOST_PATCH}"))),
        };
        let merge = projector.spatial_merge_size.unwrap_or(2);
        Ok(Self {
            block,
            layers: layered("vision_config.num_hidden_layers", json.num_hidden_layers)?,
            patch_size: small("patch_size", json.patch_size)?,
            merge_size: small("spatial_merge_size", merge)?,
            rope_theta: theta,
            projector_epsilon: epsilon,
            projector_has_bias: projector.multimodal_projector_bias.unwrap_or(false),
            out_size: sized("text_config.hidden_size", projector.text_config.hidden_size)?,
        })
    }
}
