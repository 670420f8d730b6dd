//! The output of a job: so far, and as stored.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Event, FinishReason, Kind, ResultPart, Transcript};

#[derive(Debug, Clone, PartialEq)]
pub enum Product {
    Text(Text),
    Media(Media),
    /// A transcript so far.
    Transcript(Box<Transcript>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// Text so far; for an interrogation, the result as JSON.
    pub text: String,
    pub note: Note,
}

/// A worker's remarks about a whole text, for clients of the AI Horde API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// The seed that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
}

/// So a text begins that is stored with a note.
const NOTED: &str = "{\"text\":";
/// So a stored transcript begins.
const HEARD: &str = "{\"transcript\":";

/// A transcript as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTranscript {
    transcript: Box<Transcript>,
}

/// A finished output in the media store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Media {
    pub index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    pub key: String,
    pub content_type: String,
    /// Set if the worker reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Width and height as the job had them when it was handed out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<(u32, u32)>,
    /// The length of a video as the job had it then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub millis: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
}

/// A worker's remark about an output, for clients of the AI Horde API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// Subject of the remark.
    pub r#type: String,
    /// The remark itself.
    pub value: String,
    /// Which of them, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#ref: Option<String>,
}

/// Why an output must not be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    Censored,
    /// The worker reports it as child sexual abuse material.
    Unlawful,
}

impl Hidden {
    /// How a job ends whose worker hides the result.
    pub fn finish(self) -> FinishReason {
        match self {
            Self::Censored => FinishReason::ContentFilter,
            Self::Unlawful => FinishReason::Unlawful,
        }
    }

    pub fn of(finish: &FinishReason) -> Option<Self> {
        match finish {
            FinishReason::ContentFilter => Some(Self::Censored),
            FinishReason::Unlawful => Some(Self::Unlawful),
            _ => None,
        }
    }
}

impl Product {
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Token(token) => {
                if let Self::Text(text) = self {
                    text.text.push_str(&token.text);
                }
            }
            Event::Note(note) => {
                if let Self::Text(text) = self {
                    text.note.clone_from(note);
                }
            }
            Event::Media(media) => *self = Self::Media(media.clone()),
            Event::Part(result) => match &**result {
                ResultPart::Transcript(part) => self.hear(part),
                ResultPart::Form(answer) => *self = Self::answer(&json!(answer), ""),
                _ => {}
            },
            // A transcript begins anew with its job.
            Event::Restarted if self.transcript().is_some() => *self = Self::default(),
            _ => {}
        }
    }

    /// The answer to a form, and the key of the image that was made for it, if there is one.
    pub fn answer(result: &Value, image: &str) -> Self {
        Self::from(json!({"result": result, "image": image}).to_string())
    }

    /// The next part of a transcript, whose first part has no text.
    fn hear(&mut self, part: &Transcript) {
        match self {
            Self::Transcript(heard) if !part.segments.is_empty() => heard.absorb(part.clone()),
            _ => *self = Self::Transcript(Box::new(part.clone())),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.text.is_empty(),
            Self::Media(_) | Self::Transcript(_) => false,
        }
    }

    /// Whether it is of use to its client where its job was cancelled.
    pub fn is_of_use_in_part(&self) -> bool {
        match self {
            Self::Text(text) => !text.text.is_empty(),
            Self::Media(_) => true,
            Self::Transcript(_) => false,
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => &text.text,
            Self::Media(_) | Self::Transcript(_) => "",
        }
    }

    pub fn transcript(&self) -> Option<&Transcript> {
        match self {
            Self::Transcript(transcript) => Some(transcript),
            Self::Text(_) | Self::Media(_) => None,
        }
    }

    /// A worker's remarks about a text.
    pub fn note_of_text(&self) -> Option<&Note> {
        match self {
            Self::Text(text) => Some(&text.note),
            Self::Media(_) | Self::Transcript(_) => None,
        }
    }

    pub fn media(&self) -> Option<&Media> {
        match self {
            Self::Media(media) => Some(media),
            Self::Text(_) | Self::Transcript(_) => None,
        }
    }

    /// The stored form; the request it is stored with knows the kind.
    pub fn stored(self) -> String {
        // A struct of texts and numbers is always JSON.
        match self {
            Self::Text(text) if text.is_plain() => text.text,
            Self::Text(text) => serde_json::to_string(&text).unwrap_or_default(),
            Self::Media(media) => serde_json::to_string(&media).unwrap_or_default(),
            Self::Transcript(transcript) => {
                serde_json::to_string(&StoredTranscript { transcript }).unwrap_or_default()
            }
        }
    }

    /// Parses the stored form.
    pub fn from_stored(kind: Kind, text: &str) -> Self {
        let plain = || Self::from(text.to_owned());
        match kind {
            Kind::Text | Kind::Form if text.starts_with(NOTED) => {
                serde_json::from_str(text).map_or_else(|_| plain(), Self::Text)
            }
            // Stored as a text by earlier versions.
            Kind::Text | Kind::Transcription | Kind::Music if text.starts_with(HEARD) => {
                let read = serde_json::from_str::<StoredTranscript>(text);
                read.map_or_else(|_| plain(), |read| Self::Transcript(read.transcript))
            }
            Kind::Text | Kind::Form => plain(),
            _ => serde_json::from_str(text).map_or_else(|_| plain(), Self::Media),
        }
    }
}

