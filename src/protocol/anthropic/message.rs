//! One message at the end, gathered from its events.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::job::{Channel, Event, FinishReason, Usage};
use crate::openai::chat::{Ending, Grid, Head, ReplyBuilder};

use super::dialect::{AnswerOptions, Stop, call_id, usage};
use super::thinking::ThinkingShown;

#[derive(Debug)]
pub struct MessageBuilder {
    id: String,
    model: Arc<str>,
    options: AnswerOptions,
    content: MessageContent,
    ending: Option<Ending>,
}

#[derive(Debug, Default)]
struct MessageContent {
    thinking: String,
    text: String,
    calls: Vec<ToolUse>,
    is_refused: bool,
}

#[derive(Debug, Default)]
struct ToolUse {
    index: u32,
    id: Option<String>,
    name: String,
    arguments: String,
}

impl MessageBuilder {
    pub fn new(head: &Head, options: AnswerOptions) -> Self {
        Self {
            id: head.id.clone(),
            model: Arc::clone(&head.model),
            options,
            content: MessageContent::default(),
            ending: None,
        }
    }
}

impl ReplyBuilder for MessageBuilder {
    fn event(&mut self, _: u32, event: Event) {
        let content = &mut self.content;
        match event {
            Event::Token(token) => match token.channel {
                Channel::Content => content.text.push_str(&token.text),
                Channel::Reasoning => content.thinking.push_str(&token.text),
                Channel::Refusal => {
                    content.is_refused = true;
                    content.text.push_str(&token.text);
                }
            },
            Event::ToolCall(piece) => {
                let known = content
                    .calls
                    .iter()
                    .position(|call| call.index == piece.index);
                let place = known.unwrap_or_else(|| {
                    content.calls.push(ToolUse {
                        index: piece.index,
                        ..ToolUse::default()
                    });
                    content.calls.len() - 1
                });
                let call = &mut content.calls[place];
                call.id = piece.id.or(call.id.take());
                call.name
                    .push_str(piece.name.as_deref().unwrap_or_default());
                call.arguments.push_str(&piece.arguments);
            }
            _ => {}
        }
    }

    fn restart(&mut self, _: u32) {
        self.content = MessageContent::default();
    }

    fn end(&mut self, _: u32, ending: Ending) {
        self.ending = Some(ending);
    }

    fn render(self: Box<Self>, grid: &Grid) -> Value {
        let ending = self.ending.unwrap_or(Ending {
            finish: FinishReason::Stop,
            usage: Usage::default(),
        });
        let MessageContent {
            thinking,
            text,
            calls,
            is_refused,
        } = self.content;
        let stop = match is_refused {
            true => Stop::refused(),
            false => Stop::of(&ending, self.options.max_tokens, !calls.is_empty()),
        };
        let mut blocks = Vec::new();
        if !thinking.is_empty() && self.options.thinking != ThinkingShown::Nothing {
            let is_whole = self.options.thinking == ThinkingShown::Whole;
            let thinking = if is_whole { thinking } else { String::new() };
            let signature = self.options.signer.sign(&thinking);
            blocks.push(json!({"type": "thinking", "thinking": thinking, "signature": signature}));
        }
        if !text.is_empty() {
            blocks.push(json!({"type": "text", "text": text}));
        }
        for call in calls {
            let id = call.id.unwrap_or_else(|| call_id(&self.id, call.index));
            blocks.push(json!({
                "type": "tool_use", "id": id, "name": call.name, "input": input(&call.arguments),
            }));
        }
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": &*self.model,
            "content": blocks,
            "stop_reason": stop.reason,
            "stop_sequence": stop.sequence,
            "stop_details": stop.details(),
            "usage": usage(ending.usage),
            "grid": grid.body(),
        })
    }
}

/// Arguments cut off by the token limit are no valid JSON, and returned as they are.
fn input(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(input)) => Value::Object(input),
        _ if arguments.trim().is_empty() => Value::Object(Map::new()),
        _ => json!({"INVALID_JSON": arguments}),
    }
}
