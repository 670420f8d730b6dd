//! Token frames, which come by the hundred thousand.
//!
//! A `delta` is the same as in OpenAI's chunks, for our own peers too. The token ids and log probabilities are beside
//! the delta in a `token` frame and inside it in a `tokens` frame, so that every event crosses without loss.

use serde::Deserialize;

use super::About;
use super::loose::{AtMost, Loose, LooseId};
use super::object::Object;
use crate::job::{
    Channel, Event, FinishReason, PromptLogprobs, PromptToken, TokenEvent, TokenLogprob,
    ToolCallEvent,
};

/// Deltas in one frame, pieces of tool calls in one delta, alternatives of one token.
const MOST_DELTAS: usize = 4096;
const MOST_CALLS: usize = 256;
const MOST_ALTERNATIVES: usize = 64;
const MOST_TOKEN_BYTES: usize = 1024;
/// The log probability of an impossible token, since JSON has no infinity.
const NO_CHANCE: f32 = -9999.0;

/// Output since the last frame: tokens and pieces of tool calls, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    pub about: About,
    pub events: Vec<Event>,
    /// Some peers name the reason with their last delta.
    pub finish: Option<FinishReason>,
}

#[derive(Deserialize)]
pub(super) struct TokenJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    delta: Option<DeltaJson>,
    ids: Option<Vec<u32>>,
    #[serde(default)]
    logprobs: Loose<LogprobsJson>,
    finish_reason: Option<String>,
    /// The older form.
    text: Option<String>,
    reasoning: Option<bool>,
}

#[derive(Deserialize)]
pub(super) struct TokensJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    #[serde(default)]
    d: AtMost<MOST_DELTAS, DeltaJson>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct DeltaJson {
    content: Option<String>,
    reasoning_content: Option<String>,
    /// The newer name of the same. Some backends write both.
    reasoning: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<AtMost<MOST_CALLS, CallJson>>,
    ids: Option<Vec<u32>>,
    #[serde(default)]
    logprobs: Loose<LogprobsJson>,
}

#[derive(Deserialize)]
struct CallJson {
    index: Option<u32>,
    id: Option<String>,
    function: Option<FunctionJson>,
}

