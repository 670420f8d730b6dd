//! Recurrent layers: their indices, their sizes, and the fields of `config.json`.

use serde::Deserialize;

use super::{config::ConfigJson, experts::wanted, spec::DecoderSpec};
use crate::networks::weights::Flaw;
use muster_kernels::{RecurrenceShape, StateShape};

/// The layers of a decoder that are recurrent; the others attend.
#[derive(Debug, Clone, PartialEq)]
pub struct RecurrentLayers {
    pub kind: RecurrenceSpec,
    /// Ascending.
    pub layers: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RecurrenceSpec {
    DeltaNet(DeltaNetSpec),
    Convolution(ConvolutionSpec),
    StateSpace(StateSpaceSpec),
}

/// A short convolution between two gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvolutionSpec {
    /// Tokens that it sees.
    pub kernel: usize,
    pub channels: usize,
    /// Whether the convolution and the products around it have biases.
    pub has_bias: bool,
}

/// Mamba-2, with its groups as key heads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StateSpaceSpec {
    /// Tokens that the convolution before the recurrence sees.
    pub kernel: usize,
    pub heads: RecurrenceShape,
    pub has_convolution_bias: bool,
    /// Whether the products have biases.
    pub has_bias: bool,
    pub step_limits: (f32, f32),
}

/// A gated delta net.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaNetSpec {
    /// Tokens that the convolution before the recurrence sees.
    pub kernel: usize,
    pub heads: RecurrenceShape,
}

/// The fields of `config.json` about recurrent layers.
#[derive(Debug, Deserialize)]
pub struct RecurrentJson {
    pub full_attention_interval: Option<usize>,
    pub attn_output_gate: Option<bool>,
    linear_conv_kernel_dim: Option<usize>,
    linear_num_key_heads: Option<usize>,
    linear_num_value_heads: Option<usize>,
    linear_key_head_dim: Option<usize>,
    linear_value_head_dim: Option<usize>,
    /// LFM2's.
    #[serde(rename = "conv_L_cache")]
    pub conv_cache: Option<usize>,
    pub conv_bias: Option<bool>,
    pub full_attn_idxs: Option<Vec<usize>>,
    pub block_auto_adjust_ff_dim: Option<bool>,
    pub block_ffn_dim_multiplier: Option<f64>,
    pub block_multiple_of: Option<usize>,
    pub num_dense_layers: Option<usize>,
    pub use_expert_bias: Option<bool>,
    /// Granite's.
    pub shared_intermediate_size: Option<usize>,
    pub position_embedding_type: Option<String>,
    mamba_n_heads: Option<usize>,
    mamba_n_groups: Option<usize>,
    mamba_d_state: Option<usize>,
    mamba_d_head: Option<serde_json::Value>,
    mamba_d_conv: Option<usize>,
    mamba_expand: Option<usize>,
    mamba_conv_bias: Option<bool>,
    mamba_proj_bias: Option<bool>,
    time_step_limit: Option<Vec<serde_json::Value>>,
}

/// The most numbers that a layer keeps of a sequence; published models have half a million.
const MOST_STATE: usize = 1 << 24;

impl RecurrenceSpec {
    pub fn state(&self) -> StateShape {
        match self {
            Self::DeltaNet(net) => StateShape {
                convolution: (net.kernel - 1) * net.convolved(),
                recurrence: net.heads.state_numbers(),
            },
            Self::Convolution(convolution) => StateShape {
                convolution: (convolution.kernel - 1) * convolution.channels,
                recurrence: 0,
            },
            Self::StateSpace(space) => StateShape {
                convolution: (space.kernel - 1) * space.convolved(),
                recurrence: space.heads.state_numbers(),
            },
        }
    }

    /// Parameters per token before and after the recurrence.
    pub fn parameters(&self, hidden: usize) -> (usize, usize) {
        match self {
            Self::DeltaNet(DeltaNetSpec { heads, .. }) => {
                let values = heads.value_size();
                let inputs = 2 * heads.key_size() + 2 * values + 2 * heads.value_heads;
                (hidden * inputs, hidden * values)
            }
            Self::Convolution(convolution) => {
                let channels = convolution.channels;
                (3 * hidden * channels, hidden * channels)
            }
            Self::StateSpace(space) => {
                let values = space.heads.value_size();
                let inputs = space.convolved() + values + space.heads.value_heads;
                (hidden * inputs, hidden * values)
            }
        }
    }

