//! A response as server-sent events with sequence numbers, in the order that OpenAI's clients expect.

use std::fmt::Write;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};

use crate::job::{Event, TokenEvent, ToolCallEvent};
use crate::openai::Problem;
use crate::openai::chat::{Ending, Grid, StreamWriter, logprob};
use crate::openai::text::put_escaped;

use super::dialect::Recorder;
use super::output::{ItemKind, ItemUpdate, OutputItems, OutputOptions};
use super::response::Frame;

#[derive(Debug)]
pub struct EventWriter {
    frame: Frame,
    output: OutputItems,
    logprobs: bool,
    pub obfuscation: bool,
    sequence: u64,
    has_begun: bool,
    /// The item that is being written.
    open: Option<usize>,
    recorder: Option<Arc<dyn Recorder>>,
    /// Events are recorded, and sent from the record.
    is_background: bool,
}

/// Padding of deltas to a multiple of a block size.
const FILLING: &str = "Jq4xTz8mVb1nKc6hRw3yPs9dLf5gAe7uXi2oZt0kMv4qBj8rCn1wHy6pDs3lGa5f";

impl EventWriter {
    pub fn new(frame: Frame, options: OutputOptions) -> Self {
        Self {
            logprobs: options.logprobs,
            output: OutputItems::new(&frame.id, options),
            frame,
            obfuscation: false,
            sequence: 0,
            has_begun: false,
            open: None,
            recorder: None,
            is_background: false,
        }
    }

    /// Jobs were accepted.
    pub fn record(&mut self, recorder: Option<Arc<dyn Recorder>>, is_background: bool) {
        self.recorder = recorder;
        self.is_background = is_background;
        let Some(recorder) = self.recorder.clone() else {
            return;
        };
        if !is_background {
            recorder.began(&self.frame.in_progress());
            return;
        }
        let queued = self.frame.queued();
        recorder.began(&queued);
        let out = &mut BytesMut::new();
        self.whole("response.created", &queued, out);
        self.whole("response.queued", &queued, out);
    }