#[derive(Default, Deserialize)]
struct FunctionJson {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct LogprobsJson {
    content: Option<AtMost<MOST_DELTAS, LogprobJson>>,
}

#[derive(Deserialize)]
struct LogprobJson {
    token: String,
    #[serde(default)]
    bytes: Loose<AtMost<MOST_TOKEN_BYTES, u8>>,
    logprob: f32,
    top_logprobs: Option<AtMost<MOST_ALTERNATIVES, AlternativeJson>>,
}

#[derive(Deserialize)]
struct AlternativeJson {
    token: String,
    #[serde(default)]
    bytes: Loose<AtMost<MOST_TOKEN_BYTES, u8>>,
    logprob: f32,
}

#[derive(Deserialize)]
pub(super) struct PromptJson {
    #[serde(default)]
    id: LooseId,
    att: Option<u32>,
    seq: Option<u64>,
    #[serde(default)]
    start: u32,
    #[serde(default)]
    tokens: AtMost<MOST_DELTAS, PromptTokenJson>,
}

#[derive(Deserialize)]
struct PromptTokenJson {
    token: String,
    #[serde(default)]
    bytes: Loose<AtMost<MOST_TOKEN_BYTES, u8>>,
    logprob: Option<f32>,
    top_logprobs: Option<AtMost<MOST_ALTERNATIVES, AlternativeJson>>,
}

impl PromptJson {
    /// None when it names no job.
    pub fn read(self) -> Option<(About, PromptLogprobs)> {
        let tokens = self.tokens.0.into_iter();
        let prompt = PromptLogprobs {
            start: self.start,
            tokens: tokens.map(PromptToken::from).collect(),
        };
        Some((about(self.id, self.att, self.seq)?, prompt))
    }
}

impl From<PromptTokenJson> for PromptToken {
    fn from(json: PromptTokenJson) -> Self {
        Self {
            bytes: token_bytes(json.token, json.bytes),
            logprob: json.logprob,
            top: alternatives(json.top_logprobs),
        }
    }
}

fn alternatives(top: Option<AtMost<MOST_ALTERNATIVES, AlternativeJson>>) -> Vec<(Vec<u8>, f32)> {
    let top = top.map_or_else(Vec::new, |list| list.0).into_iter();
    top.map(|one| (token_bytes(one.token, one.bytes), one.logprob))
        .collect()
}

impl TokenJson {
    /// None when it names no job.
    pub fn read(self) -> Option<Output> {
        let mut delta = self.delta.unwrap_or_default();
        match (self.text, self.reasoning) {
            (Some(text), Some(true)) => delta.reasoning_content = Some(text),
            (Some(text), _) => delta.content = Some(text),
            (None, _) => {}
        }
        delta.ids = delta.ids.or(self.ids);
        delta.logprobs.0 = delta.logprobs.0.or(self.logprobs.0);
        let mut events = Vec::with_capacity(1);
        delta.read(&mut events);
        Some(Output {
            about: about(self.id, self.att, self.seq)?,
            events,
            finish: self.finish_reason.map(|name| finish_named(&name)),
        })
    }
}

impl TokensJson {
    pub fn read(self) -> Option<Output> {
        let mut events = Vec::with_capacity(self.d.0.len());
        for delta in self.d.0 {
            delta.read(&mut events);
        }
        Some(Output {
            about: about(self.id, self.att, self.seq)?,
            events,
            finish: self.finish_reason.map(|name| finish_named(&name)),
        })
    }
}

pub(super) fn about(id: LooseId, attempt: Option<u32>, seq: Option<u64>) -> Option<About> {
    let job = id.0?;
    Some(About { job, attempt, seq })
}

/// Unknown names mean an ordinary stop.
pub(super) fn finish_named(name: &str) -> FinishReason {
    match name {
        "length" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "content_filter" => FinishReason::ContentFilter,
        "cancelled" => FinishReason::Cancelled,
        _ => FinishReason::Stop,
    }
}

pub(super) fn finish_name(finish: &FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::StopString(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::ContentFilter | FinishReason::Unlawful => "content_filter",
        FinishReason::Cancelled => "cancelled",
    }
}

impl DeltaJson {
    /// Usually one event. Ids and log probabilities go with the first.
    fn read(self, events: &mut Vec<Event>) {
        let mut ids = self.ids.unwrap_or_default();
        let content = self.logprobs.0.and_then(|logprobs| logprobs.content);
        let mut logprobs: Vec<_> = content.map_or_else(Vec::new, |list| {
            list.0.into_iter().map(TokenLogprob::from).collect()
        });
        let texts = [
            (
                Channel::Reasoning,
                self.reasoning_content.or(self.reasoning),
            ),
            (Channel::Content, self.content),
            (Channel::Refusal, self.refusal),
        ];
        for (channel, text) in texts {
            let Some(text) = text else { continue };
            if text.is_empty() && ids.is_empty() && logprobs.is_empty() {
                continue;
            }
            events.push(Event::Token(TokenEvent {
                channel,
                text,
                ids: std::mem::take(&mut ids),
                logprobs: std::mem::take(&mut logprobs),
            }));
        }
        let calls = self.tool_calls.map_or_else(Vec::new, |calls| calls.0);
        for (position, call) in (0..).zip(calls) {
            events.push(Event::ToolCall(
                call.read(position, std::mem::take(&mut ids)),
            ));
        }
        if !ids.is_empty() || !logprobs.is_empty() {
            events.push(Event::Token(TokenEvent {
                ids,
                logprobs,
                ..TokenEvent::default()
            }));
        }
    }
}

impl CallJson {
    fn read(self, position: u32, ids: Vec<u32>) -> ToolCallEvent {
        let function = self.function.unwrap_or_default();
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        ToolCallEvent {
            index: self.index.unwrap_or(position),
            id: said(self.id),
            name: said(function.name),
            arguments: function.arguments.unwrap_or_default(),
            ids,
        }
    }
}

impl From<LogprobJson> for TokenLogprob {
    fn from(json: LogprobJson) -> Self {
        Self {
            bytes: token_bytes(json.token, json.bytes),
            logprob: json.logprob,
            top: alternatives(json.top_logprobs),
        }
    }
}

/// The token's text says all where there are no bytes: some backends write none.
fn token_bytes(text: String, bytes: Loose<AtMost<MOST_TOKEN_BYTES, u8>>) -> Vec<u8> {
    bytes.0.map_or_else(|| text.into_bytes(), |bytes| bytes.0)
}

/// Writes a `token` frame for one event, a `tokens` frame for several. Skips events other than tokens and tool calls.
pub fn write_tokens(about: About, events: &[Event], out: &mut String) {
    match events {
        [event] => {
            let mut object = Object::frame("token", out);
            about.write(&mut object);
            object.object("delta", |delta| write_delta(event, delta));
            write_origin(event, &mut object);
            if about.attempt.is_none() {
                // Public peers always say so.
                object.null("finish_reason");
            }
            object.end();
        }
        several => {
            let mut object = Object::frame("tokens", out);
            about.write(&mut object);
            object.list("d", several, |event, out| {
                let mut delta = Object::new(out);
                write_delta(event, &mut delta);
                write_origin(event, &mut delta);
                delta.end();
            });
            object.end();
        }
    }
}

fn write_delta(event: &Event, delta: &mut Object<'_>) {
    match event {
        Event::Token(token) => delta.text(channel_name(token.channel), &token.text),
        Event::ToolCall(call) => {
            delta.list("tool_calls", std::slice::from_ref(call), write_call);
        }
        _ => {}
    }
}

fn channel_name(channel: Channel) -> &'static str {
    match channel {
        Channel::Content => "content",
        Channel::Reasoning => "reasoning_content",
        Channel::Refusal => "refusal",
    }
}

