//! CLIP's image encoder: a transformer over patches and a class token.

use candle_core::Tensor;
use serde::Deserialize;

use crate::networks::adapter::Pass;
use crate::networks::blocks::{
    AffineNorm, ClipActivation, ClipLayer, ClipLayerShape, ComponentReader, Projection,
};
use crate::networks::weights::{Flaw, layered};
use muster_kernels::{Edges, Mask};

/// Colors of a place.
const CHANNELS: usize = 3;
/// Patches in a row. No published network has a third of it.
const MOST_PATCHES: usize = 128;

/// The sizes and conventions of the encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct ClipVisionSpec {
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    pub heads: usize,
    /// Width and height of its images.
    pub image_size: usize,
    pub patch_size: usize,
    pub activation: ClipActivation,
    pub norm_eps: f64,
}

/// `vision_config` of a `config.json`. Missing settings default to ViT-B/32, like in the reference.
#[derive(Deserialize)]
#[serde(default)]
struct ClipVisionJson {
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_channels: usize,
    image_size: usize,
    patch_size: usize,
    hidden_act: String,
    layer_norm_eps: f64,
}

impl Default for ClipVisionJson {
    fn default() -> Self {
        Self {
            hidden_size: 768,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            num_channels: CHANNELS,
            image_size: 224,
            patch_size: 32,
            hidden_act: "quick_gelu".to_owned(),
            layer_norm_eps: 1e-5,
        }
    }
}

impl ClipVisionSpec {
    pub fn read(value: &serde_json::Value) -> Result<Self, Flaw> {
        let json: ClipVisionJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("vision_config", error, "a CLIP image encoder"))?;
        if json.num_channels != CHANNELS {
            return Err(Flaw::unsupported("num_channels", json.num_channels, "3"));
        }
        let heads = json.num_attention_heads;
        if heads == 0 || !json.hidden_size.is_multiple_of(heads) {
            let found = format!("{heads} heads");
            let wanted = "a divisor of the hidden size";
            return Err(Flaw::broken("attention", found, wanted));
        }
        let patches = json.image_size.checked_div(json.patch_size).unwrap_or(0);
        if patches == 0
            || patches > MOST_PATCHES
            || !json.image_size.is_multiple_of(json.patch_size)
        {
            let found = format!("{} by {}", json.image_size, json.patch_size);
            let wanted = format!("1 to {MOST_PATCHES} whole patches in a row");
            return Err(Flaw::broken("image_size by patch_size", found, wanted));
        }
        Ok(Self {
            hidden_size: json.hidden_size,
            intermediate_size: json.intermediate_size,
            layers: layered("num_hidden_layers", json.num_hidden_layers)?,
            heads,
            image_size: json.image_size,
            patch_size: json.patch_size,
            activation: ClipActivation::named(&json.hidden_act)?,
            norm_eps: json.layer_norm_eps,
        })
    }

    fn patches(&self) -> usize {
        self.image_size / self.patch_size
    }
}

/// The encoder on a device.
pub struct ClipVision {
    spec: ClipVisionSpec,
    /// A patch as a row of its channels, lines and places.
    patches: Projection,
    class: Tensor,
    positions: Tensor,
    first_norm: AffineNorm,
    layers: Vec<ClipLayer>,
    last_norm: AffineNorm,
}

impl ClipVision {
    pub(super) fn read(
        spec: ClipVisionSpec,
        stem: &str,
        reader: &mut ComponentReader<'_>,
    ) -> Result<Self, Flaw> {
        let (hidden, patch, eps) = (spec.hidden_size, spec.patch_size, spec.norm_eps);
        let patches = reader.projection_stored(
            &format!("{stem}.embeddings.patch_embedding"),
            (hidden, CHANNELS * patch * patch),
            false,
            &[&[hidden, CHANNELS, patch, patch]],
        )?;
        let class = reader.vector(&format!("{stem}.embeddings.class_embedding"), hidden)?;
        let places = spec.patches() * spec.patches() + 1;
        let positions = format!("{stem}.embeddings.position_embedding.weight");
        let positions = reader.table(&positions, (places, hidden))?;
        let shape = ClipLayerShape {
            hidden,
            feed: spec.intermediate_size,
            heads: spec.heads,
            activation: spec.activation,
            norm_eps: eps,
        };
        // The reference spells it so.
        let first_norm = reader.norm(&format!("{stem}.pre_layrnorm"), hidden, eps)?;
        let layers = (0..spec.layers)
            .map(|index| ClipLayer::read(reader, &format!("{stem}.encoder.layers.{index}"), shape));
        let layers = layers.collect::<Result<_, _>>()?;
        let last_norm = reader.norm(&format!("{stem}.post_layernorm"), hidden, eps)?;
        Ok(Self {
            spec,
            patches,
            class,
            positions,
            first_norm,
            layers,
            last_norm,
        })
    }

    pub fn spec(&self) -> &ClipVisionSpec {
        &self.spec
    }

    /// The class token's state, `[1, hidden]`, for levels from [`prepare`](super::prepare()).
    pub fn forward(&self, levels: &[f32]) -> candle_core::Result<Tensor> {
        let device = self.class.device();
        let (side, patch, across) = (
            self.spec.image_size,
            self.spec.patch_size,
            self.spec.patches(),
        );
        let image = Tensor::from_slice(levels, (across, patch, across, patch, CHANNELS), device)?;
        debug_assert_eq!(levels.len(), side * side * CHANNELS);
        let rows = image.permute((0, 2, 4, 1, 3))?.contiguous()?;
        let rows = rows.reshape((1, across * across, CHANNELS * patch * patch))?;
        let class = self.class.reshape((1, 1, self.spec.hidden_size))?;
        let state = Tensor::cat(&[&class, &self.patches.apply(&rows)?], 1)?;
        let mut state = self
            .first_norm
            .of_rows(&state.broadcast_add(&self.positions)?)?;
        for layer in &self.layers {
            state = layer.forward(&state, Mask::None, Pass::plain(Edges::Zeros))?;
        }
        let first = state.narrow(1, 0, 1)?.squeeze(1)?.contiguous()?;
        self.last_norm.of_rows(&first)
    }
}
