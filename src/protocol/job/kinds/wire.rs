//! Requests as they are written: on the link to our own workers, and on disk. Each has the name under which workers and
//! databases know it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Body, DetokenizeInput, EmbeddingRequest, FormRequest, MediaJson, RankingRequest, SpeechRequest,
    TextInput, TokenizeInput, TokensRequest, TranscriptionRequest,
};

/// A request whose output comes as values, or as an answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ValuesJson<'a> {
    Tokenize(Cow<'a, TokenizeInput>),
    Detokenize(Cow<'a, DetokenizeInput>),
    Embed(Cow<'a, EmbeddingRequest>),
    Rerank(Cow<'a, RankingRequest>),
    Transcribe(Cow<'a, TranscriptionRequest>),
    Speak(Cow<'a, SpeechRequest>),
    Form(Cow<'a, FormRequest>),
}

/// Requests whose output is a file, by the name of their kind.
macro_rules! media_json {
    ($($kind:ident($request:ty) as file;)*) => {
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        #[expect(
            clippy::large_enum_variant,
            reason = "it lives while it is written or read"
        )]
        pub(crate) enum MediaJson<'a> {
            $($kind(std::borrow::Cow<'a, $request>)),*
        }

        impl<'a> MediaJson<'a> {
            pub fn of(body: &'a Body) -> Option<Self> {
                Some(match body {
                    $(Body::$kind(request) => Self::$kind(std::borrow::Cow::Borrowed(request)),)*
                    _ => return None,
                })
            }
        }

        impl From<MediaJson<'_>> for Body {
            fn from(json: MediaJson<'_>) -> Self {
                match json {
                    $(MediaJson::$kind(request) => request.into_owned().into()),*
                }
            }
        }
    };
}

impl<'a> ValuesJson<'a> {
    pub fn of(body: &'a Body) -> Option<Self> {
        Some(match body {
            Body::Tokens(request) => match &**request {
                TokensRequest::Tokenize(input) => Self::Tokenize(Cow::Borrowed(input)),
                TokensRequest::Detokenize(input) => Self::Detokenize(Cow::Borrowed(input)),
                // Workers of all versions load a model for the tokens of no text, which no client asks for.
                TokensRequest::Load => Self::Tokenize(Cow::Owned(TokenizeInput {
                    input: TextInput::Prompt(String::new()),
                    add_special_tokens: None,
                    with_strings: false,
                })),
            },
            Body::Embedding(request) => Self::Embed(Cow::Borrowed(request)),
            Body::Ranking(request) => Self::Rerank(Cow::Borrowed(request)),
            Body::Transcription(request) => Self::Transcribe(Cow::Borrowed(request)),
            Body::Speech(request) => Self::Speak(Cow::Borrowed(request)),
            Body::Form(request) => Self::Form(Cow::Borrowed(request)),
            _ => return None,
        })
    }
}

impl From<ValuesJson<'_>> for Body {
    fn from(json: ValuesJson<'_>) -> Self {
        match json {
            ValuesJson::Tokenize(input) => match &input.input {
                TextInput::Prompt(text) if text.is_empty() => TokensRequest::Load.into(),
                _ => TokensRequest::Tokenize(input.into_owned()).into(),
            },
            ValuesJson::Detokenize(input) => TokensRequest::Detokenize(input.into_owned()).into(),
            ValuesJson::Embed(request) => request.into_owned().into(),
            ValuesJson::Rerank(request) => request.into_owned().into(),
            ValuesJson::Transcribe(request) => request.into_owned().into(),
            ValuesJson::Speak(request) => request.into_owned().into(),
            ValuesJson::Form(request) => request.into_owned().into(),
        }
    }
}

const TRANSCRIPT: &str = "transcript";

impl Body {
    /// The stored form of durable requests: media and transcripts.
    pub fn stored(&self) -> Value {
        match self {
            Self::Transcription(request) => json!({ TRANSCRIPT: request }),
            _ => json!(MediaJson::of(self)),
        }
    }

    /// Reads the form of [`Self::stored`].
    pub fn read_stored(mut stored: Value) -> Option<Self> {
        match stored.get_mut(TRANSCRIPT).map(Value::take) {
            Some(transcript) => serde_json::from_value::<TranscriptionRequest>(transcript)
                .ok()
                .map(Self::from),
            None => serde_json::from_value::<MediaJson<'_>>(stored)
                .ok()
                .map(Self::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::{Body, TokensRequest, ValuesJson};

    #[test]
    fn loading_a_model_is_the_tokens_of_no_text() {
        let body = Body::from(TokensRequest::Load);
        let written = json!(ValuesJson::of(&body));
        assert_eq!(
            written,
            json!({"tokenize": {"input": {"prompt": ""}, "with_strings": false}})
        );
        let read: ValuesJson<'_> = from_value(written).unwrap();
        assert_eq!(Body::from(read), body);
    }
}