/// The tokens behind a delta.
fn write_origin(event: &Event, object: &mut Object<'_>) {
    let (ids, logprobs) = match event {
        Event::Token(token) => (&token.ids, &token.logprobs[..]),
        Event::ToolCall(call) => (&call.ids, &[][..]),
        _ => return,
    };
    if !ids.is_empty() {
        object.numbers("ids", ids);
    }
    if !logprobs.is_empty() {
        object.object("logprobs", |inner| {
            inner.list("content", logprobs, write_logprob);
        });
    }
}

fn write_call(call: &ToolCallEvent, out: &mut String) {
    let mut object = Object::new(out);
    object.number("index", call.index);
    if let Some(id) = &call.id {
        object.text("id", id);
        object.text("type", "function");
    }
    object.object("function", |function| {
        function.text_if("name", call.name.as_deref());
        function.text("arguments", &call.arguments);
    });
    object.end();
}

fn write_logprob(token: &TokenLogprob, out: &mut String) {
    let mut object = Object::new(out);
    write_token(&token.bytes, &mut object);
    object.number("logprob", finite(token.logprob));
    object.list("top_logprobs", &token.top, write_alternative);
    object.end();
}

fn write_alternative((bytes, logprob): &(Vec<u8>, f32), out: &mut String) {
    let mut object = Object::new(out);
    write_token(bytes, &mut object);
    object.number("logprob", finite(*logprob));
    object.end();
}

/// The contents of a `prompt` frame.
pub(super) fn write_prompt(prompt: &PromptLogprobs, object: &mut Object<'_>) {
    object.number("start", prompt.start);
    object.list("tokens", &prompt.tokens, |token, out| {
        let mut object = Object::new(out);
        write_token(&token.bytes, &mut object);
        object.number_if("logprob", token.logprob.map(finite));
        if !token.top.is_empty() {
            object.list("top_logprobs", &token.top, write_alternative);
        }
        object.end();
    });
}

/// The bytes too where the text does not say them.
fn write_token(bytes: &[u8], object: &mut Object<'_>) {
    let text = String::from_utf8_lossy(bytes);
    object.text("token", &text);
    if text.as_bytes() != bytes {
        object.numbers("bytes", bytes);
    }
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() {
        logprob
    } else {
        NO_CHANCE
    }
}
