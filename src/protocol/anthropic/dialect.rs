//! The Messages API as a dialect.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::dialect::{Dialect, ReplyBuilder, StreamWriter};
use crate::job::{FinishReason, Usage};
use crate::openai::chat::{ChatRequest, Head};

use super::message::MessageBuilder;
use super::stream::EventWriter;

/// Signs thoughts, so that only unchanged ones of this service come back.
pub trait Signer: fmt::Debug + Send + Sync {
    fn sign(&self, thinking: &str) -> String;

    fn verifies(&self, thinking: &str, signature: &str) -> bool;
}

#[derive(Debug)]
pub struct MessagesDialect {
    /// Of each chat message, the index of the client's.
    places: Vec<Option<usize>>,
    signer: Arc<dyn Signer>,
}

impl MessagesDialect {
    pub fn new(places: Vec<Option<usize>>, signer: Arc<dyn Signer>) -> Self {
        Self { places, signer }
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

    fn stream(&self, _: &ChatRequest, head: &Head) -> Box<dyn StreamWriter> {
        Box::new(EventWriter::new(head, Arc::clone(&self.signer)))
    }

    fn reply(&self, _: &ChatRequest, head: &Head) -> Box<dyn ReplyBuilder> {
        Box::new(MessageBuilder::new(head, Arc::clone(&self.signer)))
    }
}

/// `stop_reason` and `stop_sequence`.
pub(super) fn stop(finish: &FinishReason, has_calls: bool) -> (&'static str, Option<&str>) {
    match finish {
        FinishReason::Length => ("max_tokens", None),
        FinishReason::ContentFilter | FinishReason::Unlawful => ("refusal", None),
        _ if has_calls => ("tool_use", None),
        FinishReason::StopString(stop) => ("stop_sequence", Some(stop)),
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Cancelled => {
            ("end_turn", None)
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
    })
}

/// For a worker that gave its call no id.
pub(super) fn call_id(message: &str, index: u32) -> String {
    format!("toolu_{}_{index}", message.trim_start_matches("msg_"))
}
