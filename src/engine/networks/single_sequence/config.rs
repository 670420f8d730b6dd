//! `config.json` to a [`SingleSequenceSpec`]: settings that a network ignores or computes otherwise are refused by name, and
//! sizes are checked before the network, which would panic on some of them, sees any.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    LayerSizes, MAMBA_CONVOLUTION, MAMBA_STATE, SingleSequenceFamily as Family, SingleSequenceSpec,
};
use crate::networks::weights::{Checkpoint, CheckpointError, Description, Flaw, layered};

/// The longest sequence: the networks make tables of sines for all positions.
const MOST_CONTEXT: usize = 1 << 20;

/// Mamba has no longest sequence; all published models were trained with this many tokens.
const MAMBA_CONTEXT: usize = 2048;

#[derive(Debug, Deserialize)]
struct SingleSequenceJson {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    hidden_act: Option<String>,
    /// Gemma's later name of the same.
    hidden_activation: Option<String>,
    #[serde(alias = "layer_norm_eps", alias = "norm_epsilon")]
    #[serde(alias = "layer_norm_epsilon")]
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    rope_scaling: Option<Value>,
    /// Contains the three above in newer files.
    rope_parameters: Option<RopeParametersJson>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    use_bias: Option<bool>,
    use_qkv_bias: Option<bool>,
    use_conv_bias: Option<bool>,
    qk_layernorm: Option<bool>,
    use_parallel_residual: Option<bool>,
    use_bidirectional_attention: Option<bool>,
    clip_qkv: Option<f64>,
    sliding_window: Option<usize>,
    tie_word_embeddings: Option<bool>,
    state_size: Option<usize>,
    conv_kernel: Option<usize>,
    expand: Option<f64>,
    time_step_rank: Option<Value>,
    quantization_config: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct RopeParametersJson {
    #[serde(default, alias = "type")]
    rope_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
}

impl SingleSequenceSpec {
    /// The spec of a model of one of these families; `None` for any other.
    pub fn of(checkpoint: &Checkpoint) -> Result<Option<Self>, CheckpointError> {
        let Description::Config(config) = checkpoint.description() else {
            return Ok(None);
        };
        let Some(family) = Family::of_config(config) else {
            return Ok(None);
        };
        let spec = Self::from_config(family, config);
        spec.map(Some)
            .map_err(|flaw| flaw.in_file(checkpoint.path()))
    }

    pub(super) fn from_config(family: Family, config: &Value) -> Result<Self, Flaw> {
        let json = SingleSequenceJson::deserialize(config).map_err(|error| {
            Flaw::broken("config.json", error, format!("a {family} configuration"))
        })?;
        json.check(family)?;
        match family {
            Family::Mamba => json.mamba(),
            _ => json.attention(family),
        }
    }

