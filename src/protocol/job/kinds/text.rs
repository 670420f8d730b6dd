//! The request of a text job. Settings that the client left out are `None`: the worker applies the model's own
//! defaults, and only the renderer for public peers fills in the public ones.
//!
//! Derives serde, because the link to our own workers carries it unchanged.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::request::work_of_text;
use super::{JobRequest, KindFacts, OutputForm};
use crate::job::{LegacySampling, Limits};

pub(super) const FACTS: KindFacts = KindFacts {
    name: "text",
    word: "text",
    ability: "text generation",
    job_type: "text",
    task: Some("generate"),
    is_relayed: true,
    modality: Some("text"),
    route: Some("/v1/chat/completions"),
    limits: &[],
    rate: None,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextRequest {
    pub input: TextInput,
    #[serde(default)]
    pub sampling: Sampling,
    /// Token limit, with tokens of interrupted attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    #[serde(default, skip_serializing_if = "StopRules::is_empty")]
    pub stop_rules: StopRules,
    /// Report each token's log probability, and this many best alternatives.
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
    /// Messages for the model's chat template.
    Chat(Chat),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chat {
    /// Objects with `role`, `content`, and further keys of the template.
    pub messages: Vec<Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// Further variables of the template: `enable_thinking`, `reasoning_effort` and the like.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub variables: Map<String, Value>,
}

/// The speaker of a message, by whatever role name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    System,
    User,
    Model,
}

impl JobRequest for TextRequest {
    fn output(&self) -> OutputForm {
        OutputForm::Text
    }

    fn work(&self, limits: &Limits) -> u64 {
        work_of_text(limits)
    }

    fn size(&self) -> u64 {
        self.max_tokens.map_or(UNLIMITED_OUTPUT, u64::from)
    }

    fn seed(&self) -> Option<u64> {
        self.sampling.seed
    }

    fn set_seed(&mut self, seed: u64) {
        self.sampling.seed = Some(seed);
    }
}

/// The size of an output that is not limited: twice a typical one.
const UNLIMITED_OUTPUT: u64 = 512;

impl TextRequest {
    /// Settings that a polling text worker cannot get, by name. A request of the AI Horde API has none.
    pub fn beyond_plain_text(&self) -> Vec<&'static str> {
        let sampling = &self.sampling;
        let acts = |penalty: Option<f32>| penalty.is_some_and(|penalty| penalty != 0.0);
        let (tools, files) = match &self.input {
            TextInput::Chat(chat) => (!chat.tools.is_empty(), chat.plain_lines().is_none()),
            TextInput::Prompt(_) | TextInput::Tokens(_) => (false, false),
        };
        let free = matches!(self.format, None | Some(OutputFormat::Text));
        let settings = [
            ("tokens", matches!(self.input, TextInput::Tokens(_))),
            ("tools", tools),
            ("messages", files && !tools),
            ("format", !free),
            ("logprobs", self.logprobs.is_some()),
            ("seed", sampling.seed.is_some()),
            ("min_tokens", self.stop_rules.min_tokens.is_some()),
            ("ignore_eos", self.stop_rules.ignore_eos),
            ("stop_token_ids", !self.stop_rules.stop_token_ids.is_empty()),
            ("presence_penalty", acts(sampling.presence_penalty)),
            ("frequency_penalty", acts(sampling.frequency_penalty)),
            ("logit_bias", !sampling.logit_bias.is_empty()),
        ];
        let acting = settings.into_iter().filter(|(_, acts)| *acts);
        acting.map(|(name, _)| name).collect()
    }
}

impl Chat {
    /// The messages of a chat of text alone.
    pub fn plain_lines(&self) -> Option<Vec<(Voice, String)>> {
        let is_plain = self.tools.is_empty() && self.variables.iter().all(turns_reasoning_off);
        is_plain.then_some(())?;
        self.messages.iter().map(line).collect()
    }
}

/// Whether a template variable asks for no reasoning. A worker without a template never reasons.
fn turns_reasoning_off((name, value): (&String, &Value)) -> bool {
    match name.as_str() {
        "enable_thinking" => *value == false,
        "reasoning_effort" => value == "none",
        _ => false,
    }
}

fn line(message: &Value) -> Option<(Voice, String)> {
    let voice = match message["role"].as_str()? {
        "system" | "developer" => Voice::System,
        "user" => Voice::User,
        "assistant" if message["tool_calls"].is_null() => Voice::Model,
        _ => return None,
    };
    Some((voice, plain_text(&message["content"])?))
}

/// Text as it is, or as parts of nothing else.
fn plain_text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => parts
            .iter()
            .map(|part| match part["type"].as_str() {
                Some("text") => part["text"].as_str(),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

/// Which tokens end the output, and from when on anything may.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopRules {
    /// Neither a token nor a stop string ends the output before this many tokens.
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
    /// Settings that only the AI Horde API has.
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
