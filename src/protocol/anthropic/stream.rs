//! A message as server-sent events, in the order that Anthropic's clients expect.

use std::fmt::Write;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};

use crate::job::{Channel, Event, TokenEvent, ToolCallEvent, Usage};
use crate::openai::Problem;
use crate::openai::chat::{Ending, Grid, Head, StreamWriter};
use crate::openai::error::body;
use crate::openai::text::put_escaped;

use super::dialect::{AnswerOptions, Stop, call_id, usage};
use super::error_body;
use super::thinking::ThinkingShown;

#[derive(Debug)]
pub struct MessageEventWriter {
    id: String,
    model: Arc<str>,
    options: AnswerOptions,
    has_begun: bool,
    /// Blocks that were opened.
    count: usize,
    open: Option<Block>,
    /// The index of each call, and of its block.
    calls: Vec<(u32, usize)>,
    thinking: String,
    is_refused: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    Tool,
}

impl MessageEventWriter {
    pub fn new(head: &Head, options: AnswerOptions) -> Self {
        Self {
            id: head.id.clone(),
            model: Arc::clone(&head.model),
            options,
            has_begun: false,
            count: 0,
            open: None,
            calls: Vec::new(),
            thinking: String::new(),
            is_refused: false,
        }
    }

    /// The first event names the prompt's tokens, so it waits until the worker has counted them.
    fn begin(&mut self, prompt: Usage, out: &mut BytesMut) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": &*self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
            "stop_details": null,
            "usage": usage(prompt),
        });
        put(
            "message_start",
            &json!({"type": "message_start", "message": message}),
            out,
        );
        put("ping", &json!({"type": "ping"}), out);
    }

    /// Closes the open block, and opens this one.
    fn block(&mut self, kind: Block, content: &Value, out: &mut BytesMut) {
        self.close(out);
        let event = json!({
            "type": "content_block_start", "index": self.count, "content_block": content,
        });
        put("content_block_start", &event, out);
        self.count += 1;
        self.open = Some(kind);
    }

    fn close(&mut self, out: &mut BytesMut) {
        let Some(open) = self.open.take() else {
            return;
        };
        let index = self.count - 1;
        if open == Block::Thinking {
            let signature = self.options.signer.sign(&self.thinking);
            self.thinking.clear();
            let delta = json!({"type": "signature_delta", "signature": signature});
            let event = json!({"type": "content_block_delta", "index": index, "delta": delta});
            put("content_block_delta", &event, out);
        }
        let event = json!({"type": "content_block_stop", "index": index});
        put("content_block_stop", &event, out);
    }

    fn token(&mut self, token: &TokenEvent, out: &mut BytesMut) {
        let is_hidden =
            token.channel == Channel::Reasoning && self.options.thinking == ThinkingShown::Nothing;
        if token.text.is_empty() || is_hidden {
            return;
        }
        self.begin(Usage::default(), out);
        let (block, kind, key) = match token.channel {
            Channel::Reasoning => (Block::Thinking, "thinking_delta", "thinking"),
            Channel::Content | Channel::Refusal => (Block::Text, "text_delta", "text"),
        };
        self.is_refused |= token.channel == Channel::Refusal;
        if self.open != Some(block) {
            let content = match block {
                Block::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
                _ => json!({"type": "text", "text": ""}),
            };
            self.block(block, &content, out);
        }
        if block == Block::Thinking {
            if self.options.thinking != ThinkingShown::Whole {
                return;
            }
            self.thinking.push_str(&token.text);
        }
        delta(self.count - 1, kind, key, &token.text, out);
    }

    fn call(&mut self, piece: &ToolCallEvent, out: &mut BytesMut) {
        self.begin(Usage::default(), out);
        let known = self.calls.iter().find(|(index, _)| *index == piece.index);
        let block = match known {
            Some((_, block)) => *block,
            None => {
                let id = piece.id.clone();
                let id = id.unwrap_or_else(|| call_id(&self.id, piece.index));
                let content = json!({
                    "type": "tool_use", "id": id, "name": piece.name.as_deref(), "input": {},
                });
                self.block(Block::Tool, &content, out);
                self.calls.push((piece.index, self.count - 1));
                self.count - 1
            }
        };
        if !piece.arguments.is_empty() {
            delta(
                block,
                "input_json_delta",
                "partial_json",
                &piece.arguments,
                out,
            );
        }
    }
}

impl StreamWriter for MessageEventWriter {
    fn open(&mut self, _: u32, _: &mut BytesMut) {}

    fn event(&mut self, _: u32, event: &Event, out: &mut BytesMut) {
        match event {
            Event::Started {
                prompt_tokens,
                cached_tokens,
            } => {
                let prompt = Usage {
                    prompt_tokens: *prompt_tokens,
                    cached_tokens: *cached_tokens,
                    ..Usage::default()
                };
                self.begin(prompt, out);
            }
            Event::Token(token) => self.token(token, out),
            Event::ToolCall(piece) => self.call(piece, out),
            _ => {}
        }
    }

    fn end(&mut self, _: u32, ending: Ending, grid: &Grid, out: &mut BytesMut) {
        self.begin(ending.usage, out);
        self.close(out);
        let stop = match self.is_refused {
            true => Stop::refused(),
            false => Stop::of(&ending, self.options.max_tokens, !self.calls.is_empty()),
        };
        let event = json!({
            "type": "message_delta",
            "delta": {
                "stop_reason": stop.reason,
                "stop_sequence": stop.sequence,
                "stop_details": stop.details(),
            },
            "usage": usage(ending.usage),
            "grid": grid.body(),
        });
        put("message_delta", &event, out);
        put("message_stop", &json!({"type": "message_stop"}), out);
    }

    fn fail(&mut self, problem: &Problem, out: &mut BytesMut) {
        let failure = &problem.failure;
        let body = body(failure, problem.param.as_deref());
        put("error", &error_body(body, failure.status(), &self.id), out);
    }

    fn heartbeat(&mut self, out: &mut BytesMut) {
        match self.has_begun {
            true => put("ping", &json!({"type": "ping"}), out),
            false => out.put_slice(b": keep-alive\n\n"),
        }
    }
}

fn put(name: &str, event: &Value, out: &mut BytesMut) {
    let _ = write!(out, "event: {name}\ndata: {event}\n\n");
}

/// The event of every token: written without a value of its own.
fn delta(index: usize, kind: &str, key: &str, text: &str, out: &mut BytesMut) {
    let _ = write!(
        out,
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":\"{kind}\",\"{key}\":\""
    );
    put_escaped(text, out);
    out.put_slice(b"\"}}\n\n");
}
