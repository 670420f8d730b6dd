//! The Messages API as a dialect.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::job::{FinishReason, Formats, Usage};
use crate::openai::chat::{ChatRequest, Dialect, Ending, Head, ReplyBuilder, StreamWriter};

use super::message::MessageBuilder;
use super::stream::MessageEventWriter;
use super::thinking::ThinkingShown;

/// Signs reasoning, so that the service accepts only its own reasoning, unchanged.
pub trait Signer: fmt::Debug + Send + Sync {
    fn sign(&self, thinking: &str) -> String;

    fn verifies(&self, thinking: &str, signature: &str) -> bool;
}

#[derive(Debug)]
pub struct MessagesDialect {
    /// For each chat message, the index of the client's message.
    pub(super) places: Vec<Option<usize>>,
    pub(super) thinking: ThinkingShown,
    pub(super) signer: Arc<dyn Signer>,
}

/// Options of a reply besides its events.
#[derive(Debug, Clone)]
pub(super) struct AnswerOptions {
    pub signer: Arc<dyn Signer>,
    pub thinking: ThinkingShown,
    pub max_tokens: Option<u32>,
}

impl MessagesDialect {
    fn options(&self, request: &ChatRequest) -> AnswerOptions {
        AnswerOptions {
            signer: Arc::clone(&self.signer),
            thinking: self.thinking,
            max_tokens: request.text.max_tokens,
        }
    }

    /// `messages[2].content[0]` of the chat body is `messages.1` or `system` of the client's.
    fn message(&self, rest: &str) -> Option<String> {
        let (index, _) = rest.split_once(']')?;
        let place = self.places.get(index.parse::<usize>().ok()?)?;
        Some(match place {
            Some(index) => format!("messages.{index}"),
            None => "system".to_owned(),
        })
    }
}

impl Dialect for MessagesDialect {
    fn id_prefix(&self) -> &'static str {
        "msg_"
    }

    fn native_format(&self) -> Option<Formats> {
        Some(Formats::ANTHROPIC)
    }

    fn param<'a>(&self, chat: &'a str) -> Cow<'a, str> {
        if let Some(place) = chat
            .strip_prefix("messages[")
            .and_then(|rest| self.message(rest))
        {
            return place.into();
        }
        if let Some(rest) = chat.strip_prefix("tools[") {
            let rest = rest.replace("function.parameters", "input_schema");
            let rest = rest.replace("function.", "");
            return format!("tools.{}", rest.replacen(']', "", 1)).into();
        }
        match chat {
            "stop" => "stop_sequences".into(),
            "enable_thinking" | "reasoning_effort" => "thinking".into(),
            "parallel_tool_calls" => "tool_choice.disable_parallel_tool_use".into(),
            chat if chat.starts_with("tool_choice") => "tool_choice.name".into(),
            chat => match chat.strip_prefix("response_format.json_schema") {
                Some(rest) => format!("output_config.format{rest}").into(),
                None if chat == "response_format" => "output_config.format".into(),
                None => chat.into(),
            },
        }
    }

    fn stream(&self, request: &ChatRequest, head: &Head) -> Box<dyn StreamWriter> {
        Box::new(MessageEventWriter::new(head, self.options(request)))
    }

    fn reply(&self, request: &ChatRequest, head: &Head) -> Box<dyn ReplyBuilder> {
        Box::new(MessageBuilder::new(head, self.options(request)))
    }
}

/// Why an answer ended, as a message and the last delta of a stream say it.
#[derive(Debug)]
pub(super) struct Stop<'a> {
    pub reason: &'static str,
    pub sequence: Option<&'a str>,
}

impl<'a> Stop<'a> {
    pub fn of(ending: &'a Ending, max_tokens: Option<u32>, has_calls: bool) -> Self {
        let reason = match &ending.finish {
            FinishReason::Length => match max_tokens {
                // The prompt left fewer tokens than requested.
                Some(limit) if ending.usage.completion_tokens < limit => {
                    "model_context_window_exceeded"
                }
                _ => "max_tokens",
            },
            FinishReason::ContentFilter | FinishReason::Unlawful => "refusal",
            _ if has_calls => "tool_use",
            FinishReason::StopString(_) => "stop_sequence",
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Cancelled => "end_turn",
        };
        let sequence = match &ending.finish {
            FinishReason::StopString(stop) if reason == "stop_sequence" => Some(&**stop),
            _ => None,
        };
        Self { reason, sequence }
    }

    /// The model itself has refused.
    pub fn refused() -> Self {
        Self {
            reason: "refusal",
            sequence: None,
        }
    }

    /// A refusal has details, though nothing is known about its category.
    pub fn details(&self) -> Value {
        match self.reason {
            "refusal" => json!({"type": "refusal", "category": null, "explanation": null}),
            _ => Value::Null,
        }
    }
}

/// Prompt tokens that were found in a cache are counted apart.
pub(super) fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens.saturating_sub(usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "service_tier": "standard",
    })
}

/// For a worker that gave its call no id.
pub(super) fn call_id(message: &str, index: u32) -> String {
    format!("toolu_{}_{index}", message.trim_start_matches("msg_"))
}
