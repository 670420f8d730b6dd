//! A complete reply.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::job::{Event, FinishReason, PromptLogprobs, TokenEvent};
use crate::openai::chat::{CallStyle, ChatRequest, Ending, Grid, Head, ReplyBuilder, finish_word};

use super::echo::{Echo, EchoSource};
use super::logprobs::{Characters, Logprobs};
use super::usage::PromptUsage;

#[derive(Debug)]
pub struct CompletionReply {
    id: String,
    created: i64,
    model: Arc<str>,
    choices: Vec<Completion>,
    echoes: Vec<EchoSource>,
    wants_logprobs: bool,
    usage: PromptUsage,
}

#[derive(Debug, Default)]
struct Completion {
    echo: Echo,
    /// For the prompt, if its tokens tell it.
    characters: Characters,
    text: String,
    logprobs: Logprobs,
    finish: Option<FinishReason>,
}

impl CompletionReply {
    pub fn new(request: &ChatRequest, head: &Head, echoes: Vec<EchoSource>) -> Self {
        let choices = (0..request.choices).map(|choice| Completion::of(&echoes, choice));
        Self {
            id: head.id.clone(),
            created: head.created,
            model: Arc::clone(&head.model),
            choices: choices.collect(),
            echoes,
            wants_logprobs: request.text.logprobs.is_some(),
            usage: PromptUsage::new(request),
        }
    }
}

impl Completion {
    fn of(echoes: &[EchoSource], choice: u32) -> Self {
        let source = echoes.get(choice as usize).cloned().unwrap_or_default();
        let echo = Echo::from(source);
        Self {
            text: echo.text().to_owned(),
            logprobs: echo.logprobs(),
            echo,
            ..Self::default()
        }
    }

    fn prompt(&mut self, prompt: &PromptLogprobs) {
        let Self {
            echo,
            logprobs,
            characters,
            ..
        } = self;
        let more = echo.take(prompt, logprobs, characters);
        self.text.push_str(&more);
    }

    fn token(&mut self, token: &TokenEvent) {
        self.text.push_str(self.characters.finish());
        self.text.push_str(&token.text);
        for logprob in &token.logprobs {
            self.logprobs.push(logprob);
        }
    }
}

impl ReplyBuilder for CompletionReply {
    fn event(&mut self, choice: u32, event: Event) {
        let Some(completion) = self.choices.get_mut(choice as usize) else {
            return;
        };
        match event {
            Event::Token(token) => completion.token(&token),
            Event::Prompt(prompt) => completion.prompt(&prompt),
            _ => {}
        }
    }

    fn restart(&mut self, choice: u32) {
        if let Some(completion) = self.choices.get_mut(choice as usize) {
            *completion = Completion::of(&self.echoes, choice);
        }
    }

    fn end(&mut self, choice: u32, ending: Ending) {
        self.usage.add(choice, ending.usage);
        if let Some(completion) = self.choices.get_mut(choice as usize) {
            completion.finish = Some(ending.finish);
        }
    }

    fn render(mut self: Box<Self>, grid: &Grid) -> Value {
        let wants_logprobs = self.wants_logprobs;
        let choices = self.choices.iter_mut().enumerate().map(|(index, choice)| {
            choice.text.push_str(choice.characters.finish());
            let finish = choice.finish.as_ref().unwrap_or(&FinishReason::Stop);
            json!({
                "text": choice.text,
                "index": index,
                "logprobs": wants_logprobs.then(|| choice.logprobs.take()),
                "finish_reason": finish_word(finish, false, CallStyle::Tools),
            })
        });
        let choices: Vec<Value> = choices.collect();
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": &*self.model,
            "choices": choices,
            "usage": self.usage.body(),
            "grid": grid.body(),
        })
    }
}
