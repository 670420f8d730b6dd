//! Chunks of a stream. The constant beginning and end of a choice's chunks are built once; a token costs its own
//! characters and two copies.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};

use crate::job::{Channel, Event, TokenEvent, ToolCallEvent};
use crate::openai::Problem;
use crate::openai::chat::StreamWriter;
use crate::openai::text::{put_escaped, put_string};

use super::head::{FINGERPRINT, finish_word};
use super::reply::call_id;
use super::usage::{RunningUsage, Total, logprob};
use super::{CallStyle, ChatRequest, Ending, Grid, Head, StreamOptions};

/// Writes the events of one request's choices as server-sent events.
#[derive(Debug)]
pub struct ChunkWriter {
    /// `data: {…,"choices":[`
    opening: BytesMut,
    /// The end of every chunk before the last: `}\n\n`
    closing: &'static [u8],
    choices: Vec<Choice>,
    unfinished: usize,
    total: Total,
    options: StreamOptions,
    style: CallStyle,
    wants_logprobs: bool,
    hides_reasoning: bool,
    id: String,
}

#[derive(Debug)]
struct Choice {
    /// `data: {…,"choices":[{"index":0,"delta":`
    opening: BytesMut,
    open: bool,
    /// Indices of the calls that have begun.
    calls: Vec<u32>,
    running: RunningUsage,
}

/// Follows a delta that has no log probabilities and ends nothing.
const GOES_ON: &[u8] = b",\"logprobs\":null,\"finish_reason\":null}]";

impl ChunkWriter {
    pub fn new(request: &ChatRequest, head: &Head) -> Self {
        let options = request.stream.unwrap_or_default();
        let opening = opening(request, head);
        let choices = (0..request.choices).map(|index| {
            let mut opening = opening.clone();
            let _ = write!(opening, "{{\"index\":{index},\"delta\":");
            Choice {
                opening,
                open: false,
                calls: Vec::new(),
                running: RunningUsage::default(),
            }
        });
        Self {
            closing: match options.usage {
                Some(true) => b",\"usage\":null}\n\n",
                _ => b"}\n\n",
            },
            unfinished: request.choices as usize,
            choices: choices.collect(),
            opening,
            total: Total::default(),
            options,
            style: request.calls,
            wants_logprobs: request.text.logprobs.is_some(),
            hides_reasoning: request.hides_reasoning,
            id: head.id.clone(),
        }
    }

    fn end_stream(&self, last: &Choice, grid: &Grid, out: &mut BytesMut) {
        if self.options.usage == Some(true) {
            self.close_chunk(last, out);
            out.put_slice(&self.opening);
            out.put_slice(b"]");
        }
        if self.options.usage != Some(false) {
            let _ = write!(out, ",\"usage\":{}", self.total.body());
        }
        let _ = write!(out, ",\"grid\":{}}}\n\n", grid.body());
        done(out);
    }

    fn token(&mut self, choice: u32, token: &TokenEvent, out: &mut BytesMut) {
        let logprobs = self.logprobs(token);
        let is_hidden = self.hides_reasoning && token.channel == Channel::Reasoning;
        if is_hidden || (token.text.is_empty() && logprobs.is_none()) {
            return;
        }
        self.open(choice, out);
        let key: &[u8] = match token.channel {
            Channel::Content => b"{\"content\":\"",
            Channel::Reasoning => b"{\"reasoning_content\":\"",
            Channel::Refusal => b"{\"refusal\":\"",
        };
        let delta = |out: &mut BytesMut| {
            out.put_slice(key);
            put_escaped(&token.text, out);
            out.put_slice(b"\"}");
        };
        self.chunk(choice, out, delta, logprobs);
    }

    fn logprobs(&self, token: &TokenEvent) -> Option<Value> {
        if !self.wants_logprobs || token.logprobs.is_empty() {
            return None;
        }
        let list: Vec<_> = token.logprobs.iter().map(logprob).collect();
        match token.channel {
            Channel::Content => Some(json!({"content": list, "refusal": null})),
            Channel::Refusal => Some(json!({"content": null, "refusal": list})),
            Channel::Reasoning => None,
        }
    }

    fn call(&mut self, choice: u32, piece: &ToolCallEvent, out: &mut BytesMut) {
        self.open(choice, out);
        let Some(known) = self.choices.get_mut(choice as usize) else {
            return;
        };
        let begins = !known.calls.contains(&piece.index);
        if begins {
            known.calls.push(piece.index);
        }
        let first = known.calls.first() == Some(&piece.index);
        match self.style {
            CallStyle::Function if !first => {}
            CallStyle::Function => {
                let delta = |out: &mut BytesMut| {
                    out.put_slice(b"{\"function_call\":");
                    put_function(piece, begins, out);
                    out.put_slice(b"}");
                };
                self.chunk(choice, out, delta, None);
            }
            CallStyle::Tools => {
                let made_up = || call_id(&self.id, choice as usize, piece.index);
                let id = begins.then(|| piece.id.clone().unwrap_or_else(made_up));
                let delta = |out: &mut BytesMut| put_tool_call(piece, id.as_deref(), out);
                self.chunk(choice, out, delta, None);
            }
        }
    }

