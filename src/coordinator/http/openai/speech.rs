//! `POST /v1/audio/speech` and `GET /v1/audio/voices`: speech synthesis by a worker, streamed if the client allows it.
//! A client that disconnects cancels the job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::error::ApiError;
use crate::http::body::MediaWhole;
use crate::http::generation::encode::{EncodePart, Encoding, RunningEncoding, unexpected};
use crate::http::generation::{MediaEndpoint, MediaOrder, RefusedFields, read_body};
use crate::http::headers::{JOB_ID, SKIPPED_CHARACTERS, VOICE};
use crate::http::models;
use crate::http::open::KnownModels;
use crate::http::reply::{self, Reply};
use crate::http::room::{Memory, Room};
use crate::http::statistics::parameter;
use crate::http::text::with_ignored;
use crate::pictures::{SpokenFile, endless_wav, to_sound_file};
use crate::requests::orders::MediaWork;
use crate::state::DoorSettings;
use crate::switchboard::Switchboard;
use muster_characters::unreadable;
use muster_protocol::job::{
    FailureKind, JobId, Kind, LONGEST_SPEECH, MusicRequest, ResultPart, SoundFormat, SpeechPart,
    SpeechRequest, SpokenWord,
};
use muster_protocol::openai::error;
use muster_protocol::openai::hearing::reply::event;
use muster_protocol::openai::speech::{
    SpeechDelivery, SpeechForm, VoicedText, captioned, delta, done, resolve, voice,
};

/// Limit of characters in the header.
const MOST_SKIPPED: usize = 32;
const HEARTBEAT: &str = ": heartbeat\n\n";
/// [`LONGEST_SPEECH`] in bytes of its samples.
const MOST_BYTES: usize = 64 << 20;
/// Minimum limit for short texts.
const LEAST_SECONDS: f64 = 10.0;

impl RefusedFields for VoicedText {
    const KIND: Kind = Kind::Music;
    const OUTPUT: &'static str = "a speech";
}

pub async fn speak(
    endpoint: Result<MediaEndpoint, ApiError>,
    whole: Result<MediaWhole, ApiError>,
) -> Result<Response, ApiError> {
    let (MediaWhole(whole), endpoint) = (whole?, endpoint?);
    let (request, room) = read_body(whole, VoicedText::read).await?;
    let encoder = endpoint.encoder();
    encoder.examine(&request.text, &request.model).await?;
    let voices = encoder.voices(&request.model).await;
    let voice = match &request.voice {
        Some(asked) if !voices.is_empty() => Some(resolve(asked, &voices)?),
        asked => asked.clone(),
    };
    let skipped = skipped_header(&request.text).map(|skipped| (SKIPPED_CHARACTERS, skipped));
    let spoken = voice.as_deref().map(HeaderValue::try_from);
    let spoken = spoken.and_then(Result::ok).map(|voice| (VOICE, voice));
    let unknown = endpoint.unknown_words(&request.model, &request.text);
    let ignored = request.ignored.clone();
    let mut response = answer(&endpoint, request, voice, room).await?;
    response
        .headers_mut()
        .extend(skipped.into_iter().chain(spoken));
    with_ignored(&mut response, &ignored);
    unknown.list(&mut response);
    Ok(response)
}

async fn answer(
    endpoint: &MediaEndpoint,
    request: VoicedText,
    voice: Option<String>,
    room: Room,
) -> Result<Response, ApiError> {
    let encoder = endpoint.encoder();
    if request.tracking.is_async {
        // Refused at once, since a stored request would wait for such a worker.
        encoder.check_able(&request.model, Kind::Speech).await?;
        return later(endpoint, request, voice, room).await;
    }
    drop(room);
    let speech = SpeechRequest {
        text: request.text.clone(),
        voice,
        speed: request.speed,
        seed: request.seed.unwrap_or_else(|| encoder.seed()),
        words: request.wants_words,
    };
    let (characters, requires) = (speech.tokens(), speech.requires());
    let running = encoder
        .begin(Encoding {
            model: request.model.clone(),
            request: speech.into(),
            requires,
            param: "input",
        })
        .await?;
    let is_relayed = match request.delivery {
        SpeechDelivery::Usual => request.form == SpeechForm::Pcm && !request.wants_words,
        SpeechDelivery::Audio | SpeechDelivery::Events => true,
    };
    match is_relayed {
        true => relay(running, &request, characters, encoder.settings()).await,
        false => {
            let form = (request.form, request.wants_words);
            gather(running, form, endpoint.memory()).await
        }
    }
}

