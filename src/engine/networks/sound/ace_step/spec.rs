//! The sizes of ACE-Step's transformer and of the encoders of its conditions.

use serde::Deserialize;
use serde_json::Value;

use crate::networks::weights::{Flaw, sized};

/// The sizes that all layers of one network share.
#[derive(Debug, Clone, PartialEq)]
pub struct SongLayerSpec {
    pub width: usize,
    pub feed: usize,
    pub heads: usize,
    /// Heads of keys, which several heads of queries share.
    pub kv_heads: usize,
    pub head_size: usize,
    pub eps: f64,
    pub theta: f64,
    /// Places on each side that layers with a window see.
    pub window: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AceStepSpec {
    pub layer: SongLayerSpec,
    /// Per layer, whether it has a sliding window.
    pub layers: Vec<bool>,
    /// Numbers of a frame of latents.
    pub latent: usize,
    /// Frames of a place.
    pub patch: usize,
    /// The width of the conditions.
    pub conditions: usize,
    /// The weights hold the guidance, and few steps suffice.
    pub is_turbo: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SongConditionSpec {
    pub layer: SongLayerSpec,
    /// Like [`AceStepSpec::layers`].
    pub lyrics: Vec<bool>,
    pub timbre: Vec<bool>,
    /// The width of the text encoder's states.
    pub text: usize,
    pub latent: usize,
}

/// The fields about layers that both files of diffusers have.
#[derive(Deserialize)]
struct LayerJson {
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    rope_theta: f64,
    rms_norm_eps: f64,
    sliding_window: usize,
    attention_bias: bool,
    layer_types: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct AceStepJson {
    #[serde(flatten)]
    layer: LayerJson,
    num_hidden_layers: usize,
    in_channels: usize,
    audio_acoustic_hidden_dim: usize,
    patch_size: usize,
    encoder_hidden_size: Option<usize>,
    #[serde(default)]
    is_turbo: bool,
    model_version: Option<String>,
}

#[derive(Deserialize)]
struct SongConditionJson {
    #[serde(flatten)]
    layer: LayerJson,
    num_lyric_encoder_hidden_layers: usize,
    num_timbre_encoder_hidden_layers: usize,
    text_hidden_dim: usize,
    timbre_hidden_dim: usize,
}

const MOST_PATCH: usize = 16;
const MOST_LAYERS: usize = 1024;
const WINDOWED: &str = "sliding_attention";
const FULL: &str = "full_attention";

impl AceStepSpec {
    /// Reads the `config.json` of diffusers' AceStepTransformer1DModel.
    pub fn read(value: &Value) -> Result<Self, Flaw> {
        let json: AceStepJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "an ACE-Step transformer"))?;
        let latent = sized("audio_acoustic_hidden_dim", json.audio_acoustic_hidden_dim)?;
        if json.in_channels != 3 * latent {
            let wanted = format!("{}, for a source, a mask and noise", 3 * latent);
            return Err(Flaw::unsupported("in_channels", json.in_channels, wanted));
        }
        if !(1..=MOST_PATCH).contains(&json.patch_size) {
            let wanted = format!("1 to {MOST_PATCH}");
            return Err(Flaw::broken("patch_size", json.patch_size, wanted));
        }
        let layer = SongLayerSpec::read(&json.layer)?;
        let conditions = json.encoder_hidden_size.unwrap_or(layer.width);
        let types = json.layer.layer_types.as_deref();
        Ok(Self {
            layers: windows("num_hidden_layers", json.num_hidden_layers, types)?,
            latent,
            patch: json.patch_size,
            conditions: sized("encoder_hidden_size", conditions)?,
            is_turbo: json.is_turbo || json.model_version.as_deref() == Some("turbo"),
            layer,
        })
    }

    /// Number of positions for this many latent frames.
    pub fn places(&self, frames: usize) -> usize {
        frames.div_ceil(self.patch)
    }

    /// Numbers of keys and values that a song keeps of each state of its conditions.
    pub fn floats_per_condition(&self) -> u64 {
        let keys = self.layer.kv_heads * self.layer.head_size;
        (2 * keys * self.layers.len() + self.layer.width) as u64
    }
}

impl SongConditionSpec {
    /// Reads the `config.json` of diffusers' AceStepConditionEncoder.
    pub fn read(value: &Value) -> Result<Self, Flaw> {
        let json: SongConditionJson = serde_json::from_value(value.clone()).map_err(|error| {
            Flaw::broken("config.json", error, "an encoder of ACE-Step's conditions")
        })?;
        let types = json.layer.layer_types.as_deref();
        let lyrics = json.num_lyric_encoder_hidden_layers;
        let timbre = json.num_timbre_encoder_hidden_layers;
        Ok(Self {
            layer: SongLayerSpec::read(&json.layer)?,
            lyrics: windows("num_lyric_encoder_hidden_layers", lyrics, types)?,
            timbre: windows("num_timbre_encoder_hidden_layers", timbre, None)?,
            text: sized("text_hidden_dim", json.text_hidden_dim)?,
            latent: sized("timbre_hidden_dim", json.timbre_hidden_dim)?,
        })
    }
}

impl SongLayerSpec {
    /// Numbers that a pass holds at once for each place: the state and its norm, queries, the result of attention and
    /// copies that turned, keys and values, or the inner part of the feed-forward layer.
    pub fn floats_per_place(&self) -> u64 {
        let (width, heads) = (self.width as u64, (self.heads * self.head_size) as u64);
        let keys = (self.kv_heads * self.head_size) as u64;
        2 * width + (4 * heads + 3 * keys).max(3 * self.feed as u64 + width)
    }

