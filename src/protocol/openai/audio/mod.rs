//! `/v1/audio/generations`: music from a prompt and lyrics, a route of our own.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of a request |
//! | [`schema`] | request and reply as JSON Schema |

mod fields;
pub mod schema;

use std::sync::Arc;

use serde_json::Value;

use super::field::{self, FieldRow};
use super::media::{MediaEncoding, MediaTracking};
use super::shape::kind;
use super::{Problem, Strictness};
use crate::job::MusicRequest;

use fields::{FIELDS, MusicDraft};

/// A sound to make.
#[derive(Debug, Clone, PartialEq)]
pub struct AudioRequest {
    /// `None` if any music model will do.
    pub model: Option<Arc<str>>,
    pub music: MusicRequest,
    pub tracking: MediaTracking,
    pub encoding: MediaEncoding,
}

/// Every field of a request.
pub fn rows() -> Vec<FieldRow> {
    field::rows(FIELDS)
}

impl AudioRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let Value::Object(entries) = body else {
            let found = kind(&body);
            let message = format!("the body must be a JSON object, found {found}");
            return Err(Problem::malformed(message));
        };
        let mut draft = MusicDraft::default();
        field::read(FIELDS, entries, Strictness::Refuse, &mut draft)?;
        draft.finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::AudioRequest;
    use crate::job::{Capabilities, JobRequest, SoundFormat};

    #[test]
    fn a_request_is_read_with_its_defaults() {
        let read = AudioRequest::read(json!({"prompt": "a calm piano"})).unwrap();
        assert_eq!(read.music.prompt, "a calm piano");
        assert_eq!((read.music.seconds, read.music.steps), (30.0, None));
        assert_eq!(read.music.format, SoundFormat::Wav);
        let read = AudioRequest::read(json!({
            "prompt": "a", "lyrics": "la", "seconds": 12.5, "inference_steps": 4, "seed": 9,
            "response_format": "opus", "bpm": 120, "key_scale": "C# minor", "time_signature": "3/4",
        }));
        let music = read.unwrap().music;
        assert_eq!(
            (music.millis(), music.steps, music.seed),
            (12_500, Some(4), Some(9))
        );
        assert_eq!(music.format, SoundFormat::Opus);
        assert_eq!(music.key_scale.as_deref(), Some("C# minor"));
        let mp3 = json!({"prompt": "a", "response_format": "mp3"});
        let mp3 = AudioRequest::read(mp3).unwrap().music;
        // Older workers do not know it.
        assert_eq!(mp3.limits().requires, Capabilities::MP3);
        assert_eq!(music.limits().requires, Capabilities::default());
    }

    #[test]
    fn wrong_fields_are_refused_by_their_names() {
        let check = |mut body: Value, name: &str| {
            if body.get("prompt").is_none() {
                body["prompt"] = json!("a");
            }
            let problem = AudioRequest::read(body).unwrap_err();
            assert_eq!(problem.param.as_deref(), Some(name));
        };
        check(json!({"prompt": " "}), "prompt");
        check(json!({"prompt": "a".repeat(2001)}), "prompt");
        check(json!({"lyrics": "a".repeat(20_001)}), "lyrics");
        check(json!({"seconds": 0.5}), "seconds");
        check(json!({"seconds": 601}), "seconds");
        check(json!({"inference_steps": 0}), "inference_steps");
        check(json!({"bpm": 29}), "bpm");
        check(json!({"key_scale": "H major"}), "key_scale");
        check(json!({"time_signature": "5/4"}), "time_signature");
        check(json!({"vocal_language": "EN"}), "vocal_language");
        check(json!({"response_format": "aac"}), "response_format");
        check(json!({"worker": "rig"}), "worker");
        check(json!({"secnds": 1}), "secnds");
        assert!(AudioRequest::read(json!({})).is_err());
    }
}
