//! One reply at the end.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::dialect::ReplyBuilder;
use crate::job::{Event, FinishReason};
use crate::openai::chat::{CallStyle, ChatRequest, Ending, Grid, Head, finish_word};

use super::logprobs::Logprobs;
use super::usage::PromptUsage;

#[derive(Debug)]
pub struct CompletionReply {
    id: String,
    created: i64,
    model: Arc<str>,
    choices: Vec<Completion>,
    echoes: Vec<String>,
    wants_logprobs: bool,
    usage: PromptUsage,
}

#[derive(Debug, Default)]
struct Completion {
    text: String,
    logprobs: Logprobs,
    finish: Option<FinishReason>,
}

impl CompletionReply {
    pub fn new(request: &ChatRequest, head: &Head, echoes: Vec<String>) -> Self {
        let choices = (0..request.choices).map(|_| Completion::default());
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

impl ReplyBuilder for CompletionReply {
    fn event(&mut self, choice: u32, event: Event) {
        if let (Some(completion), Event::Token(token)) =
            (self.choices.get_mut(choice as usize), event)
        {
            completion.text.push_str(&token.text);
            for logprob in &token.logprobs {
                completion.logprobs.push(logprob);
            }
        }
    }

    fn restart(&mut self, choice: u32) {
        if let Some(completion) = self.choices.get_mut(choice as usize) {
            *completion = Completion::default();
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
            let mut text = self.echoes.get(index).cloned().unwrap_or_default();
            text.push_str(&choice.text);
            let finish = choice.finish.as_ref().unwrap_or(&FinishReason::Stop);
            json!({
                "text": text,
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
