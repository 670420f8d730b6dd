//! The Responses API as a dialect.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::job::Formats;
use crate::openai::chat::{ChatRequest, Dialect, Head, ReplyBuilder, StreamWriter};

use super::intent::ID_PREFIX;
use super::items::Place;
use super::output::OutputOptions;
use super::reply::ResponseBuilder;
use super::response::Frame;
use super::stream::EventWriter;

/// Keeps a response while it is written, and after it.
pub trait Recorder: fmt::Debug + Send + Sync {
    /// The response's jobs are queued; called again with the next model if the first could not serve it.
    fn began(&self, response: &Value);

    /// An event of its stream, as sent.
    fn event(&self, event: &[u8]);

    /// The response as it ended.
    fn ended(&self, response: &Value);
}

/// Makes thoughts unreadable to clients, and readable again for the account that got them.
pub trait Sealer: fmt::Debug + Send + Sync {
    fn seal(&self, thinking: &str) -> String;

    /// None if another account got it, or it was changed.
    fn open(&self, sealed: &str) -> Option<String>;
}

#[derive(Debug)]
pub struct ResponsesDialect {
    /// The source of each chat message.
    pub(super) places: Vec<Place>,
    /// The source of each tool of the chat body.
    pub(super) tool_places: Vec<String>,
    /// The response's fields that repeat the request.
    pub(super) echo: Value,
    pub(super) output: OutputOptions,
    pub(super) recorder: Option<Arc<dyn Recorder>>,
    pub(super) is_background: bool,
    pub(super) obfuscation: bool,
}

impl ResponsesDialect {
    fn frame(&self, head: &Head) -> Frame {
        Frame::new(head, &self.echo)
    }

    fn message(&self, rest: &str) -> Option<String> {
        let (index, _) = rest.split_once(']')?;
        Some(match self.places.get(index.parse::<usize>().ok()?)? {
            Place::Instructions => "instructions".to_owned(),
            Place::Previous => "previous_response_id".to_owned(),
            Place::Input(None) => "input".to_owned(),
            Place::Input(Some(index)) => format!("input[{index}]"),
        })
    }
}

impl Dialect for ResponsesDialect {
    fn id_prefix(&self) -> &'static str {
        ID_PREFIX
    }

    fn native_format(&self) -> Option<Formats> {
        Some(Formats::OPENAI_RESPONSES)
    }

    fn param<'a>(&self, chat: &'a str) -> Cow<'a, str> {
        if let Some(name) = chat
            .strip_prefix("messages[")
            .and_then(|rest| self.message(rest))
        {
            return name.into();
        }
        if let Some(rest) = chat.strip_prefix("tools[") {
            let place = rest.split_once(']').and_then(|(index, rest)| {
                Some((self.tool_places.get(index.parse::<usize>().ok()?)?, rest))
            });
            return match place {
                Some((place, rest)) => format!("{place}{}", rest.replacen("function.", "", 1)),
                None => chat.replacen("function.", "", 1),
            }
            .into();
        }
        match chat {
            "messages" => "input".into(),
            "max_tokens" | "max_completion_tokens" => "max_output_tokens".into(),
            "reasoning_effort" | "enable_thinking" => "reasoning.effort".into(),
            "logprobs" => "include".into(),
            "verbosity" => "text.verbosity".into(),
            "tool_choice.function.name" => "tool_choice.name".into(),
            chat => match chat.strip_prefix("response_format.json_schema") {
                Some(rest) => format!("text.format{rest}").into(),
                None if chat.starts_with("response_format") => "text.format".into(),
                None => chat.into(),
            },
        }
    }

    fn stream(&self, _: &ChatRequest, head: &Head) -> Box<dyn StreamWriter> {
        let mut writer = EventWriter::new(self.frame(head), self.output.clone());
        writer.obfuscation = self.obfuscation;
        writer.record(self.recorder.clone(), self.is_background);
        Box::new(writer)
    }

    fn reply(&self, _: &ChatRequest, head: &Head) -> Box<dyn ReplyBuilder> {
        let recorder = self.recorder.clone();
        if let Some(recorder) = &recorder {
            recorder.began(&self.frame(head).in_progress());
        }
        Box::new(ResponseBuilder::new(
            self.frame(head),
            self.output.clone(),
            recorder,
        ))
    }
}
