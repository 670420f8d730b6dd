//! `/v1/audio/transcriptions` and `/v1/audio/translations`: transcripts of audio files.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of a request |
//! | [`languages`] | codes and names of languages |
//! | [`reply`] | a transcript in each form, and as events |
//! | [`schema`] | request and reply as JSON Schema |
//! | [`speech`] | voice activity detection: its settings, and times of the whole sound |

mod fields;
pub mod languages;
pub mod reply;
pub mod schema;
pub mod speech;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

pub use fields::rows;

use self::reply::TranscriptForm;
use self::speech::SpeechSettings;
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
    /// Two or more, without `language`.
    pub languages: Vec<String>,
    pub is_translated: bool,
    pub prompt: Option<String>,
    pub temperature: Option<f64>,
    pub beam_size: Option<u32>,
    /// Only speech is transcribed.
    pub speech: Option<SpeechSettings>,
    pub form: TranscriptForm,
    pub has_segments: bool,
    pub has_words: bool,
    pub has_logprobs: bool,
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
    use super::speech::SpeechSettings;
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
    fn keywords_join_the_prompt_and_one_language_is_the_language() {
        let read = |texts: &[(&str, &str)]| {
            let model = [("model", "w")];
            HearingRequest::transcription(form(&[&model, texts].concat())).unwrap()
        };
        let words = [("keywords[]", "Muster"), ("keywords[]", " kudos ")];
        assert_eq!(read(&words).prompt.as_deref(), Some("Muster, kudos."));
        let both = [words[0], words[1], ("prompt", "A talk.")];
        assert_eq!(
            read(&both).prompt.as_deref(),
            Some("Muster, kudos. A talk.")
        );
        let found = read(&[("languages[]", "de")]);
        assert_eq!(found.language.as_deref(), Some("de"));
        let two = [("languages[]", "de"), ("languages[]", "English")];
        let found = read(&[two[0], ("language", "German")]);
        assert_eq!(found.language.as_deref(), Some("de"));
        let found = read(&[two[0], two[1], two[0]]);
        assert_eq!(
            (found.language, found.languages.join(" ").as_str()),
            (None, "de en")
        );
        let found = read(&[two[0], two[1], ("language", "en")]);
        assert_eq!(
            (found.language.as_deref(), found.languages.len()),
            (Some("en"), 0)
        );
    }

    #[test]
    fn speech_alone_is_transcribed_where_either_field_says_so() {
        let read = |name: &str, text: &str| {
            let texts = [("model", "w"), (name, text)];
            HearingRequest::transcription(form(&texts)).unwrap().speech
        };
        assert_eq!(read("vad_filter", "false"), None);
        assert_eq!(read("chunking_strategy", "auto"), None);
        assert_eq!(read("vad_filter", "true"), Some(SpeechSettings::default()));
        let set = r#"{"type": "server_vad", "threshold": 0.3, "prefix_padding_ms": 200, "silence_duration_ms": 900}"#;
        let expected = SpeechSettings {
            threshold: 0.3,
            silence_millis: 900,
            padding_millis: 200,
        };
        assert_eq!(read("chunking_strategy", set), Some(expected));
        let plain = r#"{"type": "server_vad"}"#;
        assert_eq!(
            read("chunking_strategy", plain),
            Some(SpeechSettings::default())
        );
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
        check(&[("include[]", "usage")], "include");
        check(
            &[("include[]", "logprobs"), ("response_format", "text")],
            "include",
        );
        check(
            &[("languages[]", "en"), ("languages[]", "klingon")],
            "languages",
        );
        check(&[("languages[]", "klingon")], "languages");
        check(&[("languages[]", "de"), ("language", "en")], "languages");
        check(&[("keywords[]", "  ")], "keywords");
        check(&[("known_speaker_names[]", "Ann")], "known_speaker_names");
        check(&[("chunking_strategy", "{}")], "chunking_strategy.type");
        check(
            &[(
                "chunking_strategy",
                r#"{"type": "server_vad", "threshold": 2}"#,
            )],
            "chunking_strategy.threshold",
        );
        check(
            &[("chunking_strategy", r#"{"type": "server_vad", "speed": 2}"#)],
            "chunking_strategy.speed",
        );
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