    fn read(json: &LayerJson) -> Result<Self, Flaw> {
        if json.attention_bias {
            return Err(Flaw::unsupported("attention_bias", true, "false"));
        }
        let (heads, kv_heads) = (
            sized("num_attention_heads", json.num_attention_heads)?,
            sized("num_key_value_heads", json.num_key_value_heads)?,
        );
        if !heads.is_multiple_of(kv_heads) {
            let wanted = format!("a divisor of the {heads} heads");
            return Err(Flaw::broken("num_key_value_heads", kv_heads, wanted));
        }
        let head_size = sized("head_dim", json.head_dim)?;
        if !head_size.is_multiple_of(2) {
            return Err(Flaw::broken("head_dim", head_size, "an even number"));
        }
        for (name, found) in [
            ("rope_theta", json.rope_theta),
            ("rms_norm_eps", json.rms_norm_eps),
        ] {
            if !(found.is_finite() && found > 0.0) {
                return Err(Flaw::broken(name, found, "a positive number"));
            }
        }
        sized(
            "num_attention_heads times head_dim",
            heads.saturating_mul(head_size),
        )?;
        Ok(Self {
            width: sized("hidden_size", json.hidden_size)?,
            feed: sized("intermediate_size", json.intermediate_size)?,
            heads,
            kv_heads,
            head_size,
            eps: json.rms_norm_eps,
            theta: json.rope_theta,
            window: sized("sliding_window", json.sliding_window)?,
        })
    }
}

/// Which layers have a window: every second one from the first on, unless the file lists them.
fn windows(name: &str, layers: usize, types: Option<&[String]>) -> Result<Vec<bool>, Flaw> {
    if !(1..=MOST_LAYERS).contains(&layers) {
        return Err(Flaw::broken(name, layers, format!("1 to {MOST_LAYERS}")));
    }
    let Some(types) = types else {
        return Ok((0..layers).map(|at| at.is_multiple_of(2)).collect());
    };
    if types.len() != layers {
        let wanted = format!("{layers}, one for each layer");
        return Err(Flaw::broken("layer_types", types.len(), wanted));
    }
    let read = |name: &String| match name.as_str() {
        WINDOWED => Ok(true),
        FULL => Ok(false),
        other => {
            let known = format!("{WINDOWED} and {FULL}");
            Err(Flaw::unsupported("layer_types", other, known))
        }
    };
    types.iter().map(read).collect()
}
