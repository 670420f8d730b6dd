//! A transcript in each form of OpenAI's API.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::languages;
use super::speech::KeptSpeech;
use crate::job::{Transcript, TranscriptSegment, TranscriptWord};

/// The form of a reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TranscriptForm {
    #[default]
    Json,
    Text,
    Srt,
    VerboseJson,
    Vtt,
}

impl TranscriptForm {
    pub const NAMES: [(&'static str, Self); 5] = [
        ("json", Self::Json),
        ("text", Self::Text),
        ("srt", Self::Srt),
        ("verbose_json", Self::VerboseJson),
        ("vtt", Self::Vtt),
    ];

    pub fn named(name: &str) -> Option<Self> {
        let row = Self::NAMES.iter().find(|(one, _)| *one == name);
        row.map(|(_, form)| *form)
    }

    pub fn name(self) -> &'static str {
        let row = Self::NAMES.iter().find(|(_, form)| *form == self);
        row.map_or("json", |(name, _)| *name)
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::VerboseJson => "application/json",
            Self::Text | Self::Srt => "text/plain; charset=utf-8",
            Self::Vtt => "text/vtt; charset=utf-8",
        }
    }
}

/// The requested form of a transcript.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TranscriptDocument {
    pub form: TranscriptForm,
    /// Length of the audio.
    pub millis: u64,
    /// The text is English, whatever the language of the audio.
    pub is_translated: bool,
    pub has_segments: bool,
    pub has_words: bool,
    /// Where only speech was transcribed.
    pub speech: Option<KeptSpeech>,
}

/// A transcript that is complete.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedTranscript {
    pub transcript: Transcript,
    /// Length of the audio.
    pub seconds: f64,
    /// The text is English, whatever the language of the audio.
    pub is_translated: bool,
    pub has_segments: bool,
    pub has_words: bool,
    /// Length of the transcribed audio, which is shorter where only speech was transcribed.
    pub heard_seconds: f64,
}

impl TranscriptDocument {
    pub fn render(&self, transcript: Transcript) -> String {
        let (transcript, heard) = match &self.speech {
            Some(speech) => (speech.restored(transcript), speech.millis),
            None => (transcript, self.millis),
        };
        let finished = FinishedTranscript {
            transcript,
            seconds: self.millis as f64 / 1000.0,
            heard_seconds: heard as f64 / 1000.0,
            is_translated: self.is_translated,
            has_segments: self.has_segments,
            has_words: self.has_words,
        };
        finished.render(self.form)
    }
}

impl FinishedTranscript {
    pub fn render(&self, form: TranscriptForm) -> String {
        match form {
            TranscriptForm::Json => {
                let usage = usage(self.heard_seconds);
                let mut reply = json!({"text": self.transcript.text(), "usage": usage});
                let logprobs = logprobs(&self.transcript);
                if !logprobs.is_empty() {
                    reply["logprobs"] = logprobs.into();
                }
                reply.to_string()
            }
            TranscriptForm::Text => format!("{}\n", self.transcript.text()),
            TranscriptForm::VerboseJson => self.verbose().to_string(),
            TranscriptForm::Srt => srt(&self.transcript.segments),
            TranscriptForm::Vtt => vtt(&self.transcript.segments),
        }
    }

    fn verbose(&self) -> Value {
        let task = match self.is_translated {
            true => "translate",
            false => "transcribe",
        };
        let mut object = Map::new();
        object.insert("task".into(), json!(task));
        let language = languages::name(&self.transcript.language);
        object.insert("language".into(), json!(language));
        object.insert("duration".into(), json!(hundredths(self.seconds)));
        object.insert("text".into(), json!(self.transcript.text()));
        if self.has_segments {
            let segments = self.transcript.segments.iter().enumerate();
            let segments: Vec<Value> = segments.map(|(id, one)| segment(id, one)).collect();
            object.insert("segments".into(), json!(segments));
        }
        if self.has_words {
            let words = self.transcript.segments.iter().flat_map(|one| &one.words);
            let words: Vec<Value> = words.map(word).collect();
            object.insert("words".into(), json!(words));
        }
        object.insert("usage".into(), usage(self.heard_seconds));
        Value::Object(object)
    }
}

/// The usage in OpenAI's form for models billed by time.
pub fn usage(seconds: f64) -> Value {
    json!({"type": "duration", "seconds": seconds.ceil() as u64})
}

/// An event of a stream.
pub fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

/// A part of a text that is streamed, with the log probabilities of its tokens where they were asked for.
pub fn delta(text: &str, part: &Transcript) -> Value {
    let event = json!({"type": "transcript.text.delta", "delta": text});
    with_logprobs(event, part)
}

/// The end of a text that was streamed.
pub fn done(text: &str, seconds: f64, whole: &Transcript) -> Value {
    let event = json!({"type": "transcript.text.done", "text": text, "usage": usage(seconds)});
    with_logprobs(event, whole)
}

fn with_logprobs(mut event: Value, transcript: &Transcript) -> Value {
    let logprobs = logprobs(transcript);
    if !logprobs.is_empty() {
        event["logprobs"] = logprobs.into();
    }
    event
}

