//! The interface of text APIs for the HTTP layer: reading a body, and writing the events of its jobs.
//!
//! Every dialect translates its body to a chat body: moderation examines that one, workers of the public network that
//! speak chat receive it, and [`ChatRequest`] checks rules between fields. The dialect adds fields without a chat
//! equivalent in [`Dialect::complete`].

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut, BytesMut};
use serde_json::Value;

use crate::job::{Event, FinishReason, Formats, NativeBody, Usage};
use crate::openai::Problem;

use super::{ChatRequest, Ending, Grid, Head};

/// A body that was read.
#[derive(Debug)]
pub struct Reading {
    /// The body as the chat API would have it.
    pub chat: Value,
    pub dialect: Box<dyn Dialect>,
    /// Names of fields that the operator has the service ignore.
    pub ignored: Vec<String>,
    /// The client's body without fields that identify it, if public workers may support its API.
    pub native: Option<NativeBody>,
}

/// A request's API: writes its reply.
pub trait Dialect: fmt::Debug + Send + Sync {
    /// The prefix of its reply's id.
    fn id_prefix(&self) -> &'static str;

    /// The format of its bodies, where public workers may speak it besides chat.
    fn native_format(&self) -> Option<Formats> {
        None
    }

    /// The type of a stream.
    fn content_type(&self) -> &'static str {
        "text/event-stream"
    }

    /// Adds fields without a chat equivalent.
    fn complete(&self, _request: &mut ChatRequest) -> Result<(), Problem> {
        Ok(())
    }

    /// The name of a field whose text no filter can examine, if there is one.
    fn unexamined(&self) -> Option<&'static str> {
        None
    }

    /// The client's name for a field of the chat body.
    fn param<'a>(&self, chat: &'a str) -> Cow<'a, str> {
        chat.into()
    }

    fn stream(&self, request: &ChatRequest, head: &Head) -> Box<dyn StreamWriter>;

    fn reply(&self, request: &ChatRequest, head: &Head) -> Box<dyn ReplyBuilder>;
}

/// Writes the events of one request's choices, as server-sent events unless its dialect says otherwise.
pub trait StreamWriter: fmt::Debug + Send {
    /// Before the first event of a choice. May be called again.
    fn open(&mut self, choice: u32, out: &mut BytesMut);

    fn event(&mut self, choice: u32, event: &Event, out: &mut BytesMut);

    /// Ends a choice. The last one ends the stream.
    fn end(&mut self, choice: u32, ending: Ending, grid: &Grid, out: &mut BytesMut);

    /// The stream has failed and ends.
    fn fail(&mut self, problem: &Problem, out: &mut BytesMut);

    /// Keeps proxies and clients from closing a silent stream.
    fn heartbeat(&mut self, out: &mut BytesMut) {
        out.put_slice(b": keep-alive\n\n");
    }
}

/// Gathers the events of all choices into one JSON reply.
pub trait ReplyBuilder: fmt::Debug + Send {
    fn event(&mut self, choice: u32, event: Event);

    /// Forgets the events of a choice, which begins anew.
    fn restart(&mut self, choice: u32);

    fn end(&mut self, choice: u32, ending: Ending);

    fn render(self: Box<Self>, grid: &Grid) -> Value;
}

/// Parses a worker's reply in the client's own API.
pub trait NativeReader: fmt::Debug + Send {
    /// Parses an event of the stream.
    fn event(&mut self, data: &str, out: &mut Vec<Event>);

    /// The reply of a worker that does not stream.
    fn reply(&mut self, reply: &Value, out: &mut Vec<Event>);

    fn end(self: Box<Self>) -> NativeEnd;
}

/// The end of a native reply, as far as known.
#[derive(Debug, Default, PartialEq)]
pub struct NativeEnd {
    pub finish: Option<FinishReason>,
    pub usage: Option<Usage>,
    pub error: Option<NativeError>,
}

/// Why a native reply is no result.
#[derive(Debug, PartialEq, Eq)]
pub struct NativeError {
    pub message: String,
    /// The request is at fault.
    pub is_clients: bool,
}

impl NativeError {
    /// Output items of one reply.
    pub const MOST_ITEMS: usize = 1024;

    pub fn endless() -> Self {
        Self {
            message: format!(
                "the worker sent more than {} output items",
                Self::MOST_ITEMS
            ),
            is_clients: false,
        }
    }

    /// A reply in another form than that of its API.
    pub fn unreadable(error: &serde_json::Error) -> Self {
        Self {
            message: format!("the worker sent an event that cannot be read: {error}"),
            is_clients: false,
        }
    }
}
