//! Ollama's API as a dialect.

use std::borrow::Cow;

use crate::job::{KeepAlive, TextInput};
use crate::openai::Problem;
use crate::openai::chat::{ChatRequest, Dialect, Head, ReplyBuilder, StreamWriter};

use super::answer::{Answer, LineWriter};
use super::fields::Door;

#[derive(Debug)]
pub struct OllamaDialect {
    pub(super) door: Door,
    /// The prompt is used without the chat template.
    pub(super) is_raw: bool,
    pub(super) keep_alive: Option<KeepAlive>,
}

impl Dialect for OllamaDialect {
    fn id_prefix(&self) -> &'static str {
        ""
    }

    fn content_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    /// The prompt as filters let it pass, in place of the chat that carried it.
    fn complete(&self, request: &mut ChatRequest) -> Result<(), Problem> {
        request.keep_alive = self.keep_alive;
        if let (true, TextInput::Chat(chat)) = (self.is_raw, &request.text.input) {
            let last = chat.messages.last();
            let text = last.and_then(|message| message["content"].as_str());
            request.text.input = TextInput::Prompt(text.unwrap_or_default().to_owned());
        }
        Ok(())
    }

    fn param<'a>(&self, chat: &'a str) -> Cow<'a, str> {
        match chat {
            "max_tokens" => "options.num_predict".into(),
            "repetition_penalty" => "options.repeat_penalty".into(),
            "enable_thinking" | "reasoning_effort" => "think".into(),
            "temperature" | "top_p" | "top_k" | "min_p" | "typical_p" | "seed" | "stop"
            | "presence_penalty" | "frequency_penalty" => format!("options.{chat}").into(),
            chat => match chat.strip_prefix("response_format.json_schema.schema") {
                Some(rest) => format!("format{rest}").into(),
                None if chat.starts_with("response_format") => "format".into(),
                None if self.door == Door::Generate && chat.starts_with("messages") => {
                    match chat.contains("image") {
                        true => "images".into(),
                        false => "prompt".into(),
                    }
                }
                None => chat.into(),
            },
        }
    }

    fn stream(&self, request: &ChatRequest, head: &Head) -> Box<dyn StreamWriter> {
        let logprobs = request.text.logprobs.is_some();
        Box::new(LineWriter::new(self.door, head, logprobs))
    }

    fn reply(&self, request: &ChatRequest, head: &Head) -> Box<dyn ReplyBuilder> {
        let logprobs = request.text.logprobs.is_some();
        Box::new(Answer::new(self.door, head, logprobs))
    }
}
