//! The text encoders of the Stable Diffusion family: CLIP's, and OpenCLIP's in its shape.

use std::sync::Arc;

use candle_core::{Device, Tensor, bail};
use serde::Deserialize;

use crate::networks::adapter::{LayerTable, Pass};
use crate::networks::blocks::{
    AffineNorm, ClipActivation, ClipLayer, ClipLayerShape, ComponentReader, ComponentSource,
    Projection, block_end,
};
use crate::networks::weights::{Flaw, layered};
use muster_kernels::Mask;

/// The sizes and conventions of a text encoder.
#[derive(Debug, Clone, PartialEq)]
pub struct ClipSpec {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub intermediate_size: usize,
    pub layers: usize,
    pub heads: usize,
    /// Tokens of a window, begin and end included.
    pub positions: usize,
    pub activation: ClipActivation,
    pub norm_eps: f64,
    /// The size of the pooled output, of encoders that have one.
    pub projection: Option<usize>,
    /// The token whose first position is pooled.
    pub end_token: u32,
}

/// `config.json` of a text encoder.
#[derive(Deserialize)]
struct ClipJson {
    #[serde(default)]
    architectures: Vec<String>,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    max_position_embeddings: usize,
    hidden_act: String,
    layer_norm_eps: f64,
    projection_dim: Option<usize>,
    eos_token_id: Option<u32>,
}

/// End of text in CLIP's vocabulary. Older files name 2 instead.
const END: u32 = 49407;

impl ClipSpec {
    /// CLIP ViT-L/14: Stable Diffusion 1, and the first encoder of SDXL.
    pub const LARGE: Self = Self {
        vocab_size: 49408,
        hidden_size: 768,
        intermediate_size: 3072,
        layers: 12,
        heads: 12,
        positions: 77,
        activation: ClipActivation::QuickGelu,
        norm_eps: 1e-5,
        projection: None,
        end_token: END,
    };

    /// OpenCLIP ViT-bigG/14: the second encoder of SDXL.
    pub const BIG_G: Self = Self {
        hidden_size: 1280,
        intermediate_size: 5120,
        layers: 32,
        heads: 20,
        activation: ClipActivation::Gelu,
        projection: Some(1280),
        ..Self::LARGE
    };

    pub fn read(value: &serde_json::Value) -> Result<Self, Flaw> {
        let json: ClipJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "a CLIP text encoder"))?;
        let is_projected = |name: &String| name == "CLIPTextModelWithProjection";
        let is_known = |name: &String| is_projected(name) || name == "CLIPTextModel";
        if !json.architectures.iter().any(is_known) {
            let known = "CLIPTextModel and CLIPTextModelWithProjection";
            let found = json.architectures.join(", ");
            return Err(Flaw::unsupported("architectures", found, known));
        }
        let activation = ClipActivation::named(&json.hidden_act)?;
        let has_projection = json.architectures.iter().any(is_projected);
        if json.num_attention_heads == 0
            || !json.hidden_size.is_multiple_of(json.num_attention_heads)
        {
            let found = format!("{} heads", json.num_attention_heads);
            return Err(Flaw::broken(
                "attention",
                found,
                "a divisor of the hidden size",
            ));
        }
        Ok(Self {
            vocab_size: json.vocab_size,
            hidden_size: json.hidden_size,
            intermediate_size: json.intermediate_size,
            layers: layered("num_hidden_layers", json.num_hidden_layers)?,
            heads: json.num_attention_heads,
            positions: json.max_position_embeddings,
            activation,
            norm_eps: json.layer_norm_eps,
            projection: json.projection_dim.filter(|_| has_projection),
            end_token: json.eos_token_id.filter(|&id| id != 2).unwrap_or(END),
        })
    }
}

/// A text encoder on a device.
pub struct ClipText {
    spec: ClipSpec,
    tokens: Tensor,
    positions: Tensor,
    layers: Vec<ClipLayer>,
    norm: AffineNorm,
    projection: Option<Projection>,
    table: LayerTable,
}

/// Hidden states `[windows, tokens, hidden]` of one layer, without and with the last norm, and the pooled output.
#[derive(Debug, Clone)]
pub struct ClipOutput {
    pub states: Tensor,
    pub normed: Tensor,
    /// The last layer's normed state of the end token, projected where the encoder has a projection.
    pub pooled: Tensor,
}

/// The tokens of one pass, as many as the encoder has positions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClipWindow {
    pub tokens: Vec<u32>,
    /// Vectors that replace tokens, by position.
    pub vectors: Vec<(usize, Arc<[f32]>)>,
}

