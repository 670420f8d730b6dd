//! What a job has brought: the one output of it, as far as it is there, and as it is kept on disk.

use serde::{Deserialize, Serialize};

use super::{Event, FinishReason, Kind};

#[derive(Debug, Clone, PartialEq)]
pub enum Product {
    Text(Text),
    Media(Media),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// What was written so far. Of a question about an image, the answer as JSON.
    pub text: String,
    pub note: Note,
}

/// What a worker says about a text that it brings whole, as clients of the poll API read it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// That it was written with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
}

/// So a text begins that is stored with a note.
const NOTED: &str = "{\"text\":";

/// A finished output in the media store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Media {
    pub index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    pub key: String,
    pub content_type: String,
    /// Where whoever made it has told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<Remark>,
}

/// What a worker has to say about an output, as clients of the poll API read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// What it is about.
    pub r#type: String,
    /// What happened.
    pub value: String,
    /// Which of them, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#ref: Option<String>,
}

/// Why what was made is not to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hidden {
    Censored,
    /// Its worker takes it for the abuse of a child.
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
            _ => {}
        }
    }

    pub fn is_empty(&self) -> bool {
        self.text().is_empty() && self.media().is_none()
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => &text.text,
            Self::Media(_) => "",
        }
    }

    /// What its worker says about a text.
    pub fn note_of_text(&self) -> Option<&Note> {
        match self {
            Self::Text(text) => Some(&text.note),
            Self::Media(_) => None,
        }
    }

    pub fn media(&self) -> Option<&Media> {
        match self {
            Self::Text(_) => None,
            Self::Media(media) => Some(media),
        }
    }

    /// As it is kept with the request, which knows its kind.
    pub fn stored(self) -> String {
        // A struct of texts and numbers is always JSON.
        match self {
            Self::Text(text) if text.is_plain() => text.text,
            Self::Text(text) => serde_json::to_string(&text).unwrap_or_default(),
            Self::Media(media) => serde_json::to_string(&media).unwrap_or_default(),
        }
    }

    /// What [`Self::stored`] has written.
    pub fn from_stored(kind: Kind, text: &str) -> Self {
        let plain = || Self::from(text.to_owned());
        match kind {
            Kind::Text | Kind::Interrogation if text.starts_with(NOTED) => {
                serde_json::from_str(text).map_or_else(|_| plain(), Self::Text)
            }
            Kind::Text | Kind::Interrogation => plain(),
            _ => serde_json::from_str(text).map_or_else(|_| plain(), Self::Media),
        }
    }
}

impl Text {
    /// It is stored as it is, and read again as it was.
    fn is_plain(&self) -> bool {
        self.note == Note::default() && !self.text.starts_with(NOTED)
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
    use crate::job::{Event, Kind, TokenEvent};

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
            "",
        ];
        for text in texts.map(str::to_owned) {
            check(Kind::Text, Product::from(text.clone()));
            check(Kind::Interrogation, Product::from(text.clone()));
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
}
