//! The size of a job's frame. Public peers disconnect on frames above a megabyte, so a job that may exceed that goes
//! only to workers that accept larger frames.

use std::sync::Arc;

use serde_json::Value;

use super::payload;
use muster_protocol::job::{Body, Capabilities, Formats, Job, TextInput};
use muster_protocol::link::PUBLIC_FRAME;

/// Keys, ids and numbers besides the texts.
const ENVELOPE: usize = 16 << 10;
/// Bytes of a value besides its text: quotes, commas, a key.
const VALUE: usize = 12;

/// Marks jobs that need large frames.
pub fn mark_large(job: &mut Arc<Job>) {
    if is_large(job) {
        let job = Arc::make_mut(job);
        job.limits.requires = job.limits.requires.with(Capabilities::LARGE_FRAMES);
    }
}

/// An upper estimate settles nearly all jobs; the others are serialized.
fn is_large(job: &Job) -> bool {
    let request = match &job.body {
        Body::Text(request) => request,
        // Escapes may double the texts.
        body if body.brings_values() => return 2 * body.read_bytes() + ENVELOPE > PUBLIC_FRAME,
        _ => return false,
    };
    let guess = match (&job.original, &request.input) {
        (Some(original), _) => {
            let native = original.native.as_ref();
            weight(&original.body).max(native.map_or(0, |native| weight(&native.body)))
        }
        (None, TextInput::Prompt(text)) => text.len(),
        (None, TextInput::Tokens(tokens)) => 11 * tokens.len(),
        (None, TextInput::Chat(chat)) => {
            let values = chat.messages.iter().chain(&chat.tools);
            values.map(weight).sum()
        }
    };
    // As messages and as a flat prompt, with escapes.
    if 3 * guess + ENVELOPE < PUBLIC_FRAME {
        return false;
    }
    // Even if all values were numbers of one digit.
    if guess / 10 > PUBLIC_FRAME {
        return true;
    }
    let model = job.model.0.first().map_or("", |name| name);
    let native = job.native().map(|native| native.format);
    let mut formats = [Some(Formats::OPENAI_CHAT), native].into_iter().flatten();
    formats.any(
        |format| match payload::public(job, request, format, model, 0) {
            Ok(payload) => {
                let text = serde_json::to_string(&payload).unwrap_or_default();
                text.len() + ENVELOPE > PUBLIC_FRAME
            }
            Err(_) => true,
        },
    )
}

fn weight(value: &Value) -> usize {
    VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(weight).sum(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| key.len() + weight(value))
                .sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        }
}