impl ClipText {
    pub fn load(spec: ClipSpec, source: ComponentSource) -> Result<Self, Flaw> {
        // Files of the newest libraries leave out the name of the model around it.
        let is_bare = source
            .tensors
            .header("embeddings.token_embedding.weight")
            .is_some();
        let rename = move |name: &str| match is_bare {
            true => name.trim_start_matches("text_model.").to_owned(),
            false => name.to_owned(),
        };
        // Adapters leave the name of the model out as well.
        let alias = |name: &str| name.trim_start_matches("text_model.").to_owned();
        let mut reader = ComponentReader::new(source, rename).with_alias(alias);
        let hidden = spec.hidden_size;
        let shape = ClipLayerShape {
            hidden,
            feed: spec.intermediate_size,
            heads: spec.heads,
            activation: spec.activation,
            norm_eps: spec.norm_eps,
        };
        let tokens = reader.table(
            "text_model.embeddings.token_embedding.weight",
            (spec.vocab_size, hidden),
        )?;
        let positions = reader.table(
            "text_model.embeddings.position_embedding.weight",
            (spec.positions, hidden),
        )?;
        let mut layers = Vec::with_capacity(spec.layers);
        for index in 0..spec.layers {
            let stem = format!("text_model.encoder.layers.{index}");
            layers.push(ClipLayer::read(&mut reader, &stem, shape)?);
        }
        let norm = reader.norm("text_model.final_layer_norm", hidden, spec.norm_eps)?;
        let projection = match spec.projection {
            Some(size) => Some(reader.projection("text_projection", (size, hidden), false)?),
            None => None,
        };
        reader.check_nothing_was_ignored(|_| true)?;
        Ok(Self {
            spec,
            tokens,
            positions,
            layers,
            norm,
            projection,
            table: reader.into_layers(),
        })
    }

    /// The layers that adapters can change.
    pub fn layers(&self) -> &LayerTable {
        &self.table
    }

    pub fn spec(&self) -> &ClipSpec {
        &self.spec
    }

    /// Encodes windows of as many tokens as the encoder has positions. `skipped` layers at the end do not count for the
    /// hidden states; the pooled output is always the last layer's.
    pub async fn forward(
        &self,
        windows: &[ClipWindow],
        skipped: usize,
        pass: Pass<'_>,
    ) -> candle_core::Result<ClipOutput> {
        let spec = &self.spec;
        if skipped >= spec.layers {
            bail!("{skipped} of {} layers cannot be skipped", spec.layers);
        }
        let mut state = self.embed(windows)?;
        let mut wanted = None;
        for (index, layer) in self.layers.iter().enumerate() {
            if index + skipped == self.layers.len() {
                wanted = Some(state.clone());
            }
            state = layer.forward(&state, Mask::Causal, pass)?;
            block_end().await;
        }
        let last = self.norm.of_rows(&state)?;
        let states = wanted.unwrap_or(state);
        Ok(ClipOutput {
            normed: self.norm.of_rows(&states)?,
            pooled: self.pool(&last, windows, pass)?,
            states,
        })
    }

    fn embed(&self, windows: &[ClipWindow]) -> candle_core::Result<Tensor> {
        let spec = &self.spec;
        let mut lengths = windows.iter().map(|window| window.tokens.len());
        if let Some(length) = lengths.find(|&length| length != spec.positions) {
            bail!(
                "a window has {length} tokens, but the encoder takes {}",
                spec.positions
            );
        }
        let ids: Vec<u32> = windows.iter().flat_map(|it| it.tokens.clone()).collect();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= spec.vocab_size) {
            bail!(
                "token {id} is outside the vocabulary of {}",
                spec.vocab_size
            );
        }
        let ids = Tensor::new(ids, self.tokens.device())?;
        let shape = (windows.len(), spec.positions, spec.hidden_size);
        let embedded = self.with_vectors(self.tokens.index_select(&ids, 0)?, windows)?;
        embedded.reshape(shape)?.broadcast_add(&self.positions)
    }

    /// Replaces the rows of textual inversions.
    fn with_vectors(&self, rows: Tensor, windows: &[ClipWindow]) -> candle_core::Result<Tensor> {
        let spec = &self.spec;
        if windows.iter().all(|window| window.vectors.is_empty()) {
            return Ok(rows);
        }
        let mut numbers = rows
            .to_device(&Device::Cpu)?
            .flatten_all()?
            .to_vec1::<f32>()?;
        for (index, window) in windows.iter().enumerate() {
            for (place, vector) in &window.vectors {
                let at = (index * spec.positions + place) * spec.hidden_size;
                match numbers.get_mut(at..at + spec.hidden_size) {
                    Some(row) if row.len() == vector.len() => row.copy_from_slice(vector),
                    _ => bail!("a vector of {} numbers has no place", vector.len()),
                }
            }
        }
        Tensor::from_vec(numbers, rows.shape(), rows.device())
    }

    fn pool(
        &self,
        normed: &Tensor,
        windows: &[ClipWindow],
        pass: Pass<'_>,
    ) -> candle_core::Result<Tensor> {
        let rows = windows.iter().enumerate().map(|(index, window)| {
            let mut tokens = window.tokens.iter();
            let end = tokens.position(|&id| id == self.spec.end_token);
            let end = end.unwrap_or(window.tokens.len() - 1);
            normed.narrow(0, index, 1)?.narrow(1, end, 1)?.squeeze(1)
        });
        let pooled = Tensor::cat(&rows.collect::<candle_core::Result<Vec<_>>>()?, 0)?;
        match &self.projection {
            Some(projection) => projection.forward(&pooled, pass),
            None => Ok(pooled),
        }
    }
}
