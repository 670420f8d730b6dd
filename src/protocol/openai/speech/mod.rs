//! `/v1/audio/speech`: a text, spoken.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of a request |
//! | `voices` | the voice that a client names |
//! | [`schema`] | request and reply as JSON Schema |

mod fields;
pub mod schema;
mod voices;

use std::sync::Arc;

use serde_json::{Value, json};

use super::field::{self, FieldRow};
use super::media::MediaTracking;
use super::shape::kind;
use super::{Problem, Strictness};
use crate::job::SpokenWord;

pub use voices::resolve;

use fields::{FIELDS, SpeechDraft};

/// A text to speak.
#[derive(Debug, Clone, PartialEq)]
pub struct VoicedText {
    pub model: Arc<str>,
    pub text: String,
    /// None: the model's usual one.
    pub voice: Option<String>,
    pub speed: Option<f64>,
    /// `None`: a random one for the request.
    pub seed: Option<u64>,
    pub form: SpeechForm,
    pub delivery: SpeechDelivery,
    /// With the time of each word.
    pub wants_words: bool,
    pub tracking: MediaTracking,
    /// Fields without an effect, for the header that names them.
    pub ignored: Vec<String>,
}

/// The file of a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpeechForm {
    /// As in OpenAI's API.
    #[default]
    Mp3,
    Wav,
    Flac,
    /// In an Ogg file.
    Opus,
    /// Samples of 16 bits without a header, lower byte first.
    Pcm,
}

/// How a reply leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpeechDelivery {
    /// Whole; samples without a header as they are spoken.
    #[default]
    Usual,
    /// As an audio stream.
    Audio,
    /// As a stream of events.
    Events,
}

impl SpeechForm {
    pub const NAMES: [(&'static str, Self); 5] = [
        ("mp3", Self::Mp3),
        ("wav", Self::Wav),
        ("flac", Self::Flac),
        ("opus", Self::Opus),
        ("pcm", Self::Pcm),
    ];

    pub fn named(name: &str) -> Option<Self> {
        let row = Self::NAMES.iter().find(|(one, _)| *one == name);
        row.map(|(_, form)| *form)
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Mp3 => "audio/mpeg",
            Self::Wav => "audio/wav",
            Self::Flac => "audio/flac",
            Self::Opus => "audio/ogg",
            Self::Pcm => "audio/pcm",
        }
    }
}

/// Every field of a request.
pub fn rows() -> Vec<FieldRow> {
    field::rows(FIELDS)
}

impl VoicedText {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let Value::Object(entries) = body else {
            let found = kind(&body);
            let message = format!("the body must be a JSON object, found {found}");
            return Err(Problem::malformed(message));
        };
        let mut draft = SpeechDraft::default();
        field::read(FIELDS, entries, Strictness::Refuse, &mut draft)?;
        draft.finish()
    }
}

/// The event of the next bytes, which are base64 here, and of words where their times were asked for.
pub fn delta(audio: &str, words: &[SpokenWord]) -> Value {
    let mut event = json!({"type": "speech.audio.delta", "audio": audio});
    if !words.is_empty() {
        event["timestamps"] = timestamps(words);
    }
    event
}

/// A whole file, which is base64 here, with the times of its words, as Kokoro-FastAPI replies.
pub fn captioned(audio: &str, form: SpeechForm, words: &[SpokenWord]) -> Value {
    json!({
        "audio": audio,
        "audio_format": form.content_type(),
        "timestamps": timestamps(words),
    })
}

fn timestamps(words: &[SpokenWord]) -> Value {
    let millis = |seconds: f64| (seconds * 1000.0).round() / 1000.0;
    let words = words.iter().map(|word| {
        json!({
            "word": word.word,
            "start_time": millis(word.start),
            "end_time": millis(word.end),
        })
    });
    words.collect()
}

/// The last event.
pub fn done(input_tokens: u64, output_tokens: u64) -> Value {
    json!({
        "type": "speech.audio.done",
        "usage": {
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
        },
    })
}

/// A voice of the list, and the models that have it.
pub fn voice(name: &str, models: &[&str]) -> Value {
    json!({"id": name, "object": "voice", "name": name, "models": models})
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{SpeechDelivery, SpeechForm, VoicedText};

    #[test]
    fn a_request_is_read_with_its_defaults() {
        let read = VoicedText::read(json!({"model": "speaks", "input": "Hello."})).unwrap();
        assert_eq!((&*read.model, &*read.text), ("speaks", "Hello."));
        assert_eq!((read.voice, read.speed), (None, None));
        assert_eq!(
            (read.form, read.delivery),
            (SpeechForm::Mp3, SpeechDelivery::Usual)
        );
        let read = VoicedText::read(json!({
            "model": "speaks", "input": "Hello.", "voice": {"id": "a+b"}, "speed": 2,
            "response_format": "opus", "stream_format": "sse", "instructions": "whisper", "seed": 7,
        }));
        let read = read.unwrap();
        assert_eq!(
            (read.voice.as_deref(), read.speed),
            (Some("a+b"), Some(2.0))
        );
        assert_eq!(
            (read.form, read.delivery),
            (SpeechForm::Opus, SpeechDelivery::Events)
        );
        assert_eq!(
            (read.seed, read.ignored),
            (Some(7), vec!["instructions".to_owned()])
        );
    }

    #[test]
    fn wrong_fields_are_refused_by_their_names() {
        let check = |mut body: Value, name: &str| {
            for (field, usual) in [("model", json!("m")), ("input", json!("a"))] {
                if body.get(field).is_none() {
                    body[field] = usual;
                }
            }
            let problem = VoicedText::read(body).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some(name));
            problem.to_string()
        };
        check(json!({"input": " "}), "input");
        check(json!({"input": "a".repeat(16_385)}), "input");
        check(json!({"input": "a".repeat(16_384), "speed": 0.5}), "input");
        check(json!({"input": 7}), "input");
        check(json!({"model": ""}), "model");
        check(json!({"voice": ""}), "voice");
        check(json!({"voice": {"name": "a"}}), "voice");
        check(json!({"speed": 0}), "speed");
        check(json!({"speed": 4.5}), "speed");
        check(json!({"instructions": 7}), "instructions");
        check(json!({"seed": -1}), "seed");
        check(json!({"stream_format": "ogg"}), "stream_format");
        check(json!({"return_timestamps": "yes"}), "return_timestamps");
        check(
            json!({"return_timestamps": true, "stream_format": "audio"}),
            "return_timestamps",
        );
        check(
            json!({"return_timestamps": true, "async": true}),
            "return_timestamps",
        );
        let message = check(json!({"response_format": "aac"}), "response_format");
        assert!(message.contains("mp3, wav, flac, opus or pcm"), "{message}");
        check(
            json!({"response_format": "flac", "stream_format": "audio"}),
            "stream_format",
        );
        check(json!({"voices": "a"}), "voices");
        check(json!({"client_ref": "mine"}), "client_ref");
        check(json!({"progress_token": "hard-to-guess"}), "progress_token");
        check(
            json!({"async": true, "stream_format": "sse"}),
            "stream_format",
        );
        let message = check(
            json!({"async": true, "response_format": "pcm"}),
            "response_format",
        );
        assert!(message.contains("wav"), "{message}");
        assert!(VoicedText::read(json!({"input": "a"})).is_err());
        assert!(VoicedText::read(json!([])).is_err());
    }
}
