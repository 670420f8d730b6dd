//! The chunks of a stream.

use std::fmt::Write;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use serde_json::{Value, json};

use crate::dialect::StreamWriter;
use crate::job::{Event, TokenEvent};
use crate::openai::Problem;
use crate::openai::chat::{CallStyle, ChatRequest, Ending, Grid, Head, finish_word};

use super::logprobs::Logprobs;
use super::usage::PromptUsage;

#[derive(Debug)]
pub struct CompletionChunks {
    id: String,
    created: i64,
    model: Arc<str>,
    /// What comes before each choice, until it has come.
    echoes: Vec<String>,
    logprobs: Vec<Logprobs>,
    wants_logprobs: bool,
    /// None when the client did not say.
    wants_usage: Option<bool>,
    unfinished: u32,
    usage: PromptUsage,
}

impl CompletionChunks {
    pub fn new(request: &ChatRequest, head: &Head, echoes: Vec<String>) -> Self {
        Self {
            id: head.id.clone(),
            created: head.created,
            model: Arc::clone(&head.model),
            echoes,
            logprobs: (0..request.choices).map(|_| Logprobs::default()).collect(),
            wants_logprobs: request.text.logprobs.is_some(),
            wants_usage: request.stream.unwrap_or_default().usage,
            unfinished: request.choices,
            usage: PromptUsage::new(request),
        }
    }

    fn chunk(&self, choices: &Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": &*self.model,
            "choices": choices,
        })
    }

    fn token(&mut self, choice: u32, token: &TokenEvent, out: &mut BytesMut) {
        let logprobs = self.logprobs.get_mut(choice as usize);
        let logprobs = logprobs.filter(|_| self.wants_logprobs && !token.logprobs.is_empty());
        let logprobs = logprobs.map(|known| {
            token
                .logprobs
                .iter()
                .for_each(|logprob| known.push(logprob));
            known.take()
        });
        if token.text.is_empty() && logprobs.is_none() {
            return;
        }
        let piece = json!([{
            "text": token.text, "index": choice, "logprobs": logprobs, "finish_reason": null,
        }]);
        put(&self.chunk(&piece), out);
    }
}

impl StreamWriter for CompletionChunks {
    fn open(&mut self, choice: u32, out: &mut BytesMut) {
        let echo = self.echoes.get_mut(choice as usize).map(std::mem::take);
        if let Some(text) = echo.filter(|text| !text.is_empty()) {
            let piece =
                json!([{"text": text, "index": choice, "logprobs": null, "finish_reason": null}]);
            put(&self.chunk(&piece), out);
        }
    }

    fn event(&mut self, choice: u32, event: &Event, out: &mut BytesMut) {
        if let Event::Token(token) = event {
            self.open(choice, out);
            self.token(choice, token, out);
        }
    }

    fn end(&mut self, choice: u32, ending: Ending, grid: &Grid, out: &mut BytesMut) {
        self.open(choice, out);
        self.usage.add(choice, ending.usage);
        self.unfinished = self.unfinished.saturating_sub(1);
        let finish = finish_word(&ending.finish, false, CallStyle::Tools);
        let piece =
            json!([{"text": "", "index": choice, "logprobs": null, "finish_reason": finish}]);
        let mut chunk = self.chunk(&piece);
        if self.unfinished > 0 {
            put(&chunk, out);
            return;
        }
        if self.wants_usage == Some(true) {
            put(&chunk, out);
            chunk = self.chunk(&json!([]));
        }
        if self.wants_usage != Some(false) {
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
