//! Chat completions: a body to neutral jobs, their events to a reply or to chunks.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of the API, declared once |
//! | `request` | a body to a [`ChatRequest`], and checks between fields |
//! | `interface` | the interface of text APIs for the HTTP layer |
//! | `dialect` | the [`Dialect`] of this API |
//! | `aside` | unknown fields passed on by a coordinator |
//! | `messages`, `content` | the conversation, as a chat template takes it |
//! | `files` | files in messages, which a coordinator replaces by texts and images |
//! | `tools` | tools, the tool choice, and the old functions |
//! | `reasoning` | OpenRouter's object for it |
//! | `format` | the required format of the reply |
//! | `keywords` | keywords of its schema that no grammar can enforce |
//! | `head`, `usage` | common parts of reply and chunks |
//! | `reply` | one JSON object at the end |
//! | `chunks` | chunks as they come, written into one buffer |
//! | `media` | chats with models that make images or videos |
//! | `outgoing` | a neutral request as a body of this API |
//! | [`schema`] | all of it as JSON Schema |
//!
//! No field is ignored, unless the operator wants it: each is honoured, or refused by its name. A wish that only some
//! workers can grant becomes a [`Demand`]; dispatch decides whether a connected worker can grant it.

mod aside;
mod chunks;
mod content;
mod dialect;
mod fields;
mod files;
mod format;
mod head;
mod interface;
mod keywords;
mod media;
mod messages;
mod outgoing;
mod reasoning;
mod reply;
mod request;
pub mod schema;
mod tools;
mod usage;

pub(crate) use files::file_part;
pub(crate) use reasoning::effort_of;
pub(crate) use usage::{RunningUsage, Total, logprob, shown};

#[cfg(test)]
mod tests;

pub use chunks::ChunkWriter;
pub use dialect::ChatDialect;
pub use fields::for_strangers;
pub use files::{FilePart, take_files};
pub use head::{Ending, Grid, Head, Routing, finish_word};
pub use interface::{
    Dialect, NativeEnd, NativeError, NativeReader, Reading, ReplyBuilder, StreamWriter,
};
pub use media::{MediaChat, MediaChatHead, MediaChatStream};
pub use outgoing::outgoing_fields;
pub use reply::Reply;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::job::{Capabilities, KeepAlive, TextInput, TextRequest};
use crate::openai::Problem;
use crate::openai::field::{self, Field, FieldRow};
use crate::openai::shape::kind;

/// A request that has been read.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    pub model: Arc<str>,
    /// The first choice; the others differ in `choice` only.
    pub text: TextRequest,
    /// Requested choices, of all prompts together.
    pub choices: u32,
    /// Several prompts in order, each with the same number of choices.
    pub prompts: Vec<TextInput>,
    /// None for one reply at the end.
    pub stream: Option<StreamOptions>,
    /// Optional capabilities that the request needs.
    pub demands: Vec<Demand>,
    pub calls: CallStyle,
    /// The client named a tier, so the reply names the one it got.
    pub names_tier: bool,
    pub metadata: Option<Map<String, Value>>,
    /// Requests with the same key are likely to begin alike.
    pub cache_key: Option<String>,
    /// Bytes of text a model has to read.
    pub prompt_bytes: usize,
    /// How long the model stays in memory afterwards.
    pub keep_alive: Option<KeepAlive>,
    /// The client does not want to read the reasoning.
    pub hides_reasoning: bool,
    /// Fields whose values have no effect, which the reply names.
    pub without_effect: Vec<&'static str>,
}

/// A request that was read, as it is without the fields that were left aside.
#[derive(Debug)]
pub struct Lenient {
    pub request: ChatRequest,
    pub body: Value,
    /// Their names.
    pub ignored: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// None when the client did not say.
    pub usage: Option<bool>,
    /// Every chunk contains its choice's usage so far.
    pub running_usage: bool,
    /// Pad chunks so that their lengths tell less.
    pub obfuscation: bool,
}

/// A capability some field needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    pub capability: Capabilities,
    pub param: Cow<'static, str>,
}

/// In which words calls are given back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CallStyle {
    #[default]
    Tools,
    /// The old `function_call`, for requests that declared `functions`.
    Function,
}

/// Every field of a request.
pub fn rows() -> Vec<FieldRow> {
    field::rows(fields::FIELDS)
}

type JsonEntries = Map<String, Value>;

/// Splits a body into entries of another dialect's own fields, and shared fields, which are checked.
pub(crate) fn split<D>(
    body: Value,
    own_fields: &[Field<D>],
    shared: &[&'static str],
) -> Result<(JsonEntries, JsonEntries), Problem> {
    let Value::Object(entries) = body else {
        let found = kind(&body);
        let message = format!("the body must be a JSON object, found {found}");
        return Err(Problem::malformed(message));
    };
    let (mut own, mut chat) = (Map::new(), Map::new());
    for (name, value) in entries {
        if own_fields.iter().any(|field| field.name == name) {
            own.insert(name, value);
        } else if !shared.contains(&name.as_str()) {
            let names = own_fields.iter().map(|field| field.name);
            return Err(field::unknown(
                "",
                &name,
                names.chain(shared.iter().copied()),
            ));
        } else if !value.is_null() {
            check_field(&name, &value)?;
            chat.insert(name, value);
        }
    }
    Ok((own, chat))
}

fn check_field(name: &str, value: &Value) -> Result<(), Problem> {
    match fields::FIELDS.iter().find(|field| field.name == name) {
        Some(field) => field.shape.check(name, value),
        None => Ok(()),
    }
}

/// The schemas of some fields, for dialects that have them too.
pub(crate) fn field_schemas(names: &[&str]) -> impl Iterator<Item = (&'static str, Value)> {
    let fields = fields::FIELDS.iter();
    let fields = fields.filter(move |field| names.contains(&field.name));
    fields.map(|field| (field.name, field.schema()))
}

impl ChatRequest {
    /// Everything a worker must be able to do.
    pub fn requires(&self) -> Capabilities {
        self.demands
            .iter()
            .fold(Capabilities::default(), |all, demand| {
                all.with(demand.capability)
            })
    }

    /// The field that needs one of these.
    pub fn param_of(&self, missing: Capabilities) -> Option<&str> {
        let demand = self
            .demands
            .iter()
            .find(|demand| missing.contains(demand.capability))?;
        Some(&demand.param)
    }

    /// The job of one choice.
    pub fn choice(&self, choice: u32) -> TextRequest {
        let count = u32::try_from(self.prompts.len()).unwrap_or(u32::MAX).max(1);
        let each = (self.choices / count).max(1);
        let prompt = self.prompts.get((choice / each) as usize);
        let mut text = self.text.clone();
        text.choice = choice % each;
        if let Some(prompt) = prompt {
            text.input = prompt.clone();
        } else {
            text.choice = choice;
        }
        text
    }

    /// A lower bound of the prompt's tokens, for any tokenizer.
    pub fn least_prompt_tokens(&self) -> u32 {
        const BYTES_PER_TOKEN: usize = 6;
        u32::try_from(self.prompt_bytes / BYTES_PER_TOKEN).unwrap_or(u32::MAX)
    }
}
