//! `POST /v1/audio/transcriptions` and `/v1/audio/translations`: an audio file is decoded within limits, stored until
//! its job has ended, and transcribed by a worker. A client that disconnects cancels the job, unless the request is
//! asynchronous.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::time::timeout;
use tracing::warn;

use crate::error::ApiError;
use crate::http::body::MediaWhole;
use crate::http::form::read_json_or_form;
use crate::http::generation::bodies::answer;
use crate::http::generation::encode::{EncodePart, Encoder, Encoding, RunningEncoding, unexpected};
use crate::http::generation::{MediaEndpoint, MediaOrder, RefusedFields};
use crate::http::headers::JOB_ID;
use crate::http::reply::{EVENTS, streamed};
use crate::http::room::Room;
use crate::media::{Area, Key, MediaType};
use crate::pictures::{SourceSound, SourceSoundError, Sources, least_seconds};
use crate::requests::orders::{MediaNotes, MediaWork};
use crate::state::DoorSettings;
use muster_protocol::job::{
    FailureKind, Kind, RequestId, ResultPart, Transcript, TranscriptSegment, TranscriptionRequest,
};
use muster_protocol::openai::form::FormBody;
use muster_protocol::openai::hearing::HearingRequest;
use muster_protocol::openai::hearing::reply::{
    TranscriptDocument, TranscriptForm, delta, done, event,
};
use muster_protocol::openai::hearing::speech::{KeptSpeech, SpeechSettings};
use muster_protocol::openai::{Problem, error};
use muster_reader::SpeechRule;

const HEARTBEAT: &str = ": heartbeat\n\n";

impl RefusedFields for HearingRequest {
    const KIND: Kind = Kind::Transcription;
    const OUTPUT: &'static str = "a transcript";
}

pub async fn transcribe(
    endpoint: Result<MediaEndpoint, ApiError>,
    headers: HeaderMap,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (of_json, of_form) = (
        HearingRequest::transcription_of_json,
        HearingRequest::transcription,
    );
    hear(endpoint, &headers, whole, (of_json, of_form)).await
}

pub async fn translate(
    endpoint: Result<MediaEndpoint, ApiError>,
    headers: HeaderMap,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (of_json, of_form) = (
        HearingRequest::translation_of_json,
        HearingRequest::translation,
    );
    hear(endpoint, &headers, whole, (of_json, of_form)).await
}

/// How a body in JSON and one in a form are read.
type Readers = (
    fn(Value) -> Result<HearingRequest, Problem>,
    fn(FormBody) -> Result<HearingRequest, Problem>,
);

