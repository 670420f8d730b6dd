//! A JSON reply, gathered from the events of all choices.

use serde_json::{Map, Value, json};

use crate::job::{Channel, Event, FinishReason, TokenEvent, ToolCallEvent};
use crate::openai::chat::ReplyBuilder;

use super::head::{FINGERPRINT, finish_word};
use super::usage::{Total, logprob};
use super::{CallStyle, ChatRequest, Ending, Grid, Head};

/// The reply while it grows.
#[derive(Debug)]
pub struct Reply {
    choices: Vec<Growing>,
    total: Total,
    style: CallStyle,
    hides_reasoning: bool,
    extras: Map<String, Value>,
    id: String,
}

#[derive(Debug, Default)]
struct Growing {
    content: String,
    reasoning: String,
    refusal: String,
    calls: Vec<Call>,
    /// For content and for refusal, if requested.
    logprobs: Option<[Vec<Value>; 2]>,
    finish: Option<FinishReason>,
}

#[derive(Debug, Default)]
struct Call {
    index: u32,
    id: Option<String>,
    name: String,
    arguments: String,
}

impl Reply {
    pub fn new(request: &ChatRequest, head: &Head) -> Self {
        let wants_logprobs = request.text.logprobs.is_some();
        let growing = || Growing {
            logprobs: wants_logprobs.then(Default::default),
            ..Growing::default()
        };
        let mut extras = Map::new();
        extras.insert("id".to_owned(), head.id.as_str().into());
        extras.insert("object".to_owned(), "chat.completion".into());
        extras.insert("created".to_owned(), head.created.into());
        extras.insert("model".to_owned(), (&*head.model).into());
        extras.insert("system_fingerprint".to_owned(), FINGERPRINT.into());
        if let Some(tier) = request.tier() {
            extras.insert("service_tier".to_owned(), tier.into());
        }
        if let Some(metadata) = &request.metadata {
            extras.insert("metadata".to_owned(), Value::Object(metadata.clone()));
        }
        Self {
            choices: (0..request.choices).map(|_| growing()).collect(),
            total: Total::default(),
            style: request.calls,
            hides_reasoning: request.hides_reasoning,
            extras,
            id: head.id.clone(),
        }
    }
}

impl ReplyBuilder for Reply {
    fn event(&mut self, choice: u32, event: Event) {
        let Some(growing) = self.choices.get_mut(choice as usize) else {
            return;
        };
        match event {
            Event::Token(token) if self.hides_reasoning && token.channel == Channel::Reasoning => {}
            Event::Token(token) => growing.token(token),
            Event::ToolCall(piece) => growing.call(piece),
            _ => {}
        }
    }

    /// Drops the output of a restarted choice.
    fn restart(&mut self, choice: u32) {
        if let Some(growing) = self.choices.get_mut(choice as usize) {
            *growing = Growing {
                logprobs: growing.logprobs.is_some().then(Default::default),
                ..Growing::default()
            };
        }
    }

    fn end(&mut self, choice: u32, ending: Ending) {
        self.total.add(ending.usage);
        if let Some(growing) = self.choices.get_mut(choice as usize) {
            growing.finish = Some(ending.finish);
        }
    }

    fn render(self: Box<Self>, grid: &Grid) -> Value {
        let mut reply = self.extras;
        let (style, id) = (self.style, self.id);
        let choices = self.choices.into_iter().enumerate();
        let choices: Vec<_> = choices
            .map(|(index, choice)| choice.render(index, style, &id))
            .collect();
        reply.insert("choices".to_owned(), choices.into());
        reply.insert("usage".to_owned(), self.total.body());
        reply.insert("grid".to_owned(), grid.body());
        Value::Object(reply)
    }
}

impl Growing {
    fn token(&mut self, token: TokenEvent) {
        let (text, list) = match token.channel {
            Channel::Content => (&mut self.content, Some(0)),
            Channel::Refusal => (&mut self.refusal, Some(1)),
            Channel::Reasoning => (&mut self.reasoning, None),
        };
        text.push_str(&token.text);
        if let (Some(logprobs), Some(list)) = (&mut self.logprobs, list) {
            logprobs[list].extend(token.logprobs.iter().map(logprob));
        }
    }

    fn call(&mut self, piece: ToolCallEvent) {
        let known = self.calls.iter().position(|call| call.index == piece.index);
        let place = known.unwrap_or_else(|| {
            self.calls.push(Call {
                index: piece.index,
                ..Call::default()
            });
            self.calls.len() - 1
        });
        let call = &mut self.calls[place];
        call.id = piece.id.or(call.id.take());
        call.name
            .push_str(piece.name.as_deref().unwrap_or_default());
        call.arguments.push_str(&piece.arguments);
    }

    fn render(self, index: usize, style: CallStyle, reply: &str) -> Value {
        let has_calls = !self.calls.is_empty();
        let finish = self.finish.unwrap_or(FinishReason::Stop);
        let text = |text: String| (!text.is_empty()).then_some(text);
        // Empty is a text too, where there is nothing else.
        let content = if has_calls || !self.refusal.is_empty() {
            text(self.content)
        } else {
            Some(self.content)
        };
        let mut message = json!({
            "role": "assistant",
            "content": content,
            "refusal": text(self.refusal),
        });
        if let Some(reasoning) = text(self.reasoning) {
            message["reasoning_content"] = reasoning.into();
        }
        if has_calls {
            let (key, value) = calls(self.calls, style, reply, index);
            message[key] = value;
        }
        let logprobs = self.logprobs.map(|[content, refusal]| {
            let refusal = (!refusal.is_empty()).then_some(refusal);
            json!({"content": content, "refusal": refusal})
        });
        json!({
            "index": index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": finish_word(&finish, has_calls, style),
        })
    }
}

fn calls(calls: Vec<Call>, style: CallStyle, reply: &str, choice: usize) -> (&'static str, Value) {
    let function = |call: &Call| json!({"name": call.name, "arguments": call.arguments});
    match style {
        CallStyle::Function => ("function_call", calls.first().map(function).into()),
        CallStyle::Tools => {
            let calls = calls.iter().map(|call| {
                let made_up = || call_id(reply, choice, call.index);
                let id = call.id.clone().unwrap_or_else(made_up);
                json!({"id": id, "type": "function", "function": function(call)})
            });
            ("tool_calls", calls.collect())
        }
    }
}

/// For a worker that gave its call no id.
pub fn call_id(reply: &str, choice: usize, index: u32) -> String {
    let unique = reply.trim_start_matches("chatcmpl-");
    format!("call_{unique}_{choice}_{index}")
}
