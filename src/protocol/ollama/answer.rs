//! An answer as one JSON object, or as lines of objects, the last of which has `done`.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::BytesMut;
use serde_json::{Map, Value, json};

use crate::job::{Channel, Event, FinishReason, TokenEvent, ToolCallEvent, Usage};
use crate::openai::Problem;
use crate::openai::chat::{Ending, Grid, Head, ReplyBuilder, StreamWriter, logprob};

use super::error_body;
use super::fields::Door;

/// Fields of every object of a reply.
#[derive(Debug)]
struct AnswerFrame {
    door: Door,
    model: Arc<str>,
    created: String,
    has_logprobs: bool,
}

/// Text since the last line, or all of it.
#[derive(Debug, Default)]
struct AnswerText {
    thinking: String,
    text: String,
    logprobs: Vec<Value>,
}

#[derive(Debug, Default)]
struct Calls(Vec<GatheredCall>);

#[derive(Debug, Default)]
struct GatheredCall {
    index: u32,
    id: Option<String>,
    name: String,
    arguments: String,
}

#[derive(Debug)]
pub struct Answer {
    frame: AnswerFrame,
    output: AnswerText,
    calls: Calls,
    ending: Option<Ending>,
}

#[derive(Debug)]
pub struct LineWriter {
    frame: AnswerFrame,
    calls: Calls,
}

/// A time in Ollama's format.
pub fn moment(seconds: i64) -> String {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string()
}

impl AnswerFrame {
    fn new(door: Door, head: &Head, has_logprobs: bool) -> Self {
        Self {
            door,
            model: Arc::clone(&head.model),
            created: moment(head.created),
            has_logprobs,
        }
    }

    fn object(&self, output: AnswerText, calls: Vec<Value>) -> Value {
        let mut object = json!({"model": &*self.model, "created_at": self.created});
        let AnswerText {
            thinking,
            text,
            logprobs,
        } = output;
        match self.door {
            Door::Chat => {
                let mut message = json!({"role": "assistant", "content": text});
                if !thinking.is_empty() {
                    message["thinking"] = thinking.into();
                }
                if !calls.is_empty() {
                    message["tool_calls"] = calls.into();
                }
                object["message"] = message;
            }
            Door::Generate => {
                object["response"] = text.into();
                if !thinking.is_empty() {
                    object["thinking"] = thinking.into();
                }
            }
        }
        if self.has_logprobs && !logprobs.is_empty() {
            object["logprobs"] = logprobs.into();
        }
        object["done"] = false.into();
        object
    }

    fn put(&self, output: AnswerText, out: &mut BytesMut) {
        put(&self.object(output, Vec::new()), out);
    }
}

impl AnswerText {
    fn token(&mut self, token: &TokenEvent) {
        match token.channel {
            Channel::Reasoning => self.thinking.push_str(&token.text),
            Channel::Content | Channel::Refusal => self.text.push_str(&token.text),
        }
        self.logprobs.extend(token.logprobs.iter().map(logprob));
    }
}

impl Calls {
    fn add(&mut self, piece: &ToolCallEvent) {
        let known = self.0.iter().position(|call| call.index == piece.index);
        let place = known.unwrap_or_else(|| {
            self.0.push(GatheredCall {
                index: piece.index,
                ..GatheredCall::default()
            });
            self.0.len() - 1
        });
        let call = &mut self.0[place];
        call.id = call.id.take().or_else(|| piece.id.clone());
        call.name
            .push_str(piece.name.as_deref().unwrap_or_default());
        call.arguments.push_str(&piece.arguments);
    }

    /// Takes the calls with their arguments as objects. Arguments cut off by the token limit are no valid JSON, and
    /// their calls are left out.
    fn take(&mut self) -> Vec<Value> {
        let calls = std::mem::take(&mut self.0);
        let whole = calls.into_iter().filter_map(|call| {
            let arguments: Map<String, Value> = match call.arguments.trim() {
                "" => Map::new(),
                text => serde_json::from_str(text).ok()?,
            };
            let function = json!({"index": call.index, "name": call.name, "arguments": arguments});
            Some(match call.id {
                Some(id) => json!({"id": id, "function": function}),
                None => json!({"function": function}),
            })
        });
        whole.collect()
    }
}