async fn hear(
    endpoint: Result<MediaEndpoint, ApiError>,
    headers: &HeaderMap,
    whole: Result<MediaWhole, ApiError>,
    (of_json, of_form): Readers,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let encoder = endpoint.encoder();
    let (mut request, room) = read_json_or_form(headers, whole, of_json, of_form).await?;
    if let Some(prompt) = &request.prompt {
        encoder.examine(prompt, &request.model).await?;
    }
    if request.tracking.is_async {
        // Refused at once, since a stored request would wait for such a worker.
        encoder
            .check_able(&request.model, Kind::Transcription)
            .await?;
    }
    let file = std::mem::take(&mut request.file);
    let transcript = TranscriptionRequest {
        sound: String::new(),
        seconds: least_seconds(&file),
        language: request.language.clone(),
        languages: request.languages.clone(),
        translate: request.is_translated,
        prompt: request.prompt.clone(),
        temperature: request.temperature,
        beam_size: request.beam_size,
        words: request.has_words,
        logprobs: request.has_logprobs,
    };
    let is_async = request.tracking.is_async;
    let stored = store(
        (file, request.speech.map(speech_rule)),
        (&encoder, endpoint.sources()),
        Encoding {
            model: request.model.clone(),
            request: transcript.clone().into(),
            requires: transcript.requires(),
            param: "file",
        },
        is_async,
    )
    .await?;
    let transcript = TranscriptionRequest {
        sound: stored.key.to_string(),
        seconds: stored.seconds,
        ..transcript
    };
    if request.tracking.is_async {
        return later(&endpoint, request, (transcript, stored), room).await;
    }
    let encoding = Encoding {
        model: request.model.clone(),
        requires: transcript.requires(),
        request: transcript.into(),
        param: "file",
    };
    if request.is_streamed {
        let running = encoder.begin(encoding).await?;
        return relay(running, stored, room, encoder.settings()).await;
    }
    let found = encoder.run(encoding).await?;
    drop(room);
    let ResultPart::Transcript(transcript) = found.result else {
        return Err(unexpected());
    };
    let text = document(&request, &stored).render(*transcript);
    let room = endpoint.memory().room_to_tell();
    let mut response = answer(room, Some(found.job), text).await?;
    if request.form != TranscriptForm::Json {
        let content_type = HeaderValue::from_static(request.form.content_type());
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    Ok(response)
}

/// Queues an asynchronous transcription. The audio file is stored until the transcript is ready.
async fn later(
    endpoint: &MediaEndpoint,
    mut request: HearingRequest,
    (transcript, stored): (TranscriptionRequest, SourceSound),
    room: Room,
) -> Result<Response, ApiError> {
    let model = endpoint
        .model_of(Some(&request.model), Kind::Transcription)
        .await?;
    let notes = MediaNotes {
        document: Some(document(&request, &stored)),
        ..MediaNotes::default()
    };
    let order = MediaOrder {
        work: MediaWork::new(transcript, &model, 1).noted(notes),
        tracking: std::mem::take(&mut request.tracking),
        sources: Some(stored.holding),
    };
    endpoint.accept(order, &request, room).await
}

fn document(request: &HearingRequest, stored: &SourceSound) -> TranscriptDocument {
    let millis = |seconds: f64| (seconds * 1000.0).round() as u64;
    TranscriptDocument {
        form: request.form,
        millis: millis(stored.whole_seconds),
        is_translated: request.is_translated,
        has_segments: request.has_segments,
        has_words: request.has_words,
        speech: stored.speech.clone().map(|spans| KeptSpeech {
            spans,
            millis: millis(stored.seconds),
        }),
    }
}

fn speech_rule(settings: SpeechSettings) -> SpeechRule {
    SpeechRule {
        threshold: settings.threshold as f32,
        silence_millis: settings.silence_millis,
        padding_millis: settings.padding_millis,
    }
}

/// Decodes and stores an audio file, or its speech. Before decoding, checks the model and the permission, and holds the price of the
/// shortest audio that the file can contain.
pub async fn store(
    (file, speech): (Bytes, Option<SpeechRule>),
    (encoder, sources): (&Encoder, &Sources),
    encoding: Encoding,
    may_wait: bool,
) -> Result<SourceSound, ApiError> {
    let held = encoder.reserve(&encoding, may_wait).await?;
    let key = Key::new(Area::Sources, RequestId::random().0, 0, MediaType::Flac);
    let taken = sources
        .take_sound(encoder.sender(), file, key, speech)
        .await;
    // The length is known now; its price is held next.
    held.release().await;
    taken.map_err(|error| match error {
        SourceSoundError::Unfit(why) => Problem::invalid("file", format!("file: {why}")).into(),
        SourceSoundError::Budget(wait) => {
            ApiError::new(FailureKind::RateLimited, error.to_string()).after(wait)
        }
        SourceSoundError::Quota(error) => {
            ApiError::new(FailureKind::InFlightLimit, error.to_string())
        }
        SourceSoundError::Reader(why) => {
            warn!("decoding a sound failed: {why}");
            let message = "decoding the sound failed; retry later";
            ApiError::new(FailureKind::Internal, message)
        }
        SourceSoundError::Store(error) => {
            warn!("storing a sound failed: {error}");
            let message = "storing the sound failed; retry later";
            ApiError::new(FailureKind::StoreUnavailable, message)
        }
    })
}

/// A streamed transcript. Dropped with its connection, which cancels the job.
struct HearingRelay {
    /// None when the stream has ended.
    running: Option<RunningEncoding>,
    /// Received before the response started.
    first: Option<Result<EncodePart, ApiError>>,
    /// Parts that were sent. After a lost worker the job restarts; the same parts are not sent again.
    sent: Transcript,
    heard: SourceSound,
    heartbeat: Duration,
    is_over: bool,
    _room: Room,
}

async fn relay(
    mut running: RunningEncoding,
    heard: SourceSound,
    room: Room,
    settings: &DoorSettings,
) -> Result<Response, ApiError> {
    let id = HeaderValue::try_from(running.job().to_string());
    // Waits a short time for the first part, so that an early failure gets its own status.
    let first = match timeout(settings.commit_after, running.next()).await {
        Ok(Err(error)) => return Err(error),
        Ok(first) => Some(first),
        Err(_) => None,
    };
    let relay = HearingRelay {
        running: Some(running),
        first,
        sent: Transcript::default(),
        heard,
        heartbeat: settings.heartbeat,
        is_over: false,
        _room: room,
    };
    let events = unfold(relay, |mut relay| async move {
        let event = relay.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(event)), relay))
    });
    let mut response = streamed(Body::from_stream(events), EVENTS);
    if let Ok(id) = id {
        response.headers_mut().insert(JOB_ID, id);
    }
    Ok(response)
}

impl HearingRelay {
    /// The next text for the client, `None` at the end.
    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_over) {
            return Some("data: [DONE]\n\n".to_owned());
        }
        loop {
            let part = match self.first.take() {
                Some(first) => first,
                None => match timeout(self.heartbeat, self.running.as_mut()?.next()).await {
                    Ok(part) => part,
                    Err(_) => return Some(HEARTBEAT.to_owned()),
                },
            };
            match part {
                Ok(EncodePart::Part(ResultPart::Transcript(part))) => {
                    if let Some((text, part)) = self.take(*part) {
                        return Some(event(&delta(&text, &part)));
                    }
                }
                Ok(EncodePart::Part(_)) => return Some(self.failed(&unexpected())),
                Ok(EncodePart::End(_)) => {
                    self.running = None;
                    self.is_over = true;
                    let text = self.sent.text();
                    return Some(event(&done(&text, self.heard.seconds, &self.sent)));
                }
                Err(error) => return Some(self.failed(&error)),
            }
        }
    }

    fn failed(&mut self, error: &ApiError) -> String {
        self.running = None;
        event(&error::body(&error.failure, error.param.as_deref()))
    }

    /// The unsent text of the part, and the unsent part.
    fn take(&mut self, mut part: Transcript) -> Option<(String, Transcript)> {
        if self.heard.speech.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let until = self.sent.segments.last().map_or(0.0, |segment| segment.end);
        part.segments
            .retain(|segment: &TranscriptSegment| segment.end > until);
        let text: String = part
            .segments
            .iter()
            .map(|segment| segment.text.as_str())
            .collect();
        let text = match self.sent.segments.is_empty() {
            true => text.trim_start().to_owned(),
            false => text,
        };
        self.sent.absorb(part.clone());
        (!text.is_empty()).then_some((text, part))
    }
}