    /// The configuration of the network, with tables for this many positions.
    pub(super) fn network_config(&self, context: usize) -> Value {
        let mut config = self.settings.clone();
        config["max_position_embeddings"] = context.into();
        config
    }
}

impl SingleSequenceJson {
    fn check(&self, family: Family) -> Result<(), Flaw> {
        layered("num_hidden_layers", self.num_hidden_layers)?;
        sized("vocab_size", self.vocab_size, 1 << 24)?;
        sized("hidden_size", self.hidden_size, 1 << 20)?;
        if let Some(quantization) = &self.quantization_config {
            let method = quantization["quant_method"].as_str();
            return Err(Flaw::unsupported(
                "quantization_config",
                method.unwrap_or("an unnamed method"),
                "weights in f32, f16 and bf16",
            ));
        }
        let is_on = |setting: Option<bool>| setting == Some(true);
        let has_bias = is_on(self.attention_bias) && family != Family::Glm4;
        for (name, is_refused) in [
            ("attention_bias", has_bias),
            ("mlp_bias", is_on(self.mlp_bias)),
            ("qk_layernorm", is_on(self.qk_layernorm)),
            ("use_parallel_residual", is_on(self.use_parallel_residual)),
            (
                "use_bidirectional_attention",
                is_on(self.use_bidirectional_attention),
            ),
        ] {
            if is_refused {
                return Err(Flaw::unsupported(name, true, "false"));
            }
        }
        if self.sliding_window.is_some() && family != Family::Starcoder2 {
            let window = self.sliding_window.unwrap_or_default();
            return Err(Flaw::unsupported("sliding_window", window, "null"));
        }
        let known = match family {
            Family::Phi => "gelu_new",
            Family::Gemma | Family::Starcoder2 => "gelu_pytorch_tanh",
            _ => "silu",
        };
        let activation = self.hidden_activation.as_ref().or(self.hidden_act.as_ref());
        let activation = activation.map_or(known, String::as_str);
        // The files of Gemma 1 say `gelu` and mean its approximation.
        let is_legacy = family == Family::Gemma && activation == "gelu";
        if activation != known && !is_legacy {
            return Err(Flaw::unsupported("hidden_act", activation, known));
        }
        let eps = self.norm_eps();
        let is_own = matches!(family, Family::Gemma | Family::Glm4 | Family::Helium);
        if is_own && self.rms_norm_eps.is_none() {
            return Err(Flaw::broken("rms_norm_eps", "nothing", "a number"));
        }
        let is_constant = matches!(family, Family::Mamba | Family::Olmo);
        if is_constant && eps != NORM_EPS {
            let known = NORM_EPS.to_string();
            return Err(Flaw::unsupported("the norm's epsilon", eps, known));
        }
        match (0.0..1.0).contains(&eps) {
            true => Ok(()),
            false => Err(Flaw::broken("the norm's epsilon", eps, "0 to 1")),
        }
    }

    fn attention(&self, family: Family) -> Result<SingleSequenceSpec, Flaw> {
        let feed = sized(
            "intermediate_size",
            there("intermediate_size", self.intermediate_size)?,
            1 << 22,
        )?;
        let heads = there("num_attention_heads", self.num_attention_heads)?;
        let heads = sized("num_attention_heads", heads, 1 << 12)?;
        let kv_heads = self.key_heads(family, heads)?;
        let head_dim = self.head_size(family, heads)?;
        let context = there("max_position_embeddings", self.max_position_embeddings)?;
        let context = sized("max_position_embeddings", context, MOST_CONTEXT)?;
        let (theta, rope_dims) = self.rope(family, head_dim)?;
        let ties_embeddings = self.ties_embeddings(family)?;
        let clip = self.clip_qkv.filter(|_| family == Family::Olmo);
        if clip.is_some_and(|clip| !(clip.is_finite() && clip > 0.0)) {
            let found = clip.unwrap_or_default();
            return Err(Flaw::broken("clip_qkv", found, "a finite number above 0"));
        }
        let window = self.sliding_window.unwrap_or(context);
        let window = sized("sliding_window", window, usize::MAX)?;
        let eps = self.norm_eps();
        let biased = self.attention_bias.unwrap_or(family == Family::Glm4);
        let activation = match family {
            Family::Phi => "gelu_new",
            Family::Starcoder2 => "gelu_pytorch_tanh",
            _ => "silu",
        };
        let mut settings = json!({
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": feed,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "hidden_act": activation,
            "rms_norm_eps": eps,
            "layer_norm_eps": eps,
            "norm_epsilon": eps,
            "rope_theta": theta,
            // The network rounds the product with the size of a head down.
            "partial_rotary_factor": (rope_dims as f64 + 0.5) / head_dim as f64,
            "attention_bias": biased,
            "mlp_bias": false,
            "qk_layernorm": false,
            "tie_word_embeddings": ties_embeddings,
            "clip_qkv": clip,
            "use_bias": self.use_bias.unwrap_or(true),
            "use_qkv_bias": self.use_qkv_bias.unwrap_or(false),
            "use_cache": true,
            // Required by the type and not used.
            "bos_token_id": 0,
            "eos_token_id": 0,
        });
        if family == Family::Gemma {
            settings["hidden_act"] = Value::Null;
            settings["hidden_activation"] = "gelu_pytorch_tanh".into();
        }
        Ok(SingleSequenceSpec {
            family,
            vocab_size: self.vocab_size,
            layers: self.num_hidden_layers,
            // The network's window is one token longer than the reference's, and forgotten after the first pass.
            context: context.min(window),
            sizes: LayerSizes::Attention {
                hidden: self.hidden_size,
                feed,
                heads,
                kv_heads,
                head_dim,
                rope_dims,
            },
            ties_embeddings,
            settings,
        })
    }

