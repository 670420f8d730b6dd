//! Audio parts of chat messages, for models that read only text: each is transcribed by the operator's transcription
//! model, and the transcript replaces it.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::hearing::store;
use crate::error::ApiError;
use crate::http::generation::encode::{Encoder, Encoding, unexpected};
use crate::pictures::{Sources, least_seconds};
use muster_protocol::job::{Capabilities, FailureKind, ResultPart, TranscriptionRequest};
use muster_protocol::openai::Problem;

/// Audio parts of one request.
const MOST_PARTS: usize = 16;

/// Whether a chat has audio parts.
pub fn has_audio(body: &Value) -> bool {
    let messages = body["messages"].as_array().into_iter().flatten();
    let mut parts =
        messages.flat_map(|message| message["content"].as_array().into_iter().flatten());
    parts.any(|part| part["type"] == "input_audio")
}

/// Replaces audio parts by their transcripts, in order.
pub async fn write_down(
    body: &mut Value,
    model: &Arc<str>,
    encoder: &Encoder,
    sources: &Sources,
) -> Result<(), ApiError> {
    let messages = body["messages"].as_array_mut().into_iter().flatten();
    let mut count = 0;
    for (at, message) in messages.enumerate() {
        let parts = message["content"].as_array_mut().into_iter().flatten();
        for (index, part) in parts.enumerate() {
            if part["type"] != "input_audio" {
                continue;
            }
            let place = format!("messages[{at}].content[{index}]");
            count += 1;
            if count > MOST_PARTS {
                let message = format!("{place}: a request may have {MOST_PARTS} audio parts");
                return Err(Problem::invalid(place, message).into());
            }
            let text = text_of(part, &place, model, encoder, sources).await?;
            *part = json!({"type": "text", "text": text});
        }
    }
    Ok(())
}

async fn text_of(
    part: &Value,
    place: &str,
    model: &Arc<str>,
    encoder: &Encoder,
    sources: &Sources,
) -> Result<String, ApiError> {
    let named = |error: ApiError| ApiError {
        param: Some(place.to_owned().into()),
        ..error
    };
    let data = part["input_audio"]["data"].as_str().unwrap_or_default();
    let file = STANDARD.decode(data.trim()).ok();
    let Some(file) = file.filter(|file| !file.is_empty()) else {
        let param = format!("{place}.input_audio.data");
        let message = format!("{param} must be a sound file in base64");
        return Err(Problem::invalid(param, message).into());
    };
    let encoding = |sound: String, seconds| Encoding {
        model: model.clone(),
        request: TranscriptionRequest {
            sound,
            seconds,
            ..TranscriptionRequest::default()
        }
        .into(),
        requires: Capabilities::default(),
        param: "messages",
    };
    let not_done = |error: ApiError| {
        // The client has not chosen this model.
        let kind = match error.failure.kind {
            FailureKind::UnsupportedValue | FailureKind::ModelNotFound => FailureKind::NoWorker,
            kind => kind,
        };
        let why = &error.failure.message;
        let message = format!("{place} could not be written down: {why}");
        named(ApiError::new(kind, message))
    };
    let file = Bytes::from(file);
    let work = encoding(String::new(), least_seconds(&file));
    let stored = store((file, None), (encoder, sources), work, false).await;
    let stored = stored.map_err(|error| match error.param.as_deref() {
        Some("file") => named(error),
        _ => not_done(error),
    })?;
    let work = encoding(stored.key.to_string(), stored.seconds);
    let reply = encoder.run(work).await.map_err(not_done)?;
    match reply.result {
        ResultPart::Transcript(transcript) => Ok(transcript.text()),
        _ => Err(unexpected()),
    }
}