    fn begin(&mut self, out: &mut BytesMut) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let response = self.frame.in_progress();
        if !self.is_background {
            self.whole("response.created", &response, out);
        }
        self.whole("response.in_progress", &response, out);
    }

    /// An event with the whole response.
    fn whole(&mut self, name: &str, response: &Value, out: &mut BytesMut) {
        self.put(name, json!({"response": response}), out);
    }

    fn put(&mut self, name: &str, mut event: Value, out: &mut BytesMut) {
        event["type"] = name.into();
        event["sequence_number"] = self.sequence.into();
        let start = out.len();
        let _ = write!(out, "event: {name}\ndata: {event}\n\n");
        self.sent(start, out);
    }

    fn sent(&mut self, start: usize, out: &BytesMut) {
        self.sequence += 1;
        if let (Some(recorder), true) = (&self.recorder, self.is_background) {
            recorder.event(&out[start..]);
        }
    }

    fn open_item(&mut self, index: usize, out: &mut BytesMut) {
        self.begin(out);
        self.close(true, out);
        self.open = Some(index);
        let item = &self.output.items[index];
        let (kind, id) = (item.kind, item.id.clone());
        let value = self.output.render(item, "in_progress");
        let event = json!({"output_index": index, "item": value});
        self.put("response.output_item.added", event, out);
        let part = match kind {
            ItemKind::Text => {
                json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []})
            }
            ItemKind::Refusal => json!({"type": "refusal", "refusal": ""}),
            ItemKind::Reasoning if self.output.shows_summary() => {
                let part = json!({"type": "summary_text", "text": ""});
                let event =
                    json!({"item_id": id, "output_index": index, "summary_index": 0, "part": part});
                return self.put("response.reasoning_summary_part.added", event, out);
            }
            ItemKind::Reasoning => json!({"type": "reasoning_text", "text": ""}),
            ItemKind::Function | ItemKind::Custom | ItemKind::Client(_) => return,
        };
        let event = json!({"item_id": id, "output_index": index, "content_index": 0, "part": part});
        self.put("response.content_part.added", event, out);
    }

    /// Ends the open item.
    fn close(&mut self, is_whole: bool, out: &mut BytesMut) {
        let Some(index) = self.open.take() else {
            return;
        };
        let item = &self.output.items[index];
        let (kind, id, part) = (item.kind, item.id.clone(), self.output.part(item));
        let text = item.argument();
        let status = if is_whole { "completed" } else { "incomplete" };
        let value = self.output.render(item, status);
        let place = |key: &str| {
            let mut event = json!({"item_id": id, "output_index": index});
            event[key] = 0.into();
            event
        };
        match kind {
            ItemKind::Text => {
                let mut event = place("content_index");
                event["text"] = text.into();
                event["logprobs"] = part["logprobs"].clone();
                self.put("response.output_text.done", event, out);
            }
            ItemKind::Refusal => {
                let mut event = place("content_index");
                event["refusal"] = text.into();
                self.put("response.refusal.done", event, out);
            }
            ItemKind::Reasoning => {
                let (name, key) = self.thinking("done");
                let mut event = place(key);
                event["text"] = text.into();
                self.put(name, event, out);
            }
            ItemKind::Function => {
                let name = value["name"].clone();
                let event =
                    json!({"item_id": id, "output_index": index, "name": name, "arguments": text});
                self.put("response.function_call_arguments.done", event, out);
            }
            // The item says it all.
            ItemKind::Client(_) => {}
            ItemKind::Custom => {
                let delta = json!({"item_id": id, "output_index": index, "delta": text});
                self.put("response.custom_tool_call_input.delta", delta, out);
                let event = json!({"item_id": id, "output_index": index, "input": text});
                self.put("response.custom_tool_call_input.done", event, out);
            }
        }
        let (name, key) = match kind {
            ItemKind::Reasoning if self.output.shows_summary() => {
                ("response.reasoning_summary_part.done", "summary_index")
            }
            _ => ("response.content_part.done", "content_index"),
        };
        let is_call = matches!(
            kind,
            ItemKind::Function | ItemKind::Custom | ItemKind::Client(_)
        );
        if !is_call {
            let mut event = place(key);
            event["part"] = part;
            self.put(name, event, out);
        }
        let event = json!({"output_index": index, "item": value});
        self.put("response.output_item.done", event, out);
    }

    /// The event of a thought, and its index.
    fn thinking(&self, end: &str) -> (&'static str, &'static str) {
        match (self.output.shows_summary(), end) {
            (true, "done") => ("response.reasoning_summary_text.done", "summary_index"),
            (true, _) => ("response.reasoning_summary_text.delta", "summary_index"),
            (false, "done") => ("response.reasoning_text.done", "content_index"),
            (false, _) => ("response.reasoning_text.delta", "content_index"),
        }
    }

    fn token(&mut self, token: &TokenEvent, out: &mut BytesMut) {
        let Some(ItemUpdate { index, is_new }) = self.output.token(token) else {
            return;
        };
        if is_new {
            self.open_item(index, out);
        }
        let (name, key) = match self.output.items[index].kind {
            ItemKind::Reasoning => self.thinking("delta"),
            ItemKind::Refusal => ("response.refusal.delta", "content_index"),
            _ => ("response.output_text.delta", "content_index"),
        };
        let logprobs = match name == "response.output_text.delta" {
            true if self.logprobs => Some(token.logprobs.iter().map(logprob).collect()),
            true => Some(json!([])),
            false => None,
        };
        self.delta((name, Some(key)), index, &token.text, logprobs, out);
    }

    fn call(&mut self, piece: &ToolCallEvent, out: &mut BytesMut) {
        let ItemUpdate { index, is_new } = self.output.call(piece);
        if is_new {
            self.open_item(index, out);
        }
        // The input of a custom tool is read from its arguments, which have to be whole.
        let is_function = self.output.items[index].kind == ItemKind::Function;
        if is_function && !piece.arguments.is_empty() {
            let name = "response.function_call_arguments.delta";
            self.delta((name, None), index, &piece.arguments, None, out);
        }
    }

    /// The event of every token: written without a value of its own.
    fn delta(
        &mut self,
        (name, part): (&str, Option<&str>),
        index: usize,
        text: &str,
        logprobs: Option<Value>,
        out: &mut BytesMut,
    ) {
        let start = out.len();
        let _ = write!(
            out,
            "event: {name}\ndata: {{\"type\":\"{name}\",\"sequence_number\":{},\"item_id\":\"{}\",\"output_index\":{index},",
            self.sequence, self.output.items[index].id,
        );
        if let Some(part) = part {
            let _ = write!(out, "\"{part}\":0,");
        }
        out.put_slice(b"\"delta\":\"");
        put_escaped(text, out);
        out.put_u8(b'"');
        if let Some(logprobs) = logprobs {
            let _ = write!(out, ",\"logprobs\":{logprobs}");
        }
        if self.obfuscation {
            let missing = FILLING.len() - (out.len() - start) % FILLING.len();
            let _ = write!(out, ",\"obfuscation\":\"{}\"", &FILLING[..missing]);
        }
        out.put_slice(b"}\n\n");
        self.sent(start, out);
    }

    fn ended(&self, response: &Value) {
        if let Some(recorder) = &self.recorder {
            recorder.ended(response);
        }
    }
}

impl StreamWriter for EventWriter {
    fn open(&mut self, _: u32, out: &mut BytesMut) {
        self.begin(out);
    }

    fn event(&mut self, _: u32, event: &Event, out: &mut BytesMut) {
        match event {
            Event::Token(token) => self.token(token, out),
            Event::ToolCall(piece) => self.call(piece, out),
            _ => {}
        }
    }

    fn end(&mut self, _: u32, ending: Ending, grid: &Grid, out: &mut BytesMut) {
        self.begin(out);
        let response = self.frame.ended(&self.output, &ending, grid);
        let is_whole = response["status"] == "completed";
        self.close(is_whole, out);
        let name = match is_whole {
            true => "response.completed",
            false => "response.incomplete",
        };
        self.whole(name, &response, out);
        // Before the event is sent: its client may ask for the stored response at once.
        self.ended(&response);
    }

    fn fail(&mut self, problem: &Problem, out: &mut BytesMut) {
        self.begin(out);
        let failure = &problem.failure;
        let response = self.frame.failed(&self.output, failure);
        self.whole("response.failed", &response, out);
        self.ended(&response);
        if !self.is_background {
            let body = problem.body();
            let event = json!({
                "code": failure.code(),
                "message": failure.message,
                "param": problem.param,
                "error": body["error"],
            });
            self.put("error", event, out);
        }
    }
}