    /// Multiplications of a token with its state.
    pub fn state_operations(&self) -> usize {
        match self {
            Self::DeltaNet(net) => {
                4 * net.heads.value_size() * net.heads.key_dim + net.kernel * net.convolved()
            }
            Self::Convolution(convolution) => (convolution.kernel + 2) * convolution.channels,
            Self::StateSpace(space) => {
                let (heads, kernel) = (&space.heads, space.kernel);
                3 * heads.value_size() * heads.key_dim + kernel * space.convolved()
            }
        }
    }

    /// The widths that a row has on its way, all together.
    pub fn width(&self) -> usize {
        match self {
            // Reads and writes around the convolution twice, and values, gates and results.
            Self::DeltaNet(net) => 3 * net.convolved() + 4 * net.heads.value_size(),
            Self::Convolution(convolution) => 6 * convolution.channels,
            Self::StateSpace(space) => 2 * space.convolved() + 5 * space.heads.value_size(),
        }
    }

    pub fn check(&self) -> Result<(), Flaw> {
        match self {
            Self::DeltaNet(net) => net.check(),
            Self::Convolution(convolution) => {
                in_range("the kernel of the convolution", convolution.kernel, 64)?;
                check_state(self.state())
            }
            Self::StateSpace(space) => space.check(),
        }
    }
}

impl DeltaNetSpec {
    /// Channels of the convolution: queries, keys and values.
    pub fn convolved(&self) -> usize {
        2 * self.heads.key_size() + self.heads.value_size()
    }

    fn check(&self) -> Result<(), Flaw> {
        let heads = &self.heads;
        for (name, size, most) in [
            ("the kernel of the convolution", self.kernel, 64),
            ("the key heads of the delta net", heads.key_heads, 1 << 12),
            (
                "the value heads of the delta net",
                heads.value_heads,
                1 << 12,
            ),
            ("the size of a key of the delta net", heads.key_dim, 1 << 12),
            (
                "the size of a value of the delta net",
                heads.value_dim,
                1 << 12,
            ),
        ] {
            in_range(name, size, most)?;
        }
        if !heads.value_heads.is_multiple_of(heads.key_heads) {
            let found = format!(
                "{} value heads and {} key heads",
                heads.value_heads, heads.key_heads
            );
            let wanted = "a multiple of the key heads";
            return Err(Flaw::broken("the delta net", found, wanted));
        }
        check_state(RecurrenceSpec::DeltaNet(*self).state())
    }
}

impl StateSpaceSpec {
    /// Channels of the convolution: values, keys and queries.
    pub fn convolved(&self) -> usize {
        2 * self.heads.key_size() + self.heads.value_size()
    }

    fn check(&self) -> Result<(), Flaw> {
        let heads = &self.heads;
        for (name, size, most) in [
            ("the kernel of the convolution", self.kernel, 64),
            ("the groups of the state space", heads.key_heads, 1 << 12),
            ("the heads of the state space", heads.value_heads, 1 << 12),
            ("the states of the state space", heads.key_dim, 1 << 12),
            (
                "the size of a head of the state space",
                heads.value_dim,
                1 << 12,
            ),
        ] {
            in_range(name, size, most)?;
        }
        if !heads.value_heads.is_multiple_of(heads.key_heads) {
            let found = format!("{} heads and {} groups", heads.value_heads, heads.key_heads);
            return Err(Flaw::broken(
                "the state space",
                found,
                "a multiple of the groups",
            ));
        }
        let (least, most) = self.step_limits;
        if least.is_nan() || most.is_nan() || least > most {
            let found = format!("{least} to {most}");
            return Err(Flaw::broken(
                "time_step_limit",
                found,
                "two numbers that ascend",
            ));
        }
        check_state(RecurrenceSpec::StateSpace(*self).state())
    }
}

fn in_range(name: &str, size: usize, most: usize) -> Result<(), Flaw> {
    match (1..=most).contains(&size) {
        true => Ok(()),
        false => Err(Flaw::broken(name, size, format!("1 to {most}"))),
    }
}

