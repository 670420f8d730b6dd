//! A public worker's message, passed on from its inference server, as events of its job. Signatures of reasoning are
//! left out, since the client gets this service's own.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::job::{Channel, Event, FinishReason, TokenEvent, ToolCallEvent, Usage};
use crate::openai::chat::{NativeEnd, NativeError, NativeReader};

/// Reads one message.
#[derive(Debug, Default)]
pub struct MessageReader {
    counts: Option<TokenCounts>,
    finish: Option<FinishReason>,
    calls: Vec<NativeCall>,
    error: Option<NativeError>,
}

/// A tool call, numbered by its place among the calls.
#[derive(Debug)]
struct NativeCall {
    /// The index of its block.
    block: u64,
    /// The initial input of the block, until a piece of it arrives.
    input: Option<Map<String, Value>>,
}

/// Tokens so far. Later events repeat some of the counts.
#[derive(Debug, Default, Clone, Copy)]
struct TokenCounts {
    input: u64,
    cache_read: u64,
    cache_written: u64,
    output: u64,
}

#[derive(Deserialize)]
struct EventTypeJson<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
}

#[derive(Deserialize)]
struct MessageStartJson {
    message: NativeMessageJson,
}

#[derive(Deserialize)]
struct NativeMessageJson {
    #[serde(default)]
    content: Vec<ContentBlockJson>,
    stop_reason: Option<String>,
    stop_sequence: Option<String>,
    usage: Option<MessageUsageJson>,
}

#[derive(Deserialize)]
struct BlockStartJson {
    index: u64,
    content_block: ContentBlockJson,
}

#[derive(Deserialize)]
struct ContentBlockJson {
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct BlockDeltaJson {
    index: u64,
    delta: ContentDeltaJson,
}

#[derive(Deserialize)]
struct ContentDeltaJson {
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    partial_json: Option<String>,
}

#[derive(Deserialize)]
struct BlockStopJson {
    index: u64,
}

#[derive(Deserialize)]
struct MessageDeltaJson {
    delta: MessageStopJson,
    usage: Option<MessageUsageJson>,
}

#[derive(Deserialize)]
struct MessageStopJson {
    stop_reason: Option<String>,
    stop_sequence: Option<String>,
}

#[derive(Deserialize)]
struct MessageUsageJson {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct ErrorEventJson {
    error: ErrorDetailJson,
}

#[derive(Deserialize)]
struct ErrorDetailJson {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    message: String,
}

impl NativeReader for MessageReader {
    fn event(&mut self, data: &str, out: &mut Vec<Event>) {
        if self.error.is_some() {
            return;
        }
        if let Err(error) = self.read(data, out) {
            self.fail(&error);
        } else if self.calls.len() > NativeError::MOST_ITEMS {
            self.error = Some(NativeError::endless());
        }
    }

    fn reply(&mut self, reply: &Value, out: &mut Vec<Event>) {
        match NativeMessageJson::deserialize(reply) {
            Ok(message) => self.message(message, out),
            Err(error) => self.fail(&error),
        }
    }

    fn end(self: Box<Self>) -> NativeEnd {
        NativeEnd {
            finish: self.finish,
            usage: self.counts.map(Usage::from),
            error: self.error,
        }
    }
}

impl MessageReader {
    fn read(&mut self, data: &str, out: &mut Vec<Event>) -> serde_json::Result<()> {
        let head: EventTypeJson<'_> = serde_json::from_str(data)?;
        match &*head.r#type {
            "message_start" => {
                let MessageStartJson { message } = serde_json::from_str(data)?;
                self.message(message, out);
            }
            "content_block_start" => {
                let start: BlockStartJson = serde_json::from_str(data)?;
                self.begin(start.index, start.content_block, out);
            }
            "content_block_delta" => {
                let BlockDeltaJson { index, delta } = serde_json::from_str(data)?;
                self.piece(index, delta, out);
            }
            "content_block_stop" => {
                let BlockStopJson { index } = serde_json::from_str(data)?;
                self.close(index, out);
            }
            "message_delta" => {
                let MessageDeltaJson { delta, usage } = serde_json::from_str(data)?;
                self.count(usage);
                self.stop(delta.stop_reason, delta.stop_sequence);
            }
            "error" => {
                let ErrorEventJson { error } = serde_json::from_str(data)?;
                self.error = Some(NativeError {
                    is_clients: error.r#type == "invalid_request_error",
                    message: error.message,
                });
            }
            // `ping`, `message_stop`, and events of newer versions.
            _ => {}
        }
        Ok(())
    }

    /// The whole message, or its beginning.
    fn message(&mut self, message: NativeMessageJson, out: &mut Vec<Event>) {
        if message.usage.is_some() {
            self.count(message.usage);
            let usage = Usage::from(self.counts.unwrap_or_default());
            out.push(Event::Started {
                prompt_tokens: usage.prompt_tokens,
                cached_tokens: usage.cached_tokens,
            });
        }
        if message.content.len() > NativeError::MOST_ITEMS {
            self.error = Some(NativeError::endless());
            return;
        }
        for (index, block) in (0..).zip(message.content) {
            self.begin(index, block, out);
            self.close(index, out);
        }
        self.stop(message.stop_reason, message.stop_sequence);
    }

