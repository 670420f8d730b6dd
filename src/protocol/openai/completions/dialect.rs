//! Completions as a dialect.

use std::borrow::Cow;

use crate::job::{Capabilities, TextInput};
use crate::openai::Problem;
use crate::openai::chat::{ChatRequest, Demand, Dialect, Head, ReplyBuilder, StreamWriter};

use super::chunks::CompletionChunks;
use super::echo::EchoSource;
use super::reply::CompletionReply;

#[derive(Debug)]
pub struct CompletionsDialect {
    /// Prompts given as token ids.
    pub(super) tokens: Option<Vec<Vec<u32>>>,
    /// The prompts, where each comes before its completions.
    pub(super) echoed: Vec<EchoSource>,
    /// Log probabilities of the prompts, too, with this many alternatives.
    pub(super) prompt_logprobs: Option<u32>,
    /// No output is requested.
    pub(super) only_prompt: bool,
    /// Choices of each prompt.
    pub(super) each: u32,
}

impl CompletionsDialect {
    /// The echo before the text of each choice.
    fn echoes(&self) -> Vec<EchoSource> {
        let repeated = |echo: &EchoSource| vec![echo.clone(); self.each as usize];
        self.echoed.iter().flat_map(repeated).collect()
    }
}

impl Dialect for CompletionsDialect {
    fn id_prefix(&self) -> &'static str {
        "cmpl-"
    }

    /// The prompts as filters let them pass, in place of the chat that carried them.
    fn complete(&self, request: &mut ChatRequest) -> Result<(), Problem> {
        let prompts: Vec<TextInput> = match (&self.tokens, &request.text.input) {
            (Some(lists), _) => lists.iter().cloned().map(TextInput::Tokens).collect(),
            (None, TextInput::Chat(chat)) => {
                let texts = chat.messages.iter();
                let texts = texts.map(|message| message["content"].as_str().unwrap_or_default());
                texts
                    .map(|text| TextInput::Prompt(text.to_owned()))
                    .collect()
            }
            (None, other) => vec![other.clone()],
        };
        if let Some(first) = prompts.first() {
            request.text.input = first.clone();
        }
        request.choices = u32::try_from(prompts.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(self.each);
        request.prompts = prompts;
        if self.prompt_logprobs.is_some() {
            request.text.prompt_logprobs = self.prompt_logprobs;
            request.demands.push(Demand {
                capability: Capabilities::PROMPT_LOGPROBS,
                param: "echo".into(),
            });
        }
        if self.only_prompt {
            request.text.max_tokens = Some(0);
        }
        Ok(())
    }

    fn unexamined(&self) -> Option<&'static str> {
        self.tokens.is_some().then_some("prompt")
    }

    fn param<'a>(&self, chat: &'a str) -> Cow<'a, str> {
        match chat {
            "messages" => "prompt".into(),
            "top_logprobs" => "logprobs".into(),
            chat => match chat
                .strip_prefix("messages")
                .and_then(|rest| rest.split_once(']'))
            {
                Some((index, _)) => format!("prompt{index}]").into(),
                None => chat.into(),
            },
        }
    }

    fn stream(&self, request: &ChatRequest, head: &Head) -> Box<dyn StreamWriter> {
        Box::new(CompletionChunks::new(request, head, self.echoes()))
    }

    fn reply(&self, request: &ChatRequest, head: &Head) -> Box<dyn ReplyBuilder> {
        Box::new(CompletionReply::new(request, head, self.echoes()))
    }
}
