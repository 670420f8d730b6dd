//! Which marks a model's chat template makes it write.

use serde::{Deserialize, Serialize};

use super::{gemma, parameters, pythonic, separated};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Markup {
    /// The model thinks before it answers, between the marks of [`Markup::thought_marks`].
    pub thinks: bool,
    /// How it calls tools, if its template offers any.
    pub tools: Option<ToolMarkup>,
    /// Whether the model writes messages in channels, calls of tools among them (gpt-oss).
    pub channels: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolMarkup {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, between texts (Hermes, Qwen).
    Tagged,
    /// The whole answer is `{"name": …, "parameters": {…}}`, perhaps after `<|python_tag|>`, several separated by
    /// semicolons (Llama 3).
    Bare,
    /// `[TOOL_CALLS]` and a list of calls, to the end (Mistral).
    Listed,
    /// `[TOOL_CALLS]NAME[ARGS]{…}` for each call (Mistral since 2025).
    Named,
    /// `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>` (Qwen3-Coder, Qwen3.5).
    FunctionTags,
    /// `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>` (GLM).
    KeyTags,
    /// A list of calls of functions in Python between marks (LFM2).
    Pythonic,
    /// Calls between separate marks, each a name and a JSON object with a mark between them (DeepSeek V3.1).
    Separated,
    /// The same with the tool's type in place of the name, and the object in a code fence after the name (DeepSeek V3
    /// and R1).
    Fenced,
    /// `<|tool_call>call:name{key:value}<tool_call|>`, with texts between marks (Gemma 4).
    Gemma,
}

impl Markup {
    /// Inferred from the marks in the chat templates.
    pub fn of<'a>(templates: impl IntoIterator<Item = &'a str>) -> Self {
        let mut markup = Self::default();
        for template in templates {
            markup.channels |= template.contains("<|channel|>");
            let ends = ["</think>", gemma::GEMMA_END_THOUGHT];
            markup.thinks |= ends.iter().any(|end| template.contains(end));
            markup.tools = markup.tools.or(ToolMarkup::of(template));
        }
        match markup.channels {
            true => Self {
                channels: true,
                ..Self::default()
            },
            false => markup,
        }
    }

    /// The marks before and after a thought.
    pub fn thought_marks(&self) -> [&'static str; 2] {
        match self.tools {
            Some(ToolMarkup::Gemma) => [gemma::GEMMA_THOUGHT, gemma::GEMMA_END_THOUGHT],
            _ => ["<think>", "</think>"],
        }
    }

    /// Whether it calls tools.
    pub fn calls_tools(&self) -> bool {
        self.channels || self.tools.is_some()
    }
}

impl ToolMarkup {
    fn of(template: &str) -> Option<Self> {
        if !template.contains("tools") {
            return None;
        }
        if template.contains(separated::DEEPSEEK_CALLS) {
            Some(match template.contains("```json") {
                true => Self::Fenced,
                false => Self::Separated,
            })
        } else if template.contains(gemma::GEMMA_CALL) {
            Some(Self::Gemma)
        } else if template.contains("<tool_call>") {
            Some(if template.contains(parameters::ARG_KEY) {
                Self::KeyTags
            } else if template.contains(parameters::PARAMETER) {
                Self::FunctionTags
            } else {
                Self::Tagged
            })
        } else if template.contains("[TOOL_CALLS]") {
            Some(match template.contains(separated::MISTRAL_ARGUMENTS) {
                true => Self::Named,
                false => Self::Listed,
            })
        } else if template.contains(pythonic::PYTHONIC_CALLS)
            || template.contains("<|tool_list_start|>")
        {
            Some(Self::Pythonic)
        } else if template.contains("python_tag") || template.contains("\"parameters\": ") {
            Some(Self::Bare)
        } else {
            None
        }
    }
}