/// Determined here and not by the worker, because headers are sent before the first audio.
fn skipped_header(text: &str) -> Option<HeaderValue> {
    let skipped = unreadable(text);
    let shown = skipped.iter().take(MOST_SKIPPED);
    let shown: Vec<String> = shown
        .map(|letter| format!("U+{:04X}", u32::from(*letter)))
        .collect();
    (!shown.is_empty()).then(|| HeaderValue::try_from(shown.join(", ")).ok())?
}

/// The file is uploaded, like that of music.
async fn later(
    endpoint: &MediaEndpoint,
    mut request: VoicedText,
    voice: Option<String>,
    room: Room,
) -> Result<Response, ApiError> {
    let model = endpoint.model_of(Some(&request.model), Kind::Music).await?;
    // No voice takes longer than a second for a character.
    let longest = request.text.chars().count() as f64 / request.speed.unwrap_or(1.0);
    let speech = MusicRequest {
        prompt: request.text.clone(),
        seconds: (LEAST_SECONDS + longest).min(LONGEST_SPEECH.into()),
        is_speech: true,
        voice,
        speed: request.speed,
        seed: request.seed,
        format: match request.form {
            SpeechForm::Wav | SpeechForm::Pcm => SoundFormat::Wav,
            SpeechForm::Flac => SoundFormat::Flac,
            SpeechForm::Opus => SoundFormat::Opus,
            SpeechForm::Mp3 => SoundFormat::Mp3,
        },
        ..MusicRequest::default()
    };
    let order = MediaOrder {
        work: MediaWork::new(speech, &model, 1),
        tracking: std::mem::take(&mut request.tracking),
        sources: None,
    };
    endpoint.accept(order, &request, room).await
}

/// The whole file, or JSON with the file and the times of its words.
async fn gather(
    mut running: RunningEncoding,
    (form, wants_words): (SpeechForm, bool),
    memory: &Memory,
) -> Result<Response, ApiError> {
    let job = running.job();
    let mut whole = SpeechPart::default();
    loop {
        match running.next().await? {
            EncodePart::Part(ResultPart::Speech(part)) => take(&mut whole, *part)?,
            EncodePart::Part(_) => return Err(unexpected()),
            EncodePart::End(_) => break,
        }
    }
    let mut room = memory.room_to_tell();
    // The file is base64 within JSON.
    let copies = if wants_words { 2 } else { 1 };
    let size = whole.samples.0.len().saturating_mul(copies);
    room.cover_in_time(size).await?;
    let words = std::mem::take(&mut whole.words);
    let mut reply = file(whole, form).await?;
    let mut content_type = form.content_type();
    if wants_words {
        let captioned = captioned(&STANDARD.encode(reply), form, &words);
        (reply, content_type) = (captioned.to_string().into_bytes(), "application/json");
    }
    let mut response = reply::text_in(room, StatusCode::OK, reply);
    dress(response.headers_mut(), content_type, job);
    Ok(response)
}

fn take(whole: &mut SpeechPart, part: SpeechPart) -> Result<(), ApiError> {
    whole
        .absorb(part)
        .map_err(|gap| ApiError::new(FailureKind::WorkerFailed, gap.to_string()))?;
    match whole.samples.0.len() > MOST_BYTES {
        true => {
            let message = "the speech is too long: send a shorter text, or a higher speed";
            Err(ApiError::new(FailureKind::InvalidRequest, message))
        }
        false => Ok(()),
    }
}

async fn file(speech: SpeechPart, form: SpeechForm) -> Result<Vec<u8>, ApiError> {
    let media_type = match form {
        SpeechForm::Pcm => return Ok(speech.samples.0),
        SpeechForm::Wav => crate::media::MediaType::Wav,
        SpeechForm::Flac => crate::media::MediaType::Flac,
        SpeechForm::Opus => crate::media::MediaType::Opus,
        SpeechForm::Mp3 => crate::media::MediaType::Mp3,
    };
    let file = to_sound_file(speech.samples.0, speech.rate, media_type).await;
    file.map_err(unencoded)
}

