//! Raw jobs: the client's own body for public workers that speak its API, and their replies.

use serde_json::{Map, Value, json};

use muster_protocol::anthropic::MessageReader;
use muster_protocol::job::{Event, Failure, FinishReason, Formats, NativeBody, Usage};
use muster_protocol::link::{About, Done, ErrorFrame};
use muster_protocol::openai::chat::{NativeEnd, NativeError, NativeReader};
use muster_protocol::openai::responses::ResponseReader;

use super::wording;

/// Reads the reply of one raw job.
#[derive(Debug)]
pub struct NativeReply {
    reader: Box<dyn NativeReader>,
    /// An event exceeded the limit.
    is_too_large: bool,
}

/// Most bytes of an event. The last event of a response repeats the request's instructions and tools.
const LARGEST_EVENT: usize = 8 << 20;

/// The end of a raw reply.
#[derive(Debug)]
pub struct NativeOutcome {
    pub finish: Option<FinishReason>,
    pub usage: Option<Usage>,
    /// Why the reply is invalid.
    pub failure: Option<Failure>,
}

impl NativeReply {
    /// `None` if the format is not raw.
    pub fn of(format: Formats) -> Option<Self> {
        let reader: Box<dyn NativeReader> = match format {
            Formats::ANTHROPIC => Box::new(MessageReader::default()),
            Formats::OPENAI_RESPONSES => Box::new(ResponseReader::default()),
            _ => return None,
        };
        Some(Self {
            reader,
            is_too_large: false,
        })
    }

    /// Parses an event of the stream.
    pub fn read(&mut self, data: &str) -> Vec<Event> {
        let mut events = Vec::with_capacity(1);
        self.is_too_large |= data.len() > LARGEST_EVENT;
        if !self.is_too_large {
            self.reader.event(data, &mut events);
        }
        events
    }

    /// The reply of a worker without streaming.
    pub fn read_whole(&mut self, done: &Done) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some(reply) = &done.full_json {
            self.reader.reply(reply, &mut events);
        }
        events
    }

    pub fn end(self, about: About) -> NativeOutcome {
        let NativeEnd {
            finish,
            usage,
            error,
        } = self.reader.end();
        let too_large = || NativeError {
            message: format!("the worker sent an event of more than {LARGEST_EVENT} bytes"),
            is_clients: false,
        };
        let error = error.or_else(|| self.is_too_large.then(too_large));
        let failure = error.map(|error| {
            wording::failure(&ErrorFrame {
                about,
                message: error.message,
                client_error: error.is_clients,
                code: None,
            })
        });
        NativeOutcome {
            finish,
            usage,
            failure,
        }
    }
}

/// The client's body with the worker's model name and an output limit. Always streamed, so that all replies are read in
/// the same way.
pub fn payload(native: &NativeBody, model: &str, max_tokens: u32) -> Map<String, Value> {
    let mut wanted = native.body.as_object().cloned().unwrap_or_default();
    wanted.insert("model".into(), json!(model));
    wanted.insert("stream".into(), json!(true));
    wanted.insert(limit_field(native.format).into(), json!(max_tokens));
    let format = native.format.names().next();
    let mut payload = Map::new();
    payload.insert("request".into(), Value::Object(wanted));
    payload.insert("api_format".into(), json!(format));
    payload.insert("max_length".into(), json!(max_tokens));
    payload
}

fn limit_field(format: Formats) -> &'static str {
    match format {
        Formats::OPENAI_RESPONSES => "max_output_tokens",
        _ => "max_tokens",
    }
}