/// Adds the fields of a reply's last object.
fn end(mut object: Value, ending: &Ending, grid: &Grid) -> Value {
    let reason = match ending.finish {
        FinishReason::Length => "length",
        _ => "stop",
    };
    object["done"] = true.into();
    object["done_reason"] = reason.into();
    let first = grid.ttft.unwrap_or_default().min(grid.gen_time);
    object["total_duration"] = nanoseconds(grid.gen_time).into();
    object["load_duration"] = 0.into();
    object["prompt_eval_count"] = ending.usage.prompt_tokens.into();
    object["prompt_eval_duration"] = nanoseconds(first).into();
    object["eval_count"] = ending.usage.completion_tokens.into();
    object["eval_duration"] = nanoseconds(grid.gen_time - first).into();
    object
}

fn nanoseconds(seconds: f64) -> u64 {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|time| u64::try_from(time.as_nanos()).ok())
        .unwrap_or(0)
}

fn put(object: &Value, out: &mut BytesMut) {
    let _ = writeln!(out, "{object}");
}

impl Answer {
    pub fn new(door: Door, head: &Head, has_logprobs: bool) -> Self {
        Self {
            frame: AnswerFrame::new(door, head, has_logprobs),
            output: AnswerText::default(),
            calls: Calls::default(),
            ending: None,
        }
    }
}

impl ReplyBuilder for Answer {
    fn event(&mut self, _: u32, event: Event) {
        match event {
            Event::Token(token) => self.output.token(&token),
            Event::ToolCall(piece) => self.calls.add(&piece),
            _ => {}
        }
    }

    fn restart(&mut self, _: u32) {
        self.output = AnswerText::default();
        self.calls = Calls::default();
    }

    fn end(&mut self, _: u32, ending: Ending) {
        self.ending = Some(ending);
    }

    fn render(mut self: Box<Self>, grid: &Grid) -> Value {
        let ending = self.ending.take().unwrap_or(Ending {
            finish: FinishReason::Stop,
            usage: Usage::default(),
        });
        let calls = self.calls.take();
        end(self.frame.object(self.output, calls), &ending, grid)
    }
}

impl LineWriter {
    pub fn new(door: Door, head: &Head, has_logprobs: bool) -> Self {
        Self {
            frame: AnswerFrame::new(door, head, has_logprobs),
            calls: Calls::default(),
        }
    }
}

impl StreamWriter for LineWriter {
    fn open(&mut self, _: u32, _: &mut BytesMut) {}

    fn event(&mut self, _: u32, event: &Event, out: &mut BytesMut) {
        match event {
            Event::Token(token) => {
                let mut output = AnswerText::default();
                output.token(token);
                if !output.text.is_empty() || !output.thinking.is_empty() {
                    self.frame.put(output, out);
                }
            }
            Event::ToolCall(piece) => self.calls.add(piece),
            _ => {}
        }
    }

    fn end(&mut self, _: u32, ending: Ending, grid: &Grid, out: &mut BytesMut) {
        let calls = self.calls.take();
        if !calls.is_empty() {
            put(&self.frame.object(AnswerText::default(), calls), out);
        }
        let last = self.frame.object(AnswerText::default(), Vec::new());
        put(&end(last, &ending, grid), out);
    }

    fn fail(&mut self, problem: &Problem, out: &mut BytesMut) {
        put(&error_body(&problem.body()), out);
    }

    /// Every line is an object of the answer: this one adds nothing to it.
    fn heartbeat(&mut self, out: &mut BytesMut) {
        self.frame.put(AnswerText::default(), out);
    }
}