    fn begin(&mut self, index: u64, block: ContentBlockJson, out: &mut Vec<Event>) {
        match &*block.r#type {
            "text" => say(Channel::Content, block.text, out),
            "thinking" => say(Channel::Reasoning, block.thinking, out),
            "tool_use" => {
                out.push(Event::ToolCall(ToolCallEvent {
                    index: u32::try_from(self.calls.len()).unwrap_or(u32::MAX),
                    id: block.id,
                    name: block.name,
                    ..ToolCallEvent::default()
                }));
                self.calls.push(NativeCall {
                    block: index,
                    input: Some(block.input.unwrap_or_default()),
                });
            }
            // Thoughts that are hidden, and blocks of tools that the server runs, which no request here can ask for.
            _ => {}
        }
    }

    fn piece(&mut self, block: u64, delta: ContentDeltaJson, out: &mut Vec<Event>) {
        match &*delta.r#type {
            "text_delta" => say(Channel::Content, delta.text, out),
            "thinking_delta" => say(Channel::Reasoning, delta.thinking, out),
            "input_json_delta" => {
                let piece = delta.partial_json.filter(|piece| !piece.is_empty());
                if let Some((index, call)) = self.call(block)
                    && let Some(piece) = piece
                {
                    call.input = None;
                    out.push(arguments(index, piece));
                }
            }
            _ => {}
        }
    }

    /// Some servers send the input of a call with its beginning.
    fn close(&mut self, block: u64, out: &mut Vec<Event>) {
        if let Some((index, call)) = self.call(block)
            && let Some(input) = call.input.take()
        {
            out.push(arguments(index, Value::Object(input).to_string()));
        }
    }

    fn call(&mut self, block: u64) -> Option<(u32, &mut NativeCall)> {
        // Some servers use an index again: the last block is meant.
        let place = self.calls.iter().rposition(|call| call.block == block)?;
        Some((
            u32::try_from(place).unwrap_or(u32::MAX),
            &mut self.calls[place],
        ))
    }

    fn count(&mut self, usage: Option<MessageUsageJson>) {
        let Some(usage) = usage else { return };
        let counts = self.counts.get_or_insert_default();
        let told = [
            (&mut counts.input, usage.input_tokens),
            (&mut counts.cache_read, usage.cache_read_input_tokens),
            (&mut counts.cache_written, usage.cache_creation_input_tokens),
            (&mut counts.output, usage.output_tokens),
        ];
        for (count, told) in told {
            *count = told.unwrap_or(*count);
        }
    }

    fn stop(&mut self, reason: Option<String>, sequence: Option<String>) {
        let Some(reason) = reason else { return };
        self.finish = Some(match (&*reason, sequence) {
            ("max_tokens" | "model_context_window_exceeded", _) => FinishReason::Length,
            ("tool_use", _) => FinishReason::ToolCalls,
            ("refusal", _) => FinishReason::ContentFilter,
            ("stop_sequence", Some(stop)) => FinishReason::StopString(stop.into()),
            _ => FinishReason::Stop,
        });
    }

    fn fail(&mut self, error: &serde_json::Error) {
        self.error = Some(NativeError::unreadable(error));
    }
}

fn say(channel: Channel, text: Option<String>, out: &mut Vec<Event>) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        out.push(Event::Token(TokenEvent {
            channel,
            text,
            ..TokenEvent::default()
        }));
    }
}

fn arguments(index: u32, arguments: String) -> Event {
    Event::ToolCall(ToolCallEvent {
        index,
        arguments,
        ..ToolCallEvent::default()
    })
}

