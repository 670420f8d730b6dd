//! The sizes of a Whisper.

use serde::Deserialize;

use crate::networks::weights::{Flaw, layered};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhisperSpec {
    pub vocab_size: usize,
    pub width: usize,
    /// Mel bands.
    pub bands: usize,
    /// States of one window: half its frames.
    pub positions: usize,
    /// Tokens that the decoder reads at most.
    pub context: usize,
    pub encoder: StackSpec,
    pub decoder: StackSpec,
}

/// The layers of one half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackSpec {
    pub layers: usize,
    pub heads: usize,
    pub feed: usize,
}

#[derive(Deserialize)]
struct WhisperJson {
    #[serde(default)]
    architectures: Vec<String>,
    vocab_size: usize,
    d_model: usize,
    num_mel_bins: usize,
    max_source_positions: usize,
    max_target_positions: usize,
    encoder_layers: usize,
    encoder_attention_heads: usize,
    encoder_ffn_dim: usize,
    decoder_layers: usize,
    decoder_attention_heads: usize,
    decoder_ffn_dim: usize,
    activation_function: String,
    #[serde(default)]
    scale_embedding: bool,
}

const ARCHITECTURE: &str = "WhisperForConditionalGeneration";

impl WhisperSpec {
    /// Frames of one window: the encoder halves them.
    pub fn window_frames(&self) -> usize {
        2 * self.positions
    }

    /// Whether a `config.json` is that of a Whisper.
    pub fn is_in(value: &serde_json::Value) -> bool {
        value["architectures"][0] == ARCHITECTURE
    }

    pub fn read(value: &serde_json::Value) -> Result<Self, Flaw> {
        let json: WhisperJson = serde_json::from_value(value.clone())
            .map_err(|error| Flaw::broken("config.json", error, "a Whisper"))?;
        if json.architectures.iter().all(|name| name != ARCHITECTURE) {
            let found = json.architectures.join(", ");
            return Err(Flaw::unsupported("architectures", found, ARCHITECTURE));
        }
        if json.activation_function != "gelu" {
            return Err(Flaw::unsupported(
                "activation_function",
                json.activation_function,
                "gelu",
            ));
        }
        if json.scale_embedding {
            return Err(Flaw::unsupported("scale_embedding", "true", "false"));
        }
        let stack = |name: &str, layers, heads: usize, feed| {
            if heads == 0 || !json.d_model.is_multiple_of(heads) || layers == 0 {
                let found = format!(
                    "{layers} layers of {heads} heads for a width of {}",
                    json.d_model
                );
                return Err(Flaw::broken(name, found, "a divisor of the width"));
            }
            Ok(StackSpec {
                layers: layered(name, layers)?,
                heads,
                feed,
            })
        };
        Ok(Self {
            vocab_size: json.vocab_size,
            width: json.d_model,
            bands: json.num_mel_bins,
            positions: json.max_source_positions,
            context: json.max_target_positions,
            encoder: stack(
                "the encoder",
                json.encoder_layers,
                json.encoder_attention_heads,
                json.encoder_ffn_dim,
            )?,
            decoder: stack(
                "the decoder",
                json.decoder_layers,
                json.decoder_attention_heads,
                json.decoder_ffn_dim,
            )?,
        })
    }
}
