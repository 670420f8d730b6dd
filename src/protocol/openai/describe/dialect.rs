//! The route as a dialect: a chat whose reply is its text alone.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::job::Event;
use crate::openai::chat::{
    ChatRequest, ChunkWriter, Dialect, Ending, Grid, Head, Reading, Reply, ReplyBuilder,
    StreamWriter,
};

#[derive(Debug, Clone, Copy)]
pub struct DescribeDialect;

/// The reply of the chat, until it is written.
#[derive(Debug)]
struct Description(Reply);

impl DescribeDialect {
    /// A chat that [`of_json`](super::of_json) or [`of_form`](super::of_form) has made.
    pub fn read(chat: Value) -> Reading {
        Reading {
            chat,
            dialect: Box::new(Self),
            ignored: Vec::new(),
            native: None,
        }
    }
}

impl Dialect for DescribeDialect {
    fn id_prefix(&self) -> &'static str {
        "description-"
    }

    fn param<'a>(&self, chat: &'a str) -> Cow<'a, str> {
        match chat {
            chat if chat.starts_with("messages[0].content[1]") => "prompt".into(),
            chat if chat.starts_with("messages") => "image".into(),
            chat => chat.into(),
        }
    }

    /// No request asks for a stream.
    fn stream(&self, request: &ChatRequest, head: &Head) -> Box<dyn StreamWriter> {
        Box::new(ChunkWriter::new(request, head))
    }

    fn reply(&self, request: &ChatRequest, head: &Head) -> Box<dyn ReplyBuilder> {
        Box::new(Description(Reply::new(request, head)))
    }
}

impl ReplyBuilder for Description {
    fn event(&mut self, choice: u32, event: Event) {
        self.0.event(choice, event);
    }

    fn restart(&mut self, choice: u32) {
        self.0.restart(choice);
    }

    fn end(&mut self, choice: u32, ending: Ending) {
        self.0.end(choice, ending);
    }

    fn render(self: Box<Self>, grid: &Grid) -> Value {
        let mut chat = Box::new(self.0).render(grid);
        let mut choice = chat["choices"][0].take();
        let text = match choice["message"]["content"].take() {
            Value::Null => choice["message"]["refusal"].take(),
            text => text,
        };
        json!({
            "id": chat["id"],
            "object": "image.description",
            "created": chat["created"],
            "model": chat["model"],
            "text": text.as_str().unwrap_or_default(),
            "finish_reason": choice["finish_reason"],
            "usage": chat["usage"],
            "grid": chat["grid"],
        })
    }
}