impl From<TokenCounts> for Usage {
    fn from(counts: TokenCounts) -> Self {
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        // Anthropic counts tokens read from a cache, or written to it, apart from the rest of the prompt.
        let apart = counts.cache_read.saturating_add(counts.cache_written);
        Self {
            prompt_tokens: number(counts.input.saturating_add(apart)),
            cached_tokens: number(counts.cache_read),
            completion_tokens: number(counts.output),
            reasoning_tokens: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::MessageReader;
    use crate::job::{Channel, Event, FinishReason, TokenEvent, ToolCallEvent, Usage};
    use crate::openai::chat::{NativeEnd, NativeError, NativeReader};

    fn read(events: &[Value]) -> (Vec<Event>, NativeEnd) {
        let (mut reader, mut out) = (Box::new(MessageReader::default()), Vec::new());
        for event in events {
            reader.event(&event.to_string(), &mut out);
        }
        (out, reader.end())
    }

    fn said(channel: Channel, text: &str) -> Event {
        Event::Token(TokenEvent {
            channel,
            text: text.to_owned(),
            ..TokenEvent::default()
        })
    }

    fn piece(index: u32, arguments: &str) -> Event {
        super::arguments(index, arguments.to_owned())
    }

    fn call(index: u32, id: &str, name: &str) -> Event {
        Event::ToolCall(ToolCallEvent {
            index,
            id: Some(id.to_owned()),
            name: Some(name.to_owned()),
            ..ToolCallEvent::default()
        })
    }

    fn block(index: u32, block: Value) -> Value {
        json!({"type": "content_block_start", "index": index, "content_block": block})
    }

    fn delta(index: u32, delta: Value) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    }

    fn stop(index: u32) -> Value {
        json!({"type": "content_block_stop", "index": index})
    }

    const USAGE: Usage = Usage {
        prompt_tokens: 15,
        cached_tokens: 4,
        completion_tokens: 9,
        reasoning_tokens: 0,
    };

    #[test]
    fn a_stream_becomes_text_thoughts_and_calls() {
        let usage = json!({"input_tokens": 10, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1, "output_tokens": 1});
        let (events, end) = read(&[
            json!({"type": "message_start", "message": {"id": "m", "content": [], "stop_reason": null, "usage": usage}}),
            json!({"type": "ping"}),
            block(
                0,
                json!({"type": "thinking", "thinking": "", "signature": ""}),
            ),
            delta(0, json!({"type": "thinking_delta", "thinking": "hm"})),
            delta(0, json!({"type": "signature_delta", "signature": "x"})),
            stop(0),
            block(1, json!({"type": "text", "text": ""})),
            delta(1, json!({"type": "text_delta", "text": "Hey"})),
            stop(1),
            block(
                2,
                json!({"type": "tool_use", "id": "t1", "name": "look", "input": {}}),
            ),
            delta(2, json!({"type": "input_json_delta", "partial_json": ""})),
            delta(
                2,
                json!({"type": "input_json_delta", "partial_json": "{\"at\""}),
            ),
            delta(
                2,
                json!({"type": "input_json_delta", "partial_json": ":1}"}),
            ),
            stop(2),
            block(
                3,
                json!({"type": "tool_use", "id": "t2", "name": "look", "input": {}}),
            ),
            stop(3),
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 9}}),
            json!({"type": "message_stop"}),
        ]);
        let expected = [
            Event::Started {
                prompt_tokens: 15,
                cached_tokens: 4,
            },
            said(Channel::Reasoning, "hm"),
            said(Channel::Content, "Hey"),
            call(0, "t1", "look"),
            piece(0, "{\"at\""),
            piece(0, ":1}"),
            call(1, "t2", "look"),
            piece(1, "{}"),
        ];
        assert_eq!(events, expected);
        assert_eq!(end.finish, Some(FinishReason::ToolCalls));
        assert_eq!((end.usage, end.error), (Some(USAGE), None));
    }

    #[test]
    fn a_reply_in_one_piece_becomes_the_same_events() {
        let reply = json!({
            "type": "message", "stop_reason": "stop_sequence", "stop_sequence": "x",
            "content": [
                {"type": "redacted_thinking", "data": "?"},
                {"type": "text", "text": "Hey"},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}},
            ],
            "usage": {"input_tokens": 11, "cache_read_input_tokens": 4, "output_tokens": 9},
        });
        let (mut reader, mut events) = (Box::new(MessageReader::default()), Vec::new());
        reader.reply(&reply, &mut events);
        let expected = [
            said(Channel::Content, "Hey"),
            call(0, "t1", "look"),
            piece(0, "{\"at\":1}"),
        ];
        assert_eq!(events[1..], expected);
        let end = reader.end();
        assert_eq!(end.finish, Some(FinishReason::StopString("x".into())));
        assert_eq!(end.usage, Some(USAGE));
    }

    #[test]
    fn a_message_of_too_many_blocks_is_an_error() {
        let block = json!({"type": "tool_use", "id": "t", "name": "f", "input": {}});
        let blocks = vec![block; NativeError::MOST_ITEMS + 1];
        let message = json!({"type": "message_start", "message": {"content": blocks}});
        let (events, end) = read(&[message]);
        assert!(events.is_empty() && end.error.is_some());
    }

    #[test]
    fn every_stop_reason_has_its_finish() {
        let check = |reason: &str, expected: FinishReason| {
            let event = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
            assert_eq!(read(&[event]).1.finish, Some(expected), "{reason}");
        };
        check("end_turn", FinishReason::Stop);
        check("max_tokens", FinishReason::Length);
        check("refusal", FinishReason::ContentFilter);
        check("something_new", FinishReason::Stop);
        let event = json!({"type": "message_delta", "delta": {"stop_reason": null}});
        assert_eq!(read(&[event]).1, NativeEnd::default());
    }

    #[test]
    fn an_error_or_an_event_that_cannot_be_read_ends_the_reply() {
        let text = delta(0, json!({"type": "text_delta", "text": "more"}));
        let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "no"}});
        let failed = |event: Value| {
            let (events, end) = read(&[event, text.clone()]);
            assert_eq!(events, []);
            end.error.unwrap()
        };
        assert!(failed(error("invalid_request_error")).is_clients);
        assert!(!failed(error("overloaded_error")).is_clients);
        let unreadable = failed(json!({"type": "content_block_delta", "delta": 1}));
        assert!(unreadable.message.contains("cannot be read"));
        let (events, end) = read(&[json!({"type": "of_next_year", "delta": 1}), text.clone()]);
        assert_eq!((events.len(), end.error), (1, None));
    }
}