    fn chunk(
        &self,
        choice: u32,
        out: &mut BytesMut,
        delta: impl FnOnce(&mut BytesMut),
        logprobs: Option<Value>,
    ) {
        let Some(known) = self.choices.get(choice as usize) else {
            return;
        };
        let start = out.len();
        out.put_slice(&known.opening);
        delta(out);
        match logprobs {
            None => out.put_slice(GOES_ON),
            Some(logprobs) => {
                let _ = write!(out, ",\"logprobs\":{logprobs},\"finish_reason\":null}}]");
            }
        }
        if self.options.obfuscation {
            obfuscate(start, out);
        }
        self.close_chunk(known, out);
    }

    /// Ends a chunk of a choice that is not the last of the stream.
    fn close_chunk(&self, choice: &Choice, out: &mut BytesMut) {
        match self.options.running_usage {
            true => {
                let _ = write!(out, ",\"usage\":{}}}\n\n", choice.running.body());
            }
            false => out.put_slice(self.closing),
        }
    }
}

impl StreamWriter for ChunkWriter {
    /// Writes the chunk with the role once, before the first output.
    fn open(&mut self, choice: u32, out: &mut BytesMut) {
        let Some(known) = self.choices.get_mut(choice as usize) else {
            return;
        };
        if !std::mem::replace(&mut known.open, true) {
            let delta: &[u8] = b"{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null}";
            self.chunk(choice, out, |out| out.put_slice(delta), None);
        }
    }

    fn event(&mut self, choice: u32, event: &Event, out: &mut BytesMut) {
        if let Some(known) = self.choices.get_mut(choice as usize) {
            known.running.note(event);
        }
        match event {
            Event::Token(token) => self.token(choice, token, out),
            Event::ToolCall(piece) => self.call(choice, piece, out),
            _ => {}
        }
    }

    /// Ends a choice. The last one ends the stream: with the usage in a chunk of its own if the client requested it,
    /// else on the last chunk of a choice, since such clients may not expect a chunk without choices.
    fn end(&mut self, choice: u32, ending: Ending, grid: &Grid, out: &mut BytesMut) {
        self.open(choice, out);
        self.total.add(ending.usage);
        self.unfinished = self.unfinished.saturating_sub(1);
        if let Some(known) = self.choices.get_mut(choice as usize) {
            known.running.be(ending.usage);
        }
        let Some(known) = self.choices.get(choice as usize) else {
            return;
        };
        let finish = finish_word(&ending.finish, !known.calls.is_empty(), self.style);
        out.put_slice(&known.opening);
        out.put_slice(b"{},\"logprobs\":null,\"finish_reason\":\"");
        out.put_slice(finish.as_bytes());
        out.put_slice(b"\"}]");
        if self.unfinished > 0 {
            self.close_chunk(known, out);
        } else {
            self.end_stream(known, grid, out);
        }
    }

    /// The whole stream has failed.
    fn fail(&mut self, problem: &Problem, out: &mut BytesMut) {
        put_event(&problem.body(), out);
        done(out);
    }
}

fn opening(request: &ChatRequest, head: &Head) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_slice(b"data: {\"id\":");
    put_string(&head.id, &mut out);
    let _ = write!(
        out,
        ",\"object\":\"chat.completion.chunk\",\"created\":{},\"model\":",
        head.created
    );
    put_string(&head.model, &mut out);
    let _ = write!(out, ",\"system_fingerprint\":\"{FINGERPRINT}\"");
    if let Some(tier) = request.tier() {
        let _ = write!(out, ",\"service_tier\":\"{tier}\"");
    }
    out.put_slice(b",\"choices\":[");
    out
}

/// Fills the chunk up to a multiple of 64 bytes.
fn obfuscate(start: usize, out: &mut BytesMut) {
    const FILLING: &str = "aB3dE5gH7jK9mN2pQ4sT6vW8yZ1bC0eF3hJ5kM7nP9rS2tU4wX6zA8cD0fG1iL3o";
    let missing = FILLING.len() - (out.len() - start) % FILLING.len();
    let _ = write!(out, ",\"obfuscation\":\"{}\"", &FILLING[..missing]);
}

fn put_function(piece: &ToolCallEvent, begins: bool, out: &mut BytesMut) {
    out.put_u8(b'{');
    if let Some(name) = piece.name.as_deref().filter(|_| begins) {
        out.put_slice(b"\"name\":");
        put_string(name, out);
        out.put_u8(b',');
    }
    out.put_slice(b"\"arguments\":");
    put_string(&piece.arguments, out);
    out.put_u8(b'}');
}

fn put_tool_call(piece: &ToolCallEvent, id: Option<&str>, out: &mut BytesMut) {
    let _ = write!(out, "{{\"tool_calls\":[{{\"index\":{}", piece.index);
    if let Some(id) = id {
        out.put_slice(b",\"id\":");
        put_string(id, out);
        out.put_slice(b",\"type\":\"function\"");
    }
    out.put_slice(b",\"function\":");
    put_function(piece, id.is_some(), out);
    out.put_slice(b"}]}");
}

fn put_event(event: &Value, out: &mut BytesMut) {
    let _ = write!(out, "data: {event}\n\n");
}

fn done(out: &mut BytesMut) {
    out.put_slice(b"data: [DONE]\n\n");
}
