//! Llama 4: experts with weighted inputs, chunked attention, and layers without rope but with a temperature.

use serde::Deserialize;

use super::{
    config::ConfigJson,
    experts::{ExpertsSpec, SharedExpertSpec},
    family::Family,
    llama,
    rope::Rope,
    spec::{DecoderSpec, QueryKeyNorm, QueryTemperature},
};
use crate::networks::{
    layers::{RouterScore, Routing},
    weights::Flaw,
};
use muster_kernels::RopeStyle;

/// Defaults of omitted fields.
const THETA: f64 = 500_000.0;
const MLP_SIZE: usize = 16_384;
const PERIOD: usize = 4;
/// Tokens of a chunk, and the distance at which the temperature rises.
pub const CHUNK: usize = 8192;
pub const TEMPERATURE: QueryTemperature = QueryTemperature {
    weight: 0.1,
    span: 8192,
    first: 1,
    is_of_unturned: true,
};

/// The fields of `config.json` that no other family has.
#[derive(Debug, Deserialize)]
pub struct Llama4Json {
    intermediate_size_mlp: Option<usize>,
    interleave_moe_layer_step: Option<usize>,
    moe_layers: Option<Vec<usize>>,
    #[serde(default, deserialize_with = "given")]
    attention_chunk_size: NullableField<usize>,
    /// A boolean, or 4 for true in the first files.
    attn_temperature_tuning: Option<serde_json::Value>,
    floor_scale: Option<usize>,
    attn_scale: Option<f64>,
}

/// A field that may be missing or null.
#[derive(Debug, Clone, Copy, Default)]
enum NullableField<T> {
    #[default]
    LeftOut,
    Null,
    Value(T),
}

fn given<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<NullableField<usize>, D::Error> {
    let value = Option::<usize>::deserialize(reader)?;
    Ok(value.map_or(NullableField::Null, NullableField::Value))
}

pub fn llama4_spec(config: &ConfigJson) -> Result<DecoderSpec, Flaw> {
    let json = &config.llama4;
    let layers = config.num_hidden_layers;
    let llama = llama::spec(config, Family::Llama4)?;
    let layers_without_rope = layers_without_rope(config)?;
    let is_tuned = match &json.attn_temperature_tuning {
        None => true,
        Some(value) => value
            .as_bool()
            .unwrap_or(value.as_u64().is_some_and(|number| number > 0)),
    };
    let temperature = QueryTemperature {
        weight: json.attn_scale.unwrap_or(TEMPERATURE.weight),
        span: json.floor_scale.unwrap_or(TEMPERATURE.span),
        ..TEMPERATURE
    };
    Ok(DecoderSpec {
        intermediate_size: json.intermediate_size_mlp.unwrap_or(MLP_SIZE),
        experts: json.experts(config, layers)?,
        rope: Rope {
            style: RopeStyle::Pairs,
            ..config.rope_with(llama.head_dim, THETA)?
        },
        query_key_norm: match config.use_qk_norm.unwrap_or(true) {
            true => Some(QueryKeyNorm::Unweighted),
            false => None,
        },
        query_temperature: Some(temperature)
            .filter(|_| is_tuned && !layers_without_rope.is_empty()),
        chunks: json.chunks(config, &layers_without_rope)?,
        layers_without_rope,
        ..llama
    })
}

fn layers_without_rope(config: &ConfigJson) -> Result<Vec<usize>, Flaw> {
    let layers = config.num_hidden_layers;
    let flags = config.no_rope_layers.as_deref().unwrap_or_default();
    // Each is 1 for a layer with rope. An empty list means the default.
    match flags.len() {
        0 => {
            let period = config.no_rope_layer_interval.unwrap_or(PERIOD);
            if period == 0 {
                return Err(Flaw::broken("no_rope_layer_interval", 0, "1 or more"));
            }
            let is_last = |layer: &usize| (layer + 1).is_multiple_of(period);
            Ok((0..layers).filter(is_last).collect())
        }
        count if count < layers => {
            let found = format!("{count} flags");
            let wanted = format!("one for each of {layers} layers");
            Err(Flaw::broken("no_rope_layers", found, wanted))
        }
        _ => Ok((0..layers).filter(|&layer| flags[layer] == 0).collect()),
    }
}

impl Llama4Json {
    fn experts(&self, config: &ConfigJson, layers: usize) -> Result<Option<ExpertsSpec>, Flaw> {
        let step = self.interleave_moe_layer_step.unwrap_or(1);
        let has_experts = |layer: &usize| match &self.moe_layers {
            Some(listed) => listed.contains(layer),
            None => step > 0 && (layer + 1).is_multiple_of(step),
        };
        let dense_layers: Vec<usize> = (0..layers).filter(|layer| !has_experts(layer)).collect();
        if dense_layers.len() == layers {
            return Ok(None);
        }
        let plain = config.experts(config.intermediate_size, false)?;
        Ok(Some(ExpertsSpec {
            routing: Routing {
                score: RouterScore::Sigmoid,
                ..plain.routing
            },
            shared: Some(SharedExpertSpec {
                intermediate_size: config.intermediate_size,
                is_gated: false,
            }),
            scales_inputs: true,
            dense_layers,
            ..plain
        }))
    }

    fn chunks(
        &self,
        config: &ConfigJson,
        layers_without_rope: &[usize],
    ) -> Result<Vec<Option<usize>>, Flaw> {
        let size = match self.attention_chunk_size {
            NullableField::LeftOut => Some(CHUNK),
            NullableField::Null => None,
            NullableField::Value(size) => Some(size),
        };
        let layers = config.num_hidden_layers;
        let Some(types) = &config.layer_types else {
            let is_cut = |layer| !layers_without_rope.contains(&layer);
            return Ok(size.map_or(Vec::new(), |size| {
                super::config::windows(size, layers, is_cut)
            }));
        };
        if types.len() != layers {
            let found = format!("{} types", types.len());
            let wanted = format!("one for each of {layers} layers");
            return Err(Flaw::broken("layer_types", found, wanted));
        }
        let known = ["full_attention", "chunked_attention"];
        if let Some(other) = types.iter().find(|it| !known.contains(&it.as_str())) {
            return Err(Flaw::unsupported("layer_types", other, known.join(" and ")));
        }
        let is_cut = |layer: usize| types[layer] == known[1];
        match size {
            Some(size) => Ok(super::config::windows(size, layers, is_cut)),
            None if (0..layers).any(is_cut) => Err(Flaw::broken(
                "attention_chunk_size",
                "nothing",
                "the tokens of a chunk",
            )),
            None => Ok(Vec::new()),
        }
    }
}