fn logprobs(transcript: &Transcript) -> Vec<Value> {
    let tokens = transcript.segments.iter().flat_map(|one| &one.logprobs);
    let tokens = tokens.map(|one| {
        json!({
            "token": one.token,
            "bytes": one.bytes,
            "logprob": short(one.logprob),
        })
    });
    tokens.collect()
}

fn hundredths(seconds: f64) -> f64 {
    (seconds * 100.0).round() / 100.0
}

/// Single numbers without the digits that they gain as double ones.
fn short(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_default()
}

fn segment(id: usize, segment: &TranscriptSegment) -> Value {
    json!({
        "id": id,
        "seek": segment.seek,
        "start": hundredths(segment.start),
        "end": hundredths(segment.end),
        "text": segment.text,
        "tokens": segment.tokens,
        "temperature": short(segment.temperature),
        "avg_logprob": short(segment.avg_logprob),
        "compression_ratio": short(segment.compression_ratio),
        "no_speech_prob": short(segment.no_speech_prob),
    })
}

fn word(word: &TranscriptWord) -> Value {
    json!({
        "word": word.word.trim(),
        "start": hundredths(word.start),
        "end": hundredths(word.end),
    })
}

/// SubRip.
pub fn srt(segments: &[TranscriptSegment]) -> String {
    let mut text = String::new();
    for (index, segment) in segments.iter().enumerate() {
        let (start, end) = (time(segment.start, ','), time(segment.end, ','));
        let number = index + 1;
        let said = segment.text.trim().replace("-->", "->");
        let _ = write!(text, "{number}\n{start} --> {end}\n{said}\n\n");
    }
    text
}

/// WebVTT.
pub fn vtt(segments: &[TranscriptSegment]) -> String {
    let mut text = "WEBVTT\n\n".to_owned();
    for segment in segments {
        let (start, end) = (time(segment.start, '.'), time(segment.end, '.'));
        let said = segment.text.trim().replace("-->", "->");
        let _ = write!(text, "{start} --> {end}\n{said}\n\n");
    }
    text
}

fn time(seconds: f64, point: char) -> String {
    let millis = (seconds.max(0.0) * 1000.0).round() as u64;
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let (seconds, millis) = (millis / 1000 % 60, millis % 1000);
    format!("{hours:02}:{minutes:02}:{seconds:02}{point}{millis:03}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{FinishedTranscript, TranscriptForm};
    use crate::job::{Transcript, TranscriptSegment, TranscriptWord};

    fn finished() -> FinishedTranscript {
        let word = |word: &str, start, end| TranscriptWord {
            word: word.to_owned(),
            start,
            end,
            probability: 0.5,
        };
        let segment = |start, end, text: &str, words| TranscriptSegment {
            start,
            end,
            text: text.to_owned(),
            tokens: vec![1, 2],
            avg_logprob: -0.1,
            words,
            ..TranscriptSegment::default()
        };
        let segments = vec![
            segment(
                0.0,
                1.5,
                " Hello there.",
                vec![word(" Hello", 0.0, 0.7), word(" there.", 0.7, 1.5)],
            ),
            segment(3661.25, 3662.0, " Good --> bye.", Vec::new()),
        ];
        FinishedTranscript {
            transcript: Transcript {
                language: "de".to_owned(),
                segments,
            },
            seconds: 3662.004,
            heard_seconds: 3662.004,
            is_translated: false,
            has_segments: true,
            has_words: false,
        }
    }

    #[test]
    fn subtitles_have_the_times_of_their_segments() {
        let srt = "1\n00:00:00,000 --> 00:00:01,500\nHello there.\n\n\
                   2\n01:01:01,250 --> 01:01:02,000\nGood -> bye.\n\n";
        assert_eq!(finished().render(TranscriptForm::Srt), srt);
        let vtt = "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello there.\n\n\
                   01:01:01.250 --> 01:01:02.000\nGood -> bye.\n\n";
        assert_eq!(finished().render(TranscriptForm::Vtt), vtt);
    }

    #[test]
    fn json_is_in_the_shape_that_clients_know() {
        let text = "Hello there. Good --> bye.";
        assert_eq!(finished().render(TranscriptForm::Text), format!("{text}\n"));
        let plain: Value = serde_json::from_str(&finished().render(TranscriptForm::Json)).unwrap();
        let usage = json!({"type": "duration", "seconds": 3663});
        assert_eq!(plain, json!({"text": text, "usage": usage}));
        let verbose = |finished: FinishedTranscript| -> Value {
            serde_json::from_str(&finished.render(TranscriptForm::VerboseJson)).unwrap()
        };
        let found = verbose(finished());
        assert_eq!(
            (&found["language"], &found["duration"]),
            (&json!("german"), &json!(3662.0))
        );
        assert_eq!(found["segments"][1]["start"], json!(3661.25));
        assert_eq!(found["segments"][0]["avg_logprob"], json!(-0.1));
        assert!(found.get("words").is_none());
        let words = FinishedTranscript {
            has_segments: false,
            has_words: true,
            ..finished()
        };
        let found = verbose(words);
        assert!(found.get("segments").is_none());
        assert_eq!(
            found["words"][1],
            json!({"word": "there.", "start": 0.7, "end": 1.5})
        );
    }
}