impl Text {
    /// Whether the bare text is stored and reads back unchanged.
    fn is_plain(&self) -> bool {
        let is_marked = [NOTED, HEARD]
            .iter()
            .any(|mark| self.text.starts_with(mark));
        self.note == Note::default() && !is_marked
    }
}

impl Default for Product {
    fn default() -> Self {
        Self::Text(Text::default())
    }
}

impl From<String> for Product {
    fn from(text: String) -> Self {
        let note = Note::default();
        Self::Text(Text { text, note })
    }
}

#[cfg(test)]
mod tests {
    use super::{Media, Note, Product, Remark, Text};
    use crate::job::{Event, Kind, ResultPart, TokenEvent, Transcript, TranscriptSegment};

    #[test]
    fn what_is_stored_is_read_again_by_its_kind() {
        let media = Media {
            seed: Some(7),
            key: "a/b.webp".to_owned(),
            remarks: vec![Remark {
                r#type: "lora".to_owned(),
                value: "download_failed".to_owned(),
                r#ref: None,
            }],
            ..Media::default()
        };
        let check = |kind, product: Product| {
            let stored = product.clone().stored();
            assert_eq!(Product::from_stored(kind, &stored), product, "{stored}");
        };
        check(Kind::Image, Product::Media(media));
        check(Kind::Image, Product::default());
        let texts = [
            r#"{"key": "a text"}"#,
            r#"{"text":"","note":{}}"#,
            r#"{"text":"#,
            r#"{"transcript":{"language":"en","segments":[]}}"#,
            r#"{"transcript":7"#,
            "",
        ];
        for text in texts.map(str::to_owned) {
            check(Kind::Text, Product::from(text.clone()));
            check(Kind::Form, Product::from(text.clone()));
            let (seed, remarks) = (Some(-7), Vec::new());
            let note = Note { seed, remarks };
            check(Kind::Text, Product::Text(Text { text, note }));
        }
        assert_eq!(Product::from("plain".to_owned()).stored(), "plain");
    }

    #[test]
    fn texts_grow_and_an_image_is_there_at_once() {
        let mut product = Product::default();
        let token = |text: &str| {
            Event::Token(TokenEvent {
                text: text.to_owned(),
                ..TokenEvent::default()
            })
        };
        assert!(product.is_empty());
        product.note(&token("one "));
        product.note(&token("two"));
        assert_eq!(product.text(), "one two");
        product.note(&Event::Media(Media::default()));
        assert!(product.media().is_some() && !product.is_empty());
    }

    #[test]
    fn a_transcript_grows_and_begins_anew_with_its_job() {
        let part = |texts: &[&str]| {
            let segments = texts.iter().map(|text| TranscriptSegment {
                text: (*text).to_owned(),
                ..TranscriptSegment::default()
            });
            let transcript = Transcript {
                language: "en".to_owned(),
                segments: segments.collect(),
            };
            Event::Part(Box::new(ResultPart::Transcript(Box::new(transcript))))
        };
        let mut product = Product::default();
        for part in [part(&[]), part(&[" one"]), part(&[" two", " three"])] {
            product.note(&part);
        }
        assert_eq!(product.transcript().unwrap().text(), "one two three");
        let stored = product.clone().stored();
        assert_eq!(Product::from_stored(Kind::Text, &stored), product);
        assert!(!product.is_empty() && !product.is_of_use_in_part());
        product.note(&Event::Restarted);
        assert!(product.is_empty());
        product.note(&part(&[" four"]));
        assert_eq!(product.transcript().unwrap().text(), "four");
    }
}