    fn mamba(&self) -> Result<SingleSequenceSpec, Flaw> {
        let hidden = self.hidden_size;
        let inner = self.intermediate_size.unwrap_or(2 * hidden);
        let rank = match &self.time_step_rank {
            None => hidden.div_ceil(16) as u64,
            Some(rank) if rank == "auto" => hidden.div_ceil(16) as u64,
            Some(rank) => rank.as_u64().unwrap_or(0),
        };
        for (name, found, wanted) in [
            (
                "state_size",
                self.state_size.unwrap_or(MAMBA_STATE),
                MAMBA_STATE,
            ),
            (
                "conv_kernel",
                self.conv_kernel.unwrap_or(MAMBA_CONVOLUTION),
                MAMBA_CONVOLUTION,
            ),
            ("intermediate_size", inner, 2 * hidden),
            ("time_step_rank", rank as usize, hidden.div_ceil(16)),
        ] {
            if found != wanted {
                return Err(Flaw::unsupported(name, found, wanted.to_string()));
            }
        }
        if self.expand.is_some_and(|expand| expand != 2.0) {
            let found = self.expand.unwrap_or_default();
            return Err(Flaw::unsupported("expand", found, "2"));
        }
        if self.use_bias == Some(true) {
            return Err(Flaw::unsupported("use_bias", true, "false"));
        }
        if self.use_conv_bias == Some(false) {
            return Err(Flaw::unsupported("use_conv_bias", false, "true"));
        }
        Ok(SingleSequenceSpec {
            family: Family::Mamba,
            vocab_size: self.vocab_size,
            layers: self.num_hidden_layers,
            context: MAMBA_CONTEXT,
            sizes: LayerSizes::Mamba { inner },
            ties_embeddings: self.ties_embeddings(Family::Mamba)?,
            settings: json!({
                "d_model": hidden,
                "n_layer": self.num_hidden_layers,
                "vocab_size": self.vocab_size,
                "pad_vocab_size_multiple": 1,
            }),
        })
    }

    fn norm_eps(&self) -> f64 {
        self.rms_norm_eps.unwrap_or(NORM_EPS)
    }

    fn key_heads(&self, family: Family, heads: usize) -> Result<usize, Flaw> {
        let kv_heads = match (self.num_key_value_heads, family) {
            (Some(kv_heads), _) => kv_heads,
            (None, Family::Olmo | Family::Phi | Family::StableLm) => heads,
            (None, _) => there("num_key_value_heads", None)?,
        };
        let is_sound = kv_heads > 0 && heads.is_multiple_of(kv_heads);
        match is_sound {
            true => Ok(kv_heads),
            false => Err(Flaw::broken(
                "num_key_value_heads",
                kv_heads,
                format!("a divisor of num_attention_heads, which is {heads}"),
            )),
        }
    }

