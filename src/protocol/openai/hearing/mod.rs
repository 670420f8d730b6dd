//! `/v1/audio/transcriptions` and `/v1/audio/translations`: transcripts of audio files.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of a request |
//! | [`languages`] | codes and names of languages |
//! | [`reply`] | a transcript in each form, and as events |
//! | [`schema`] | request and reply as JSON Schema |

mod fields;
pub mod languages;
pub mod reply;
pub mod schema;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

pub use fields::rows;

use self::reply::TranscriptForm;
use super::Problem;
use super::form::FormBody;
use super::media::MediaTracking;

/// The routes that hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HearingDoor {
    Transcribe,
    /// Into English.
    Translate,
}

/// A sound to write down.
#[derive(Debug, Clone, PartialEq)]
pub struct HearingRequest {
    pub model: Arc<str>,
    pub file: Bytes,
    /// Two or three letters.
    pub language: Option<String>,
    pub is_translated: bool,
    pub prompt: Option<String>,
    pub temperature: Option<f64>,
    pub beam_size: Option<u32>,
    pub form: TranscriptForm,
    pub has_segments: bool,
    pub has_words: bool,
    pub is_streamed: bool,
    pub tracking: MediaTracking,
}

impl HearingRequest {
    pub fn transcription(form: FormBody) -> Result<Self, Problem> {
        fields::of_form(HearingDoor::Transcribe, form)
    }

    pub fn transcription_of_json(body: Value) -> Result<Self, Problem> {
        fields::of_json(HearingDoor::Transcribe, body)
    }

    pub fn translation(form: FormBody) -> Result<Self, Problem> {
        fields::of_form(HearingDoor::Translate, form)
    }

    pub fn translation_of_json(body: Value) -> Result<Self, Problem> {
        fields::of_json(HearingDoor::Translate, body)
    }
}

#[cfg(test)]
mod tests {
    use super::reply::TranscriptForm;
    use super::{FormBody, HearingRequest};
    use crate::openai::form::FormFile;

    fn form(texts: &[(&str, &str)]) -> FormBody {
        let texts = texts.iter();
        let texts = texts.map(|(name, text)| (String::from(*name), String::from(*text)));
        FormBody {
            texts: texts.collect(),
            files: vec![FormFile {
                name: "file".to_owned(),
                bytes: vec![1, 2].into(),
            }],
        }
    }

    #[test]
    fn a_form_is_read_with_its_defaults() {
        let read = HearingRequest::transcription(form(&[("model", "whisper-base")])).unwrap();
        assert_eq!(
            (&*read.model, &read.file[..]),
            ("whisper-base", &[1, 2][..])
        );
        assert_eq!(
            (read.form, read.is_translated),
            (TranscriptForm::Json, false)
        );
        let read = HearingRequest::transcription(form(&[
            ("model", "w"),
            ("language", "German"),
            ("response_format", "verbose_json"),
            ("timestamp_granularities[]", "word"),
            ("temperature", "0.5"),
            ("prompt", "names"),
        ]));
        let read = read.unwrap();
        let beams = [("model", "w"), ("beam_size", "5")];
        let found = HearingRequest::translation(form(&beams)).unwrap();
        assert_eq!(found.beam_size, Some(5));
        let drawn = [beams[0], beams[1], ("temperature", "0.5")];
        let refused = HearingRequest::transcription(form(&drawn)).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some("beam_size"));
        assert_eq!(read.language.as_deref(), Some("de"));
        assert_eq!((read.has_words, read.has_segments), (true, false));
        assert_eq!(
            (read.temperature, read.prompt.as_deref()),
            (Some(0.5), Some("names"))
        );
        let later = [("model", "w"), ("async", "true"), ("client_ref", "mine")];
        let read = HearingRequest::translation(form(&later)).unwrap();
        assert!(read.is_translated && read.tracking.is_async);
        assert_eq!(read.tracking.client_ref.as_deref(), Some("mine"));
    }

    #[test]
    fn wrong_fields_are_refused_by_their_names() {
        let check = |texts: &[(&str, &str)], name: &str| {
            let model = [("model", "w")];
            let problem = HearingRequest::transcription(form(&[&model, texts].concat()));
            assert_eq!(problem.unwrap_err().param.as_deref(), Some(name));
        };
        check(&[("language", "klingon")], "language");
        check(&[("response_format", "xml")], "response_format");
        check(&[("temperature", "2")], "temperature");
        check(
            &[("timestamp_granularities[]", "word")],
            "timestamp_granularities",
        );
        check(&[("include[]", "logprobs")], "include");
        check(
            &[("stream", "true"), ("response_format", "srt")],
            "response_format",
        );
        check(&[("voice", "x")], "voice");
        check(&[("async", "true"), ("stream", "true")], "stream");
        check(&[("client_ref", "mine")], "client_ref");
        check(&[("progress_token", "hard-to-guess")], "progress_token");
        let mut two = form(&[("model", "w")]);
        two.files.push(two.files[0].clone());
        assert!(HearingRequest::transcription(two).is_err());
        let mut none = form(&[("model", "w")]);
        none.files.clear();
        let problem = HearingRequest::transcription(none).unwrap_err();
        assert_eq!(problem.param.as_deref(), Some("file"));
        let inline = serde_json::json!({"model": "w", "file": "data:audio/wav;base64,AQI="});
        let read = HearingRequest::transcription_of_json(inline).unwrap();
        assert_eq!(&read.file[..], [1, 2]);
        let problem = HearingRequest::translation(form(&[("model", "w"), ("language", "de")]));
        assert_eq!(problem.unwrap_err().param.as_deref(), Some("language"));
    }
}