fn unencoded(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(FailureKind::Internal, error.to_string())
}

fn dress(headers: &mut HeaderMap, content_type: &'static str, job: JobId) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Ok(id) = HeaderValue::try_from(job.to_string()) {
        headers.insert(JOB_ID, id);
    }
}

/// A streamed speech. Dropped with its connection, which cancels the job.
struct SpeechRelay {
    /// None when the stream has ended.
    running: Option<RunningEncoding>,
    /// Received before the response started.
    first: Option<Result<EncodePart, ApiError>>,
    /// Samples that were sent: after a lost worker the job restarts, and the same samples are not sent again.
    sent: u64,
    /// Sample rate, `None` before the first part.
    rate: Option<u32>,
    /// The samples of a file that is sent when it is complete.
    kept: SpeechPart,
    /// Encodes while parts arrive. `None` before the first part, and for other formats.
    encoder: Option<SpokenFile>,
    form: SpeechForm,
    has_events: bool,
    /// Words whose times the next event says.
    words: Vec<SpokenWord>,
    /// Start of the last word that was said.
    said_until: Option<f64>,
    characters: u64,
    heartbeat: Duration,
}

async fn relay(
    mut running: RunningEncoding,
    request: &VoicedText,
    characters: u64,
    settings: &DoorSettings,
) -> Result<Response, ApiError> {
    let job = running.job();
    let has_events = request.delivery == SpeechDelivery::Events;
    // Waits for the first part, so that an early failure gets its own status: for events a short time, for a file as
    // long as needed, since it has no other way to report an error.
    let first = match has_events {
        true => timeout(settings.commit_after, running.next()).await.ok(),
        false => Some(running.next().await),
    };
    let first = match first {
        Some(Err(error)) => return Err(error),
        first => first,
    };
    let relay = SpeechRelay {
        running: Some(running),
        first,
        sent: 0,
        rate: None,
        kept: SpeechPart::default(),
        encoder: None,
        form: request.form,
        has_events,
        words: Vec::new(),
        said_until: None,
        characters,
        heartbeat: settings.heartbeat,
    };
    let content_type = match has_events {
        true => reply::EVENTS,
        false => request.form.content_type(),
    };
    let pieces = unfold(relay, |mut relay| async move {
        let piece = relay.next().await?;
        Some((piece, relay))
    });
    let mut response = reply::streamed(Body::from_stream(pieces), content_type);
    dress(response.headers_mut(), content_type, job);
    Ok(response)
}

impl SpeechRelay {
    /// The next bytes for the client, `None` at the end. An error aborts the connection, since a file that ends early
    /// looks complete.
    async fn next(&mut self) -> Option<Result<Bytes, BrokenOff>> {
        loop {
            let part = match self.first.take() {
                Some(first) => first,
                None => {
                    let next = self.running.as_mut()?.next();
                    match timeout(self.heartbeat, next).await {
                        Ok(part) => part,
                        Err(_) if self.has_events => return Some(Ok(HEARTBEAT.into())),
                        Err(_) => continue,
                    }
                }
            };
            let piece = match part {
                Ok(EncodePart::Part(ResultPart::Speech(part))) => self.part(*part).await,
                Ok(EncodePart::Part(_)) => Err(unexpected()),
                Ok(EncodePart::End(_)) => return self.end().await,
                Err(error) => Err(error),
            };
            match piece {
                Ok(Some(bytes)) => return Some(Ok(self.wrapped(bytes))),
                Ok(None) => {}
                Err(error) => return Some(self.failed(&error)),
            }
        }
    }