    fn head_size(&self, family: Family, heads: usize) -> Result<usize, Flaw> {
        let share = self.hidden_size / heads;
        let is_whole = self.hidden_size.is_multiple_of(heads);
        let own = match family {
            Family::Gemma | Family::Glm4 => {
                return sized("head_dim", there("head_dim", self.head_dim)?, 1 << 12);
            }
            // The output matrix has the width of hidden states on both sides.
            _ => self.head_dim.unwrap_or(share),
        };
        match is_whole && own == share {
            true => sized("head_dim", share, 1 << 12),
            false => Err(Flaw::broken(
                "hidden_size",
                format!("{} with {heads} heads of {own}", self.hidden_size),
                "the number of heads times the size of a head",
            )),
        }
    }

    /// The base of the rope, and how many numbers of a head it turns.
    fn rope(&self, family: Family, head_dim: usize) -> Result<(f64, usize), Flaw> {
        let newer = self.rope_parameters.as_ref();
        let scaling = self.rope_scaling.as_ref().filter(|it| !it.is_null());
        let scaling = scaling.map(|it| it["rope_type"].as_str().or(it["type"].as_str()));
        let kinds = [newer.and_then(|it| it.rope_type.as_deref())];
        let scaling = scaling.map(|kind| kind.unwrap_or("an unnamed one"));
        let mut kinds = kinds.into_iter().flatten().chain(scaling);
        if let Some(kind) = kinds.find(|kind| *kind != "default") {
            return Err(Flaw::unsupported("rope_scaling", kind, "default"));
        }
        let theta = newer.and_then(|it| it.rope_theta).or(self.rope_theta);
        let theta = match (theta, family) {
            (Some(theta), _) => theta,
            (None, Family::Helium) => 100_000.0,
            (None, _) => 10_000.0,
        };
        // Beyond, the smallest frequency is no number that f32 has.
        if !(1.0..=1e30).contains(&theta) {
            return Err(Flaw::broken("rope_theta", theta, "1 to 1e30"));
        }
        let share = newer.and_then(|it| it.partial_rotary_factor);
        let share = share.or(self.partial_rotary_factor);
        let dims = match (share, family) {
            (share, Family::Glm4 | Family::Phi) => {
                (head_dim as f64 * share.unwrap_or(0.5)) as usize
            }
            (share, Family::StableLm) => (head_dim as f64 * share.unwrap_or(0.25)) as usize,
            (None, _) => head_dim,
            (Some(1.0), _) => head_dim,
            (Some(share), _) => {
                return Err(Flaw::unsupported("partial_rotary_factor", share, "1"));
            }
        };
        let is_partial = matches!(family, Family::Glm4 | Family::Phi | Family::StableLm);
        let most = if is_partial { head_dim - 1 } else { head_dim };
        match (2..=most).contains(&dims) && dims.is_multiple_of(2) {
            true => Ok((theta, dims)),
            false => Err(Flaw::broken(
                "the rope dimensions",
                dims,
                format!("an even number from 2 to {most}"),
            )),
        }
    }

    fn ties_embeddings(&self, family: Family) -> Result<bool, Flaw> {
        let always = matches!(family, Family::Gemma | Family::Mamba | Family::Starcoder2);
        let never = matches!(family, Family::Phi | Family::StableLm);
        let ties = self.tie_word_embeddings.unwrap_or(always);
        match ties {
            true if never => Err(Flaw::unsupported("tie_word_embeddings", true, "false")),
            false if always => Err(Flaw::unsupported("tie_word_embeddings", false, "true")),
            ties => Ok(ties),
        }
    }
}

/// The epsilon of norms where a file names none; a constant of the networks of Mamba and OLMo.
const NORM_EPS: f64 = 1e-5;

fn there(name: &str, value: Option<usize>) -> Result<usize, Flaw> {
    value.ok_or_else(|| Flaw::broken(name, "nothing", "a number"))
}

fn sized(name: &str, value: usize, most: usize) -> Result<usize, Flaw> {
    match (1..=most).contains(&value) {
        true => Ok(value),
        false => Err(Flaw::broken(name, value, format!("1 to {most}"))),
    }
}