fn check_state(state: StateShape) -> Result<(), Flaw> {
    let numbers = state.convolution.max(state.recurrence);
    match numbers <= MOST_STATE {
        true => Ok(()),
        false => {
            let wanted = format!("at most {MOST_STATE} numbers");
            Err(Flaw::broken("the state of a layer", numbers, wanted))
        }
    }
}

impl ConfigJson {
    /// The layers with the type `recurrent`; others have the type `attending`. `usual` is the default for files without
    /// a list.
    pub fn recurrent_layers(
        &self,
        [recurrent, attending]: [&str; 2],
        usual: impl Fn(usize) -> bool,
    ) -> Result<Vec<usize>, Flaw> {
        let layers = self.num_hidden_layers;
        let recurrent: Vec<usize> = match &self.layer_types {
            None => (0..layers).filter(|&layer| usual(layer)).collect(),
            Some(types) if types.len() != layers => {
                let found = format!("{} types", types.len());
                let wanted = format!("one for each of {layers} layers");
                return Err(Flaw::broken("layer_types", found, wanted));
            }
            Some(types) => {
                let types: Vec<&str> = types.iter().map(|name| usual_name(name)).collect();
                let known = [recurrent, attending];
                if let Some(other) = types.iter().find(|it| !known.contains(it)) {
                    return Err(Flaw::unsupported("layer_types", other, known.join(" and ")));
                }
                (0..layers)
                    .filter(|&layer| types[layer] == recurrent)
                    .collect()
            }
        };
        match recurrent.len() == layers {
            false => Ok(recurrent),
            true => Err(Flaw::unsupported(
                "layer_types",
                format!("{layers} recurrent layers"),
                "at least one layer that attends",
            )),
        }
    }

    /// The delta net that files of Qwen describe.
    pub fn delta_net(&self) -> Result<DeltaNetSpec, Flaw> {
        let json = &self.recurrent;
        Ok(DeltaNetSpec {
            kernel: wanted(json.linear_conv_kernel_dim, "linear_conv_kernel_dim")?,
            heads: RecurrenceShape {
                key_heads: wanted(json.linear_num_key_heads, "linear_num_key_heads")?,
                value_heads: wanted(json.linear_num_value_heads, "linear_num_value_heads")?,
                key_dim: wanted(json.linear_key_head_dim, "linear_key_head_dim")?,
                value_dim: wanted(json.linear_value_head_dim, "linear_value_head_dim")?,
                is_tiled: false,
            },
        })
    }
}

/// The newer name of a layer type.
fn usual_name(name: &str) -> &str {
    match name {
        "mamba" => "linear_attention",
        "attention" => "full_attention",
        other => other,
    }
}

impl ConfigJson {
    /// The short convolutions of LFM2.
    pub fn gated_convolution(&self) -> ConvolutionSpec {
        ConvolutionSpec {
            kernel: self.recurrent.conv_cache.unwrap_or(3),
            channels: self.hidden_size,
            has_bias: self.recurrent.conv_bias.unwrap_or(false),
        }
    }

    /// The state space that files of Granite 4 describe.
    pub fn state_space(&self) -> Result<StateSpaceSpec, Flaw> {
        let json = &self.recurrent;
        let heads = wanted(json.mamba_n_heads, "mamba_n_heads")?;
        let values = json
            .mamba_expand
            .unwrap_or(2)
            .saturating_mul(self.hidden_size);
        let share = values.checked_div(heads).unwrap_or(0);
        let size = match &json.mamba_d_head {
            Some(serde_json::Value::Number(size)) => size.as_u64().map_or(0, |size| size as usize),
            _ => share,
        };
        if size.checked_mul(heads) != Some(values) {
            let found = format!("{heads} heads of {size}");
            let wanted = format!("heads that make {values} numbers");
            return Err(Flaw::broken("mamba_n_heads", found, wanted));
        }
        Ok(StateSpaceSpec {
            kernel: json.mamba_d_conv.unwrap_or(4),
            heads: RecurrenceShape {
                key_heads: json.mamba_n_groups.unwrap_or(1),
                value_heads: heads,
                key_dim: wanted(json.mamba_d_state, "mamba_d_state")?,
                value_dim: size,
                is_tiled: false,
            },
            has_convolution_bias: json.mamba_conv_bias.unwrap_or(true),
            has_bias: json.mamba_proj_bias.unwrap_or(false),
            step_limits: json.step_limits()?,
        })
    }
}

