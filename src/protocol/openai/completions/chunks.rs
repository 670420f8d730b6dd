//! The chunks of a stream.

use std::fmt::Write;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};

use crate::job::{Event, PromptLogprobs, TokenEvent};
use crate::openai::Problem;
use crate::openai::chat::{
    CallStyle, ChatRequest, Ending, Grid, Head, RunningUsage, StreamOptions, StreamWriter,
    finish_word,
};

use super::echo::{Echo, EchoSource};
use super::logprobs::{Characters, Logprobs};
use super::usage::PromptUsage;

#[derive(Debug)]
pub struct CompletionChunks {
    id: String,
    created: i64,
    model: Arc<str>,
    choices: Vec<StreamedChoice>,
    wants_logprobs: bool,
    options: StreamOptions,
    unfinished: u32,
    usage: PromptUsage,
}

/// A choice as far as it was sent.
#[derive(Debug)]
struct StreamedChoice {
    echo: Echo,
    /// For the prompt, if its tokens tell it.
    characters: Characters,
    logprobs: Logprobs,
    is_open: bool,
    running: RunningUsage,
}

impl StreamedChoice {
    fn new(source: EchoSource) -> Self {
        let echo = Echo::from(source);
        Self {
            logprobs: echo.logprobs(),
            echo,
            characters: Characters::default(),
            is_open: false,
            running: RunningUsage::default(),
        }
    }
}

impl CompletionChunks {
    pub fn new(request: &ChatRequest, head: &Head, echoes: Vec<EchoSource>) -> Self {
        let mut echoes = echoes.into_iter();
        let mut choice = || StreamedChoice::new(echoes.next().unwrap_or_default());
        Self {
            id: head.id.clone(),
            created: head.created,
            model: Arc::clone(&head.model),
            choices: (0..request.choices).map(|_| choice()).collect(),
            wants_logprobs: request.text.logprobs.is_some(),
            options: request.stream.unwrap_or_default(),
            unfinished: request.choices,
            usage: PromptUsage::new(request),
        }
    }

    fn chunk(&self, choices: &Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": &*self.model,
            "choices": choices,
        });
        let choice = choices[0]["index"].as_u64().unwrap_or(u64::MAX);
        let streamed = usize::try_from(choice).map(|choice| self.choices.get(choice));
        if let Ok(Some(streamed)) = streamed
            && self.options.running_usage
        {
            chunk["usage"] = streamed.running.body();
        }
        chunk
    }

    fn prompt(&mut self, choice: u32, prompt: &PromptLogprobs, out: &mut BytesMut) {
        let Some(streamed) = self.choices.get_mut(choice as usize) else {
            return;
        };
        let StreamedChoice {
            echo,
            logprobs,
            characters,
            ..
        } = streamed;
        let text = echo.take(prompt, logprobs, characters);
        self.piece(choice, &text, out);
    }

    fn token(&mut self, choice: u32, token: &TokenEvent, out: &mut BytesMut) {
        let Some(streamed) = self.choices.get_mut(choice as usize) else {
            return;
        };
        for logprob in &token.logprobs {
            streamed.logprobs.push(logprob);
        }
        let half = streamed.characters.finish();
        match half {
            "" => self.piece(choice, &token.text, out),
            half => self.piece(choice, &format!("{half}{}", token.text), out),
        }
    }

    /// A text and the log probabilities that came since the last one.
    fn piece(&mut self, choice: u32, text: &str, out: &mut BytesMut) {
        let Some(streamed) = self.choices.get_mut(choice as usize) else {
            return;
        };
        let has_logprobs = self.wants_logprobs && !streamed.logprobs.is_empty();
        let logprobs = has_logprobs.then(|| streamed.logprobs.take());
        if text.is_empty() && logprobs.is_none() {
            return;
        }
        let piece =
            json!([{"text": text, "index": choice, "logprobs": logprobs, "finish_reason": null}]);
        put(&self.chunk(&piece), out);
    }
}

impl StreamWriter for CompletionChunks {
    fn open(&mut self, choice: u32, out: &mut BytesMut) {
        let Some(streamed) = self.choices.get_mut(choice as usize) else {
            return;
        };
        if !std::mem::replace(&mut streamed.is_open, true) {
            let text = streamed.echo.text().to_owned();
            self.piece(choice, &text, out);
        }
    }

    fn event(&mut self, choice: u32, event: &Event, out: &mut BytesMut) {
        if let Some(streamed) = self.choices.get_mut(choice as usize) {
            streamed.running.note(event);
        }
        match event {
            Event::Token(token) => {
                self.open(choice, out);
                self.token(choice, token, out);
            }
            Event::Prompt(prompt) => {
                self.open(choice, out);
                self.prompt(choice, prompt, out);
            }
            _ => {}
        }
    }

    fn end(&mut self, choice: u32, ending: Ending, grid: &Grid, out: &mut BytesMut) {
        self.open(choice, out);
        self.usage.add(choice, ending.usage);
        if let Some(streamed) = self.choices.get_mut(choice as usize) {
            streamed.running.be(ending.usage);
        }
        self.unfinished = self.unfinished.saturating_sub(1);
        let finish = finish_word(&ending.finish, false, CallStyle::Tools);
        let streamed = self.choices.get_mut(choice as usize);
        let half = streamed.map_or("", |streamed| streamed.characters.finish());
        let piece =
            json!([{"text": half, "index": choice, "logprobs": null, "finish_reason": finish}]);
        let mut chunk = self.chunk(&piece);
        if self.unfinished > 0 {
            put(&chunk, out);
            return;
        }
        if self.options.usage == Some(true) {
            put(&chunk, out);
            chunk = self.chunk(&json!([]));
        }
        if self.options.usage != Some(false) {
            chunk["usage"] = self.usage.body();
        }
        chunk["grid"] = grid.body();
        put(&chunk, out);
        out.put_slice(b"data: [DONE]\n\n");
    }

    fn fail(&mut self, problem: &Problem, out: &mut BytesMut) {
        put(&problem.body(), out);
        out.put_slice(b"data: [DONE]\n\n");
    }
}

fn put(event: &Value, out: &mut BytesMut) {
    let _ = write!(out, "data: {event}\n\n");
}
