//! Sizes of a SigLIP encoder, from `vision_config` of a `config.json`.

use serde::Deserialize;
use serde_json::Value;

use crate::networks::vision::block::BlockShape;
use crate::networks::vision::image::CHANNELS;
use crate::networks::weights::{Flaw, layered, sized};

/// Limit of patches per row. Published encoders have at most 64.
const MOST_SIDE: usize = 1024;
/// The side of an image, and that of a patch.
const MOST_PIXELS: usize = 1 << 14;

#[derive(Debug, Clone, PartialEq)]
pub struct SiglipSpec {
    pub block: BlockShape,
    pub layers: usize,
    /// Pixels in a row of an image.
    pub image_size: usize,
    pub patch_size: usize,
}

/// Defaults of a family's omitted settings.
#[derive(Debug, Clone, Copy)]
pub struct SiglipDefaults {
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    pub heads: usize,
    pub image_size: usize,
    pub patch_size: usize,
}

#[derive(Deserialize)]
struct SiglipJson {
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_channels: Option<usize>,
    image_size: Option<usize>,
    patch_size: Option<usize>,
    hidden_act: Option<String>,
    layer_norm_eps: Option<f64>,
    vision_use_head: Option<bool>,
}

impl SiglipSpec {
    pub fn read(vision_config: &Value, usual: SiglipDefaults) -> Result<Self, Flaw> {
        let json: SiglipJson = serde_json::from_value(vision_config.clone())
            .map_err(|error| Flaw::broken("vision_config", error, "a SigLIP vision tower"))?;
        if let Some(found) = json.num_channels.filter(|&found| found != CHANNELS) {
            return Err(Flaw::unsupported("num_channels", found, "3"));
        }
        if let Some(found) = json.hidden_act.filter(|it| it != "gelu_pytorch_tanh") {
            return Err(Flaw::unsupported("hidden_act", found, "gelu_pytorch_tanh"));
        }
        if json.vision_use_head == Some(true) {
            return Err(Flaw::unsupported("vision_use_head", true, "false"));
        }
        let epsilon = json.layer_norm_eps.unwrap_or(1e-6);
        let hidden = json.hidden_size.unwrap_or(usual.hidden_size);
        let feed = json.intermediate_size.unwrap_or(usual.intermediate_size);
        let layers = json.num_hidden_layers.unwrap_or(usual.layers);
        let heads = json.num_attention_heads.unwrap_or(usual.heads);
        let spec = Self {
            block: BlockShape {
                epsilon,
                has_bias: true,
                ..BlockShape::checked(hidden, feed, heads)?
            },
            layers: layered("vision_config.num_hidden_layers", layers)?,
            image_size: json.image_size.unwrap_or(usual.image_size),
            patch_size: json.patch_size.unwrap_or(usual.patch_size),
        };
        for (name, size) in [
            ("image_size", spec.image_size),
            ("patch_size", spec.patch_size),
        ] {
            if !(1..=MOST_PIXELS).contains(&size) {
                return Err(Flaw::broken(name, size, format!("1 to {MOST_PIXELS}")));
            }
        }
        sized("patches", spec.patch_size * spec.patch_size)?;
        let side = spec.side();
        match (1..=MOST_SIDE).contains(&side) {
            true => Ok(spec),
            false => {
                let wanted = format!("1 to {MOST_SIDE} patches in a row");
                Err(Flaw::broken("image_size", side, wanted))
            }
        }
    }

    /// Patches per row of an image. Pixels after the last one are dropped.
    pub fn side(&self) -> usize {
        self.image_size / self.patch_size
    }
}
