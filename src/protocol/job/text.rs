//! What a text job asks for. Whatever the client left unset is `None`: the worker applies the model's own
//! defaults, and only the renderer for public peers fills in the public ones.
//!
//! Serde derives stand here because this crosses the wire to our own workers as it is.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::LegacySampling;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextRequest {
    pub input: TextInput,
    #[serde(default)]
    pub sampling: Sampling,
    /// At most this many tokens, those of an interrupted attempt counted in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    #[serde(default, skip_serializing_if = "StopRules::is_empty")]
    pub stop_rules: StopRules,
    /// Report each token's log probability, and that of so many best alternatives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<u32>,
    /// The same for each token of the prompt. With it `max_tokens` may be 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<OutputFormat>,
    /// Which of the request's choices this is; part of every random draw.
    #[serde(default)]
    pub choice: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextInput {
    /// Text as it is.
    Prompt(String),
    /// Token ids, used as they are.
    Tokens(Vec<u32>),
    /// What the model's chat template sees.
    Chat(Chat),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chat {
    /// Objects with `role`, `content`, and whatever else the template knows.
    pub messages: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// Further variables of the template: `enable_thinking`, `reasoning_effort` and the like.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
}

/// Which tokens end the output, and from when on anything may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopRules {
    /// Neither a token nor a stop string ends it before it has so many tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_tokens: Option<u32>,
    /// The model does not end its turn by itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignore_eos: bool,
    /// Further tokens that end it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop_token_ids: Vec<u32>,
}

impl StopRules {
    /// Whether they change nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How the next token is chosen. `None` leaves a setting to the model's defaults.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetition_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logit_bias: Vec<(u32, f32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Settings that only clients of the poll API have words for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub legacy: Option<Box<LegacySampling>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    Auto,
    None,
    Required,
    Named(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    Text,
    JsonObject,
    JsonSchema(Value),
    /// In the syntax of the crate `regex`; matches the whole text.
    Regex(String),
    /// The answer is one of these texts.
    Choice(Vec<String>),
    /// Lark with the extensions of llguidance.
    Lark(String),
}