    /// The unsent rest of the part.
    async fn part(&mut self, mut part: SpeechPart) -> Result<Option<Vec<u8>>, ApiError> {
        let words = std::mem::take(&mut part.words).into_iter();
        let said_until = self.said_until;
        let new = words.filter(|word| said_until.is_none_or(|said| word.start > said));
        self.words.extend(new);
        self.said_until = self.words.last().map(|word| word.start).or(said_until);
        if self.form == SpeechForm::Flac {
            take(&mut self.kept, part)?;
            return Ok(None);
        }
        let mut known = SpeechPart {
            at: self.sent,
            rate: self.rate.unwrap_or(part.rate),
            ..SpeechPart::default()
        };
        let rate = part.rate;
        take(&mut known, part)?;
        self.sent = known.end();
        let mut bytes = known.samples.0;
        let is_first = self.rate.replace(rate).is_none();
        if is_first && self.form == SpeechForm::Wav {
            bytes.splice(0..0, endless_wav(rate));
        }
        let new = match self.form {
            SpeechForm::Opus => SpokenFile::opus,
            SpeechForm::Mp3 => SpokenFile::mp3,
            SpeechForm::Wav | SpeechForm::Flac | SpeechForm::Pcm => {
                return Ok((!bytes.is_empty()).then_some(bytes));
            }
        };
        let encoder = match self.encoder.take() {
            Some(encoder) => encoder,
            None => new(rate).map_err(unencoded)?,
        };
        let (encoder, bytes) = encoder.push(bytes).await.map_err(unencoded)?;
        self.encoder = Some(encoder);
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    async fn end(&mut self) -> Option<Result<Bytes, BrokenOff>> {
        self.running = None;
        let rest = match (self.form, self.encoder.take()) {
            (SpeechForm::Flac, _) => file(std::mem::take(&mut self.kept), self.form)
                .await
                .map(Some),
            (_, Some(encoder)) => encoder.finish().map(Some).map_err(unencoded),
            (_, None) => Ok(None),
        };
        let rest = match rest {
            Ok(rest) => rest,
            Err(error) => return Some(self.failed(&error)),
        };
        if !self.has_events {
            return rest.map(|rest| Ok(rest.into()));
        }
        let mut events = String::new();
        let words = std::mem::take(&mut self.words);
        if rest.is_some() || !words.is_empty() {
            let rest = STANDARD.encode(rest.unwrap_or_default());
            events += &event(&delta(&rest, &words));
        }
        events += &event(&done(self.characters, 0));
        Some(Ok(events.into()))
    }

    fn wrapped(&mut self, bytes: Vec<u8>) -> Bytes {
        if !self.has_events {
            return bytes.into();
        }
        let words = std::mem::take(&mut self.words);
        event(&delta(&STANDARD.encode(bytes), &words)).into()
    }

    fn failed(&mut self, error: &ApiError) -> Result<Bytes, BrokenOff> {
        self.running = None;
        match self.has_events {
            true => Ok(event(&error::body(&error.failure, error.param.as_deref())).into()),
            false => Err(BrokenOff),
        }
    }
}

/// An audio stream that was cut off.
#[derive(Debug, thiserror::Error)]
#[error("the speech ended in the middle: its worker was lost or failed")]
struct BrokenOff;

/// Voices of the models that are online, or of one.
pub async fn list_voices(
    State(board): State<Switchboard>,
    State(known): State<Arc<KnownModels>>,
    RawQuery(query): RawQuery,
) -> Result<Reply, ApiError> {
    let overview = board.current().await;
    let asked = parameter(query.as_deref(), "model").map(|name| known.id(&name));
    if let Some(asked) = &asked
        && overview.model(asked).is_none()
    {
        let online: Vec<&str> = overview.models.iter().map(|model| &*model.name).collect();
        return Err(models::unknown(asked, &online, &known));
    }
    let mut voices: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let of_them = overview.models.iter();
    let of_them = of_them.filter(|model| asked.as_ref().is_none_or(|asked| *asked == model.name));
    for model in of_them {
        for name in model.voices.iter() {
            voices.entry(name).or_default().push(&model.name);
        }
    }
    let data: Vec<Value> = voices
        .iter()
        .map(|(name, models)| voice(name, models))
        .collect();
    let names = voices.keys().map(|name| json!({"id": name, "name": name}));
    let names: Vec<Value> = names.collect();
    Ok(Reply(
        json!({"object": "list", "data": data, "voices": names}),
    ))
}
