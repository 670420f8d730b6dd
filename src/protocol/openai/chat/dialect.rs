//! Chat completions as a dialect: the body is the chat body.

use serde_json::Value;

use crate::openai::chat::{Dialect, Reading, ReplyBuilder, StreamWriter};

use super::{ChatRequest, ChunkWriter, Head, Reply};

#[derive(Debug, Clone, Copy)]
pub struct ChatDialect;

impl ChatDialect {
    pub fn read(body: Value) -> Reading {
        Reading {
            chat: body,
            dialect: Box::new(Self),
            ignored: Vec::new(),
            native: None,
        }
    }
}

impl Dialect for ChatDialect {
    fn id_prefix(&self) -> &'static str {
        "chatcmpl-"
    }

    fn stream(&self, request: &ChatRequest, head: &Head) -> Box<dyn StreamWriter> {
        Box::new(ChunkWriter::new(request, head))
    }

    fn reply(&self, request: &ChatRequest, head: &Head) -> Box<dyn ReplyBuilder> {
        Box::new(Reply::new(request, head))
    }
}
