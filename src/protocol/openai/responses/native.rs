//! A response that a public worker passes on from its inference server, as events of its job.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::job::{Channel, Event, FinishReason, TokenEvent, ToolCallEvent, Usage};
use crate::openai::chat::{NativeEnd, NativeError, NativeReader};

/// Reads one response.
#[derive(Debug, Default)]
pub struct ResponseReader {
    items: Vec<NativeItem>,
    calls: u32,
    /// Reasoning comes as a text, as a summary, or as both: the first counts.
    thoughts: Option<Thoughts>,
    end: NativeEnd,
}

/// An output item that has begun.
#[derive(Debug)]
struct NativeItem {
    output_index: u64,
    /// The place among the calls.
    call: Option<u32>,
    has_text: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thoughts {
    Text,
    Summary,
}

#[derive(Deserialize)]
struct NativeTypeJson<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ItemEventJson {
    output_index: u64,
    item: OutputItemJson,
}

#[derive(Deserialize)]
struct TextEventJson {
    output_index: u64,
    delta: String,
}

#[derive(Deserialize)]
struct ResponseEventJson {
    response: NativeResponseJson,
}

#[derive(Deserialize)]
struct FailureEventJson {
    code: Option<String>,
    message: Option<String>,
    error: Option<ResponseErrorJson>,
}

#[derive(Deserialize)]
struct NativeResponseJson {
    #[serde(default)]
    status: String,
    #[serde(default)]
    output: Vec<OutputItemJson>,
    error: Option<ResponseErrorJson>,
    incomplete_details: Option<IncompleteJson>,
    usage: Option<ResponseUsageJson>,
}

#[derive(Deserialize)]
struct ResponseErrorJson {
    code: Option<String>,
    r#type: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
struct IncompleteJson {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct OutputItemJson {
    r#type: String,
    content: Option<Vec<OutputPartJson>>,
    summary: Option<Vec<OutputPartJson>>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct OutputPartJson {
    r#type: String,
    text: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct ResponseUsageJson {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetailsJson>,
    output_tokens_details: Option<OutputDetailsJson>,
}

#[derive(Deserialize)]
struct InputDetailsJson {
    cached_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct OutputDetailsJson {
    reasoning_tokens: Option<u64>,
}

impl NativeReader for ResponseReader {
    fn event(&mut self, data: &str, out: &mut Vec<Event>) {
        if self.end.error.is_some() {
            return;
        }
        if let Err(error) = self.read(data, out) {
            self.unreadable(&error);
        } else if self.items.len() > NativeError::MOST_ITEMS {
            self.end.error = Some(NativeError::endless());
        }
    }

    fn reply(&mut self, reply: &Value, out: &mut Vec<Event>) {
        match NativeResponseJson::deserialize(reply) {
            Ok(response) => self.ended(response, out),
            Err(error) => self.unreadable(&error),
        }
    }

    fn end(self: Box<Self>) -> NativeEnd {
        self.end
    }
}

impl ResponseReader {
    fn read(&mut self, data: &str, out: &mut Vec<Event>) -> serde_json::Result<()> {
        let head: NativeTypeJson<'_> = serde_json::from_str(data)?;
        let text = |channel| serde_json::from_str(data).map(|text: TextEventJson| (channel, text));
        match &*head.r#type {
            "response.output_item.added" => {
                let ItemEventJson { output_index, item } = serde_json::from_str(data)?;
                self.begin(output_index, &item, out);
            }
            "response.output_item.done" => {
                let ItemEventJson { output_index, item } = serde_json::from_str(data)?;
                self.whole(output_index, item, out);
            }
            "response.output_text.delta" => self.text(text(Channel::Content)?, out),
            "response.refusal.delta" => self.text(text(Channel::Refusal)?, out),
            "response.reasoning_text.delta" if self.takes(Thoughts::Text) => {
                self.text(text(Channel::Reasoning)?, out);
            }
            "response.reasoning_summary_text.delta" if self.takes(Thoughts::Summary) => {
                self.text(text(Channel::Reasoning)?, out);
            }
            "response.function_call_arguments.delta" => {
                let TextEventJson {
                    output_index,
                    delta,
                } = serde_json::from_str(data)?;
                self.arguments(output_index, delta, out);
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                let ResponseEventJson { response } = serde_json::from_str(data)?;
                self.ended(response, out);
            }
            "error" => {
                let FailureEventJson {
                    code,
                    message,
                    error,
                } = serde_json::from_str(data)?;
                let error = error.unwrap_or(ResponseErrorJson {
                    code,
                    message,
                    r#type: None,
                });
                self.failed(error);
            }
            // Events that repeat these, and those of newer versions, are ignored.
            _ => {}
        }
        Ok(())
    }

    fn takes(&mut self, thoughts: Thoughts) -> bool {
        *self.thoughts.get_or_insert(thoughts) == thoughts
    }

    fn item(&mut self, output_index: u64) -> &mut NativeItem {
        let known = self.items.iter();
        let known = known
            .enumerate()
            .find(|(_, item)| item.output_index == output_index);
        let place = match known {
            Some((place, _)) => place,
            None => {
                self.items.push(NativeItem {
                    output_index,
                    call: None,
                    has_text: false,
                });
                self.items.len() - 1
            }
        };
        &mut self.items[place]
    }

    fn begin(&mut self, output_index: u64, item: &OutputItemJson, out: &mut Vec<Event>) {
        let calls = self.calls;
        let known = self.item(output_index);
        if item.r#type == "function_call" && known.call.is_none() {
            known.call = Some(calls);
            self.calls += 1;
            out.push(Event::ToolCall(ToolCallEvent {
                index: calls,
                id: item.call_id.clone(),
                name: item.name.clone(),
                ..ToolCallEvent::default()
            }));
        }
    }

    fn text(&mut self, (channel, event): (Channel, TextEventJson), out: &mut Vec<Event>) {
        self.item(event.output_index).has_text = true;
        say(channel, event.delta, out);
    }

    fn arguments(&mut self, output_index: u64, arguments: String, out: &mut Vec<Event>) {
        let item = self.item(output_index);
        if let Some(index) = item.call.filter(|_| !arguments.is_empty()) {
            item.has_text = true;
            out.push(Event::ToolCall(ToolCallEvent {
                index,
                arguments,
                ..ToolCallEvent::default()
            }));
        }
    }

    /// Some servers send an item in one piece.
    fn whole(&mut self, output_index: u64, item: OutputItemJson, out: &mut Vec<Event>) {
        self.begin(output_index, &item, out);
        if self.item(output_index).has_text {
            return;
        }
        self.item(output_index).has_text = true;
        match &*item.r#type {
            "function_call" => {
                let arguments = item.arguments.unwrap_or_default();
                self.arguments(output_index, arguments, out);
            }
            "reasoning" => {
                let content = item.content.filter(|parts| !parts.is_empty());
                for part in content.or(item.summary).into_iter().flatten() {
                    say(Channel::Reasoning, part.text.unwrap_or_default(), out);
                }
            }
            "message" => {
                for part in item.content.into_iter().flatten() {
                    match &*part.r#type {
                        "refusal" => say(Channel::Refusal, part.refusal.unwrap_or_default(), out),
                        _ => say(Channel::Content, part.text.unwrap_or_default(), out),
                    }
                }
            }
            // Tools that the server runs: no request here can ask for them.
            _ => {}
        }
    }

