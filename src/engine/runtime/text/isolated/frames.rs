//! Requests and replies of a text process.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Limits;
use crate::runtime::text::language::Recommended;
use crate::runtime::text::{EmbeddedText, Markup, TextError, TextSource, UnigramVocabulary};
use crate::runtime::{Chat, ImageTexts};

#[derive(Serialize, Deserialize)]
pub enum Request {
    /// Comes once, first. A frame with the table of tokens follows its [`Reply::Opened`].
    Open {
        source: Box<SourceText>,
        limits: LimitNumbers,
    },
    /// Tokenizes a text, with or without the tokenizer's prefix.
    Text {
        text: String,
        prefix: bool,
    },
    /// The same for a chat, serialized as JSON.
    Chat {
        text: String,
        prefix: bool,
    },
    OpensThought(String),
    /// The spellings of these tokens.
    Names(Vec<u32>),
    /// Two texts as one sequence.
    Pair {
        first: String,
        second: String,
    },
}

#[derive(Serialize, Deserialize)]
pub enum Reply {
    Opened(Box<Opened>),
    Refused(TextError),
    Tokens(Vec<u32>),
    OpensThought(bool),
    Names(Vec<String>),
    Pair { tokens: Vec<u32>, types: Vec<u32> },
    BadRequest(String),
    BrokenTemplate(String),
}

#[derive(Serialize, Deserialize)]
pub struct Opened {
    pub ends: Vec<u32>,
    pub recommended: Recommended,
    pub markup: Markup,
    pub brings_template: bool,
    pub opening: Vec<u32>,
}

/// A [`TextSource`] that owns its parts.
#[derive(Serialize, Deserialize)]
pub struct SourceText {
    folder: Option<PathBuf>,
    embedded: Option<EmbeddedText>,
    unigram: Option<UnigramVocabulary>,
    is_read_only: bool,
    tokenizer: Option<PathBuf>,
    template: Option<String>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct LimitNumbers {
    open_bytes: u64,
    request_bytes: u64,
    stack_bytes: usize,
    open_millis: u64,
    request_millis: u64,
}

#[derive(Serialize, Deserialize)]
struct ChatJson<'a> {
    messages: Cow<'a, [Value]>,
    tools: Cow<'a, [Value]>,
    variables: Cow<'a, Map<String, Value>>,
    /// The placeholder of images, and the texts that replace it.
    image_texts: Option<(Cow<'a, str>, Cow<'a, [String]>)>,
}

impl From<TextSource<'_>> for SourceText {
    fn from(source: TextSource<'_>) -> Self {
        let TextSource {
            folder,
            embedded,
            unigram,
            is_read_only,
            tokenizer,
            template,
            // Merged by the parent, which also checks them.
            defaults: _,
            isolation: _,
        } = source;
        Self {
            folder: folder.map(Into::into),
            embedded: embedded.cloned(),
            unigram: unigram.cloned(),
            is_read_only,
            tokenizer: tokenizer.map(Into::into),
            template: template.map(str::to_owned),
        }
    }
}

impl SourceText {
    pub fn as_source(&self) -> TextSource<'_> {
        TextSource {
            folder: self.folder.as_deref(),
            embedded: self.embedded.as_ref(),
            unigram: self.unigram.as_ref(),
            is_read_only: self.is_read_only,
            tokenizer: self.tokenizer.as_deref(),
            template: self.template.as_deref(),
            defaults: None,
            isolation: None,
        }
    }
}

impl From<Limits> for LimitNumbers {
    fn from(limits: Limits) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            open_bytes: limits.open_bytes,
            request_bytes: limits.request_bytes,
            stack_bytes: limits.stack_bytes,
            open_millis: millis(limits.open_time),
            request_millis: millis(limits.request_time),
        }
    }
}

impl From<LimitNumbers> for Limits {
    fn from(numbers: LimitNumbers) -> Self {
        Self {
            open_bytes: numbers.open_bytes,
            request_bytes: numbers.request_bytes,
            stack_bytes: numbers.stack_bytes,
            open_time: Duration::from_millis(numbers.open_millis),
            request_time: Duration::from_millis(numbers.request_millis),
        }
    }
}

pub fn chat_to_text(chat: &Chat) -> String {
    let json = ChatJson {
        messages: Cow::Borrowed(&chat.messages),
        tools: Cow::Borrowed(&chat.tools),
        variables: Cow::Borrowed(&chat.variables),
        image_texts: chat.image_texts.as_ref().map(|it| {
            (
                Cow::Borrowed(it.mark.as_str()),
                Cow::Borrowed(&it.texts[..]),
            )
        }),
    };
    serde_json::to_string(&json).unwrap_or_default()
}

pub fn chat_from_text(text: &str) -> Result<Chat, serde_json::Error> {
    let json: ChatJson<'_> = serde_json::from_str(text)?;
    Ok(Chat {
        images: Vec::new(),
        image_texts: json.image_texts.map(|(mark, texts)| ImageTexts {
            mark: mark.into_owned(),
            texts: texts.into_owned(),
        }),
        messages: json.messages.into_owned(),
        tools: json.tools.into_owned(),
        variables: json.variables.into_owned(),
    })
}