impl RecurrentJson {
    /// Files have names for numbers that JSON lacks.
    fn step_limits(&self) -> Result<(f32, f32), Flaw> {
        let number = |value: &serde_json::Value| {
            let named = value.get("__float__").unwrap_or(value);
            match named.as_str() {
                Some("Infinity") => Some(f32::INFINITY),
                _ => named.as_f64().map(|number| number as f32),
            }
        };
        match self.time_step_limit.as_deref() {
            None => Ok((0.0, f32::INFINITY)),
            Some([least, most]) => match (number(least), number(most)) {
                (Some(least), Some(most)) => Ok((least, most)),
                _ => Err(Flaw::broken(
                    "time_step_limit",
                    format!("{least}, {most}"),
                    "two numbers",
                )),
            },
            Some(others) => {
                let found = format!("{} values", others.len());
                Err(Flaw::broken("time_step_limit", found, "two numbers"))
            }
        }
    }
}

impl RecurrentLayers {
    /// `None` if no layer is recurrent.
    pub fn new(kind: RecurrenceSpec, layers: Vec<usize>) -> Option<Self> {
        match layers.is_empty() {
            true => None,
            false => Some(Self { kind, layers }),
        }
    }
}

impl DecoderSpec {
    /// The recurrence of a layer, which replaces attention.
    pub fn recurrence(&self, layer: usize) -> Option<&RecurrenceSpec> {
        let recurrent = self.recurrent.as_ref();
        let recurrent = recurrent.filter(|recurrent| recurrent.layers.contains(&layer));
        recurrent.map(|recurrent| &recurrent.kind)
    }

    pub fn is_recurrent_layer(&self, layer: usize) -> bool {
        self.recurrence(layer).is_some()
    }

    pub fn is_recurrent(&self) -> bool {
        self.recurrent.is_some()
    }

    /// How many layers attend.
    pub fn attention_layers(&self) -> usize {
        let recurrent = self.recurrent.as_ref();
        self.layers - recurrent.map_or(0, |recurrent| recurrent.layers.len())
    }

    /// Bytes of a sequence's recurrent states, independent of its length.
    pub fn state_bytes(&self) -> u64 {
        self.recurrent.as_ref().map_or(0, |recurrent| {
            (recurrent.layers.len() * recurrent.kind.state().bytes()) as u64
        })
    }

    /// Parameters per token before and after a layer's token mixing.
    pub fn mixer_parameters(&self, layer: usize) -> (usize, usize) {
        match self.recurrence(layer) {
            Some(recurrence) => recurrence.parameters(self.hidden_size),
            None => self.attention_parameters(layer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden::load;
    use muster_kernels::{KvDtype, Span};

    #[test]
    fn a_sequence_keeps_the_state_that_was_counted() {
        for name in ["qwen3-next", "lfm2", "granite4"] {
            let decoder = load(&format!("golden/{name}"), None);
            let spec = decoder.spec();
            let mut pages = decoder.new_pages(4, KvDtype::F32).unwrap();
            let empty = pages.bytes();
            assert_eq!(empty, 4 * 32 * spec.kv_bytes_per_token(KvDtype::F32));
            let batch = super::super::Batch {
                tokens: vec![1, 2, 3, 4],
                spans: (0..4)
                    .map(|page| Span {
                        new_tokens: 1,
                        past_tokens: 0,
                        pages: vec![page],
                    })
                    .collect(),
                states: vec![2, 0, 3, 1],
                ..Default::default()
            };
            decoder.forward(&batch, &mut pages).unwrap();
            assert_eq!(pages.bytes() - empty, 4 * spec.state_bytes(), "{name}");
            let error = decoder.forward(
                &super::super::Batch {
                    states: vec![0],
                    ..batch
                },
                &mut pages,
            );
            let error = error.unwrap_err().to_string();
            assert!(error.contains("4 sequences has 1 states"), "{error}");
        }
    }
}