    fn ended(&mut self, response: NativeResponseJson, out: &mut Vec<Event>) {
        if response.output.len() > NativeError::MOST_ITEMS {
            self.end.error = Some(NativeError::endless());
            return;
        }
        for (index, item) in (0..).zip(response.output) {
            self.whole(index, item, out);
        }
        self.end.usage = response.usage.map(Usage::from);
        let reason = response.incomplete_details.and_then(|it| it.reason);
        self.end.finish = Some(match (&*response.status, reason.as_deref()) {
            ("incomplete", Some("content_filter")) => FinishReason::ContentFilter,
            ("incomplete", _) => FinishReason::Length,
            _ if self.calls > 0 => FinishReason::ToolCalls,
            _ => FinishReason::Stop,
        });
        if response.status == "failed" {
            self.failed(response.error.unwrap_or(ResponseErrorJson {
                code: None,
                r#type: None,
                message: None,
            }));
        }
    }

    fn failed(&mut self, error: ResponseErrorJson) {
        let words = [error.code.as_deref(), error.r#type.as_deref()];
        let is_clients = |word: &str| word.starts_with("invalid_");
        self.end.error = Some(NativeError {
            is_clients: words.into_iter().flatten().any(is_clients),
            message: error.message.unwrap_or_default(),
        });
    }

    fn unreadable(&mut self, error: &serde_json::Error) {
        self.end.error = Some(NativeError::unreadable(error));
    }
}

fn say(channel: Channel, text: String, out: &mut Vec<Event>) {
    if !text.is_empty() {
        out.push(Event::Token(TokenEvent {
            channel,
            text,
            ..TokenEvent::default()
        }));
    }
}

impl From<ResponseUsageJson> for Usage {
    fn from(usage: ResponseUsageJson) -> Self {
        let number = |count: Option<u64>| u32::try_from(count.unwrap_or(0)).unwrap_or(u32::MAX);
        let cached = usage.input_tokens_details.and_then(|it| it.cached_tokens);
        let reasoning = usage
            .output_tokens_details
            .and_then(|it| it.reasoning_tokens);
        Self {
            prompt_tokens: number(usage.input_tokens),
            cached_tokens: number(cached),
            completion_tokens: number(usage.output_tokens),
            reasoning_tokens: number(reasoning),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ResponseReader;
    use crate::job::{Channel, Event, FinishReason, TokenEvent, ToolCallEvent, Usage};
    use crate::openai::chat::{NativeEnd, NativeReader};

    fn read(events: &[Value]) -> (Vec<Event>, NativeEnd) {
        let (mut reader, mut out) = (Box::new(ResponseReader::default()), Vec::new());
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

    fn piece(arguments: &str) -> Event {
        Event::ToolCall(ToolCallEvent {
            arguments: arguments.to_owned(),
            ..ToolCallEvent::default()
        })
    }

    fn call() -> Event {
        Event::ToolCall(ToolCallEvent {
            id: Some("call_1".to_owned()),
            name: Some("look".to_owned()),
            ..ToolCallEvent::default()
        })
    }

    fn delta(kind: &str, output_index: u32, delta: &str) -> Value {
        json!({"type": format!("response.{kind}.delta"), "output_index": output_index, "delta": delta})
    }

    fn added(output_index: u32, item: &Value) -> Value {
        json!({"type": "response.output_item.added", "output_index": output_index, "item": item})
    }

    fn function(arguments: &str) -> Value {
        json!({"type": "function_call", "call_id": "call_1", "name": "look", "arguments": arguments})
    }

    fn text() -> Value {
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hey"}]})
    }

    fn usage() -> Value {
        json!({"input_tokens": 11, "output_tokens": 6, "total_tokens": 17,
            "input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {"reasoning_tokens": 1}})
    }

    const USAGE: Usage = Usage {
        prompt_tokens: 11,
        cached_tokens: 4,
        completion_tokens: 6,
        reasoning_tokens: 1,
    };

    #[test]
    fn a_stream_becomes_text_thoughts_and_calls() {
        let done = json!({"type": "response.completed", "response": {"status": "completed", "usage": usage(),
            "output": [{"type": "reasoning", "summary": []}, text(), function("{\"at\":1}")]}});
        let (events, end) = read(&[
            json!({"type": "response.created", "response": {"status": "in_progress", "usage": null}}),
            added(0, &json!({"type": "reasoning", "summary": []})),
            delta("reasoning_text", 0, "hm"),
            delta("reasoning_summary_text", 0, "a hm"),
            added(
                1,
                &json!({"type": "message", "role": "assistant", "content": []}),
            ),
            delta("output_text", 1, "He"),
            delta("output_text", 1, "y"),
            added(2, &function("")),
            delta("function_call_arguments", 2, "{\"at\":"),
            delta("function_call_arguments", 2, "1}"),
            json!({"type": "response.output_item.done", "output_index": 2, "item": function("{\"at\":1}")}),
            done,
        ]);
        let expected = [
            said(Channel::Reasoning, "hm"),
            said(Channel::Content, "He"),
            said(Channel::Content, "y"),
            call(),
            piece("{\"at\":"),
            piece("1}"),
        ];
        assert_eq!(events, expected);
        assert_eq!(end.finish, Some(FinishReason::ToolCalls));
        assert_eq!((end.usage, end.error), (Some(USAGE), None));
    }

    #[test]
    fn a_reply_in_one_piece_becomes_the_same_events() {
        let reply = json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"},
            "usage": usage(), "output": [text(), function("{}")]});
        let (mut reader, mut events) = (Box::new(ResponseReader::default()), Vec::new());
        reader.reply(&reply, &mut events);
        assert_eq!(events, [said(Channel::Content, "Hey"), call(), piece("{}")]);
        let end = reader.end();
        assert_eq!(
            (end.finish, end.usage),
            (Some(FinishReason::Length), Some(USAGE))
        );
    }

    #[test]
    fn an_error_ends_the_reply() {
        let failed = |event: Value| read(&[event, delta("output_text", 0, "more")]);
        let response =
            json!({"status": "failed", "error": {"code": "server_error", "message": "no"}});
        let (events, end) = failed(json!({"type": "response.failed", "response": response}));
        let error = end.error.unwrap();
        assert_eq!(
            (&*error.message, error.is_clients, events.len()),
            ("no", false, 0)
        );
        let (_, end) = failed(json!({"type": "error", "code": "invalid_prompt", "message": "bad"}));
        assert!(end.error.unwrap().is_clients);
        let items: Vec<_> = (0..2000)
            .map(|index| delta("output_text", index, ""))
            .collect();
        assert!(read(&items).1.error.is_some(), "each is found by its index");
        let (_, end) = failed(json!({"type": "response.output_text.delta", "delta": 1}));
        assert!(end.error.unwrap().message.contains("cannot be read"));
    }
}
