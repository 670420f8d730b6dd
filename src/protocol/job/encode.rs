//! Text jobs that do not write text: tokens, vectors, scores, what a sound says, or a text as sound.
//!
//! Serde derives stand here because requests and results cross the wire to our own workers as they are.

use serde::{Deserialize, Serialize};

use super::music::spoken_millis;
use super::{SpeechPart, SpeechRequest, TextInput, Transcript, TranscriptRequest};

/// The work of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncodeRequest {
    /// The tokens of a text, or of a chat as the model's template renders it.
    Tokenize {
        input: TextInput,
        /// Let the tokenizer add its own tokens (BOS and the like). Without: yes for a text; for a chat no, because
        /// templates write these tokens themselves.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        add_special_tokens: Option<bool>,
        /// Return the text of each token, too.
        #[serde(default)]
        with_strings: bool,
    },
    /// The text of tokens.
    Detokenize { tokens: Vec<u32> },
    /// One vector for each input.
    Embed {
        inputs: Vec<TextInput>,
        /// The place of the first among the inputs of the request, for errors.
        #[serde(default)]
        first: usize,
        /// Shorten vectors to so many numbers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dimensions: Option<u32>,
    },
    /// For each document, how well it answers the query.
    Rerank {
        query: String,
        documents: Vec<String>,
        /// The place of the first among the documents of the request, for errors.
        #[serde(default)]
        first: usize,
    },
    /// What a sound says.
    Transcribe(Box<TranscriptRequest>),
    /// A text, spoken.
    Speak(Box<SpeechRequest>),
}

/// The result of a job: whole, but for a transcript and a speech, which come in parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncodeResult {
    Tokens(TokenList),
    Text(String),
    Vectors(Vec<Vector>),
    Scores(Vec<f32>),
    Transcript(Box<Transcript>),
    Speech(Box<SpeechPart>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenList {
    pub ids: Vec<u32>,
    /// Where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strings: Option<Vec<String>>,
    /// The model's context on the worker that answers.
    #[serde(default)]
    pub context: u32,
}

/// An embedding, whose serde form is its bytes in hexadecimal digits: as numbers a batch would have more values than a
/// frame may have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Vector(pub Vec<f32>);

impl EncodeRequest {
    /// The texts that it reads, in bytes; a token counts as four.
    pub fn size(&self) -> usize {
        let input = |input: &TextInput| match input {
            TextInput::Prompt(text) => text.len(),
            TextInput::Tokens(tokens) => 4 * tokens.len(),
            TextInput::Chat(chat) => {
                let values = chat.messages.iter().chain(&chat.tools);
                values.map(|value| value.to_string().len()).sum()
            }
        };
        match self {
            Self::Tokenize { input: one, .. } => input(one),
            Self::Detokenize { tokens } => 4 * tokens.len(),
            Self::Embed { inputs, .. } => inputs.iter().map(input).sum(),
            Self::Rerank {
                query, documents, ..
            } => documents
                .iter()
                .map(|document| query.len() + document.len())
                .sum(),
            Self::Transcribe(transcript) => transcript.prompt.as_ref().map_or(0, String::len),
            Self::Speak(speech) => speech.text.len(),
        }
    }

    /// About as many tokens as a network reads for it; one where none does.
    pub fn tokens(&self) -> u64 {
        match self {
            Self::Transcribe(transcript) => transcript.tokens(),
            Self::Speak(speech) => speech.tokens(),
            _ if self.is_computed() => (self.size() as u64 / 4).max(1),
            _ => 1,
        }
    }

    /// Seconds of sound that a job transcribes or synthesizes; none for other jobs.
    pub fn sound_seconds(&self) -> Option<u64> {
        match self {
            Self::Transcribe(transcript) => Some(transcript.millis().div_ceil(1000)),
            Self::Speak(speech) => Some(spoken_millis(speech.tokens()).div_ceil(1000)),
            _ => None,
        }
    }

    /// Whether a network computes it, and not the tokenizer alone.
    pub fn is_computed(&self) -> bool {
        matches!(
            self,
            Self::Embed { .. } | Self::Rerank { .. } | Self::Transcribe(_) | Self::Speak(_)
        )
    }
}

impl EncodeResult {
    /// About as many bytes as it takes in memory.
    pub fn weight(&self) -> usize {
        match self {
            Self::Tokens(tokens) => {
                let strings = tokens.strings.iter().flatten();
                4 * tokens.ids.len() + strings.map(|text| 24 + text.len()).sum::<usize>()
            }
            Self::Text(text) => text.len(),
            Self::Vectors(vectors) => vectors.iter().map(|vector| 24 + 4 * vector.0.len()).sum(),
            Self::Scores(scores) => 4 * scores.len(),
            Self::Transcript(transcript) => transcript.weight(),
            Self::Speech(part) => part.samples.0.len() + 24,
        }
    }
}

impl Serialize for Vector {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(8 * self.0.len());
        for byte in self.0.iter().flat_map(|number| number.to_le_bytes()) {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Vector {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let text = String::deserialize(deserializer)?;
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(8) {
            let message = "the digits of a vector must be a multiple of 8";
            return Err(D::Error::custom(message));
        }
        let number = |digits: &[u8]| {
            // The standard library would let a sign pass.
            let text = std::str::from_utf8(digits).ok()?;
            let is_plain = digits.iter().all(u8::is_ascii_hexdigit);
            let text = is_plain.then_some(text)?;
            let swapped = u32::from_str_radix(text, 16).ok()?;
            Some(f32::from_bits(swapped.swap_bytes()))
        };
        let numbers = digits.chunks_exact(8).map(number);
        let numbers: Option<Vec<f32>> = numbers.collect();
        numbers
            .map(Self)
            .ok_or_else(|| D::Error::custom("a vector must consist of hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{EncodeResult, Vector};

    #[test]
    fn a_vector_crosses_the_wire_bit_for_bit() {
        let vectors = vec![
            Vector(vec![0.1, -2.5, f32::MIN_POSITIVE]),
            Vector::default(),
        ];
        let encoded = EncodeResult::Vectors(vectors);
        let text = serde_json::to_string(&encoded).unwrap();
        assert_eq!(
            serde_json::from_str::<EncodeResult>(&text).unwrap(),
            encoded
        );
        let one = serde_json::to_value(Vector(vec![1.0])).unwrap();
        assert_eq!(one, json!("0000803f"));
    }

    #[test]
    fn a_broken_vector_is_refused() {
        for broken in ["0000803", "0000803g", "+000803f", "ππππ"] {
            let read = serde_json::from_value::<Vector>(json!(broken));
            assert!(read.is_err(), "{broken}");
        }
    }
}
