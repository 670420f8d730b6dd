//! Every field of a request, once: honoured, or refused by its name.

use serde_json::{Map, Value, json};

use crate::job::KeepAlive;
use crate::openai::chat::Reading;
use crate::openai::field::{self, Field, FieldRow};
use crate::openai::shape::kind;
use crate::openai::{IgnoredFields, Problem, Shape, Strictness};

use super::answer::moment;
use super::dialect::OllamaDialect;
use super::{messages, options, untagged};

/// The two routes that write text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Chat,
    Generate,
}

/// The request so far, as a chat body.
#[derive(Default)]
pub struct OllamaDraft {
    chat: Map<String, Value>,
    messages: Option<Value>,
    system: Option<String>,
    prompt: Option<String>,
    images: Vec<String>,
    is_raw: bool,
    keep_alive: Option<KeepAlive>,
}

/// A body with nothing to answer: Ollama loads the model then, or unloads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadRequest {
    pub model: String,
    pub streams: bool,
    pub keep_alive: Option<KeepAlive>,
    /// Names of fields without a meaning here.
    pub ignored: Vec<String>,
    door: Door,
}

/// Whose model `/api/show` describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShowRequest {
    pub model: String,
    /// Names of fields without a meaning here.
    pub ignored: Vec<String>,
}

const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut OllamaDraft, Value) -> Result<(), Problem>,
) -> Field<OllamaDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

const THINK: Shape = Shape::Either(&[Shape::Flag, Shape::Word(&["low", "medium", "high"])]);
pub(super) const KEEP_ALIVE: Shape = Shape::Either(&[Shape::Text, Shape::Number(-1e12..=1e12)]);
pub(super) const KEEP_ALIVE_ABOUT: &str = "Time that the model stays in memory afterwards, on workers of the caller: seconds, or a duration such as 5m; 0 unloads it, -1 keeps it.";

macro_rules! fields {
    ($name:ident: $($own:expr,)*) => {
        #[rustfmt::skip]
        pub const $name: &[Field<OllamaDraft>] = &[
            field("model", Shape::Text, "Model name as listed by /api/tags.", |draft, value| {
                let name = untagged(value.as_str().unwrap_or_default());
                draft.put("model", name.into())
            }),
            field("stream", Shape::Flag, "Send one JSON object a line as tokens are generated; true if absent.", |draft, value| draft.put("stream", value)),
            field("think", THINK, "Reason before answering; low, medium and high set the effort.", |draft, value| draft.think(value)),
            field("format", Shape::Either(&[Shape::Text, Shape::Object]), "json, or a JSON schema that the answer keeps to.", |draft, value| draft.format(value)),
            field("options", Shape::Object, "How tokens are sampled, as listed below.", |draft, value| options::read(value, draft)),
            field("keep_alive", KEEP_ALIVE, KEEP_ALIVE_ABOUT, |draft, value| {
                draft.keep_alive = Some(keep_alive(&value)?);
                Ok(())
            }),
            field("logprobs", Shape::Flag, "Return the log probability of each token.", |draft, value| draft.put("logprobs", value)),
            field("top_logprobs", Shape::Integer(0..=20), "Number of most likely alternatives to return per token; requires logprobs.", |draft, value| draft.put("top_logprobs", value)),
            field("shift", Shape::Flag, "No effect: answers end where the context does.", |_, _| Ok(())),
            $($own,)*
        ];
    };
}

fields! { CHAT_FIELDS:
    field("truncate", Shape::Flag, "Leave out the oldest messages where the conversation is too long for the model; true if absent.", |_, _| Ok(())),
    field("messages", Shape::List, "Conversation so far: objects with role and content, and images, tool_calls or tool_name.", |draft, value| {
        draft.messages = Some(value);
        Ok(())
    }),
    field("tools", Shape::List, "Functions the model may call.", |draft, value| match value.as_array().is_some_and(Vec::is_empty) {
        true => Ok(()),
        false => draft.put("tools", value),
    }),
}

fields! { GENERATE_FIELDS:
    field("truncate", Shape::Flag, "Leave out the beginning of a prompt that is too long for the model; true if absent.", |_, _| Ok(())),
    field("prompt", Shape::Text, "Message to the model, or with raw the text to go on from.", |draft, value| {
        draft.prompt = value.as_str().map(str::to_owned);
        Ok(())
    }),
    field("system", Shape::Text, "System prompt.", |draft, value| {
        draft.system = value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Ok(())
    }),
    field("raw", Shape::Flag, "Use the prompt as it is, without the chat template.", |draft, value| {
        draft.is_raw = value == true;
        Ok(())
    }),
    field("images", Shape::List, "Images in base64, for models that read images.", |draft, value| {
        draft.images = messages::images("images", &value)?;
        Ok(())
    }),
    field("context", Shape::List, "Only an empty array: send the conversation to /api/chat.", |_, value| {
        only("context", value.as_array().is_some_and(Vec::is_empty), "empty")
    }),
    field("suffix", Shape::Text, "Only the empty string: no model here is known to have infill tokens.", |_, value| only("suffix", value == "", "empty")),
    field("template", Shape::Text, "Only the empty string: a model's own chat template is used.", |_, value| only("template", value == "", "empty")),
}

/// Every field of a route, with those of `options`.
pub fn rows(door: Door) -> Vec<FieldRow> {
    let mut rows = field::rows(door.fields());
    rows.extend(field::rows(options::OPTIONS));
    rows
}

impl Door {
    pub(super) fn fields(self) -> &'static [Field<OllamaDraft>] {
        match self {
            Self::Chat => CHAT_FIELDS,
            Self::Generate => GENERATE_FIELDS,
        }
    }
}

pub fn read(mut body: Value, door: Door, wanted: &IgnoredFields) -> Result<Reading, Problem> {
    let mut ignored = set_aside(&mut body, door);
    let is_known = |name: &str| door.fields().iter().any(|field| field.name == name);
    let read = |body: Value| read_strictly(body, door);
    let (draft, _, more) = field::leniently(body, wanted, is_known, read)?;
    ignored.extend(more);
    let (chat, dialect) = draft.finish(door)?;
    Ok(Reading {
        chat,
        dialect: Box::new(dialect),
        ignored,
        native: None,
    })
}

/// Removes fields that Ollama ignores, too, and returns their names.
fn set_aside(body: &mut Value, door: Door) -> Vec<String> {
    let mut names = Vec::new();
    let is_known = |name: &str| door.fields().iter().any(|field| field.name == name);
    retain(body, "", is_known, &mut names);
    if let Some(given) = body.get_mut("options") {
        retain(given, options::PLACE, options::is_known, &mut names);
    }
    messages::set_aside(body, &mut names);
    names
}

/// Keeps the entries that are known, and notes the others once, behind the name of their place.
pub(super) fn retain(
    value: &mut Value,
    place: &str,
    is_known: impl Fn(&str) -> bool,
    names: &mut Vec<String>,
) {
    let Value::Object(entries) = value else {
        return;
    };
    entries.retain(|name, _| {
        let is_kept = is_known(name);
        let name = format!("{place}{name}");
        if !is_kept && !names.contains(&name) {
            names.push(name);
        }
        is_kept
    });
}

impl LoadRequest {
    /// None for a body that has something to answer.
    pub fn of(body: &Value, door: Door) -> Result<Option<Self>, Problem> {
        let is_empty = match door {
            Door::Chat => body["messages"].as_array().is_none_or(Vec::is_empty),
            Door::Generate => body["prompt"].as_str().unwrap_or_default().is_empty(),
        };
        if !is_empty {
            return Ok(None);
        }
        let mut body = body.clone();
        let ignored = set_aside(&mut body, door);
        let draft = read_strictly(body, door)?;
        let model = draft.chat.get("model").and_then(Value::as_str);
        let model = model.filter(|name| !name.is_empty());
        Ok(Some(Self {
            model: model.ok_or_else(missing_model)?.to_owned(),
            streams: draft.chat["stream"] == true,
            keep_alive: draft.keep_alive,
            ignored,
            door,
        }))
    }

    pub fn unloads(&self) -> bool {
        self.keep_alive == Some(KeepAlive::UNLOAD)
    }

    /// The only object of its answer. `created` is in seconds.
    pub fn reply(&self, created: i64) -> Value {
        let reason = if self.unloads() { "unload" } else { "load" };
        let mut reply = json!({
            "model": self.model, "created_at": moment(created), "done": true, "done_reason": reason,
        });
        match self.door {
            Door::Chat => reply["message"] = json!({"role": "assistant", "content": ""}),
            Door::Generate => reply["response"] = "".into(),
        }
        reply
    }
}

pub(super) fn keep_alive(value: &Value) -> Result<KeepAlive, Problem> {
    KeepAlive::read(value).ok_or_else(|| {
        let message =
            format!("keep_alive must be seconds or a duration such as \"5m\", found {value}");
        Problem::invalid("keep_alive", message)
    })
}

fn missing_model() -> Problem {
    Problem::invalid("model", "model is missing: use a name listed by /api/tags")
}

fn read_strictly(body: Value, door: Door) -> Result<OllamaDraft, Problem> {
    let Value::Object(entries) = body else {
        let found = kind(&body);
        let message = format!("the body must be a JSON object, found {found}");
        return Err(Problem::malformed(message));
    };
    let mut draft = OllamaDraft::default();
    field::read(door.fields(), entries, Strictness::Refuse, &mut draft)?;
    draft.chat.entry("stream").or_insert(true.into());
    Ok(draft)
}

impl OllamaDraft {
    pub(super) fn put(&mut self, name: &str, value: Value) -> Result<(), Problem> {
        self.chat.insert(name.to_owned(), value);
        Ok(())
    }

    fn think(&mut self, value: Value) -> Result<(), Problem> {
        match value {
            Value::Bool(_) => self.put("enable_thinking", value),
            effort => {
                self.put("enable_thinking", true.into())?;
                self.put("reasoning_effort", effort)
            }
        }
    }

    fn format(&mut self, value: Value) -> Result<(), Problem> {
        let format = match value {
            Value::String(word) if word.is_empty() => return Ok(()),
            Value::String(word) if word == "json" => json!({"type": "json_object"}),
            Value::String(_) => {
                let message = "format must be \"json\" or a JSON schema";
                return Err(Problem::invalid("format", message));
            }
            schema => {
                json!({"type": "json_schema", "json_schema": {"name": "output", "schema": schema, "strict": true}})
            }
        };
        self.put("response_format", format)
    }

    fn finish(mut self, door: Door) -> Result<(Value, OllamaDialect), Problem> {
        if !self.chat.contains_key("model") {
            return Err(missing_model());
        }
        let messages = match (door, self.messages.take()) {
            (Door::Chat, Some(messages)) => messages::read(messages)?,
            _ => self.prompt_messages()?,
        };
        self.put("messages", messages.into())?;
        let dialect = OllamaDialect {
            door,
            is_raw: self.is_raw,
            keep_alive: self.keep_alive,
        };
        Ok((Value::Object(self.chat), dialect))
    }

    fn prompt_messages(&mut self) -> Result<Vec<Value>, Problem> {
        let prompt = self.prompt.take().unwrap_or_default();
        if self.is_raw && (self.system.is_some() || !self.images.is_empty()) {
            let name = if self.system.is_some() {
                "system"
            } else {
                "images"
            };
            let message = format!("{name} cannot be used with raw: the prompt is used as it is");
            return Err(Problem::invalid(name, message));
        }
        let system = self.system.take();
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let content = messages::content(&prompt, std::mem::take(&mut self.images));
        let user = json!({"role": "user", "content": content});
        Ok(system.into_iter().chain([user]).collect())
    }
}

fn only(name: &'static str, is_honoured: bool, values: &str) -> Result<(), Problem> {
    match is_honoured {
        true => Ok(()),
        false => Err(Problem::unsupported(
            name,
            format!("{name} must be {values} here"),
        )),
    }
}

impl ShowRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let (model, ignored) = model_beside_flag(&body, "verbose")?;
        Ok(Self { model, ignored })
    }
}

/// `DELETE /api/delete`: which model is removed from this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteRequest {
    pub model: String,
    /// Names of fields without a meaning here.
    pub ignored: Vec<String>,
}

impl DeleteRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let (model, ignored) = model_beside_flag(&body, "stream")?;
        Ok(Self { model, ignored })
    }
}

/// `POST /api/copy`: a further name for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRequest {
    pub source: String,
    pub destination: String,
    /// Names of fields without a meaning here.
    pub ignored: Vec<String>,
}

/// Limit of a further name, in bytes.
const LONGEST_NAME: usize = 128;

impl CopyRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let Value::Object(entries) = &body else {
            return Err(no_object(&body));
        };
        let name = |field: &'static str| {
            Shape::Text.check(field, &body[field])?;
            let name = untagged(body[field].as_str().unwrap_or_default());
            match name.is_empty() {
                true => Err(Problem::invalid(
                    field,
                    format!("{field} must not be empty"),
                )),
                false => Ok(name.to_owned()),
            }
        };
        let (source, destination) = (name("source")?, name("destination")?);
        let is_odd = |letter: char| letter.is_control() || letter.is_whitespace();
        if destination.len() > LONGEST_NAME || destination.contains(is_odd) {
            let message = format!(
                "destination must be a name of at most {LONGEST_NAME} bytes without spaces"
            );
            return Err(Problem::invalid("destination", message));
        }
        let ignored = entries.keys();
        let ignored = ignored.filter(|name| !matches!(name.as_str(), "source" | "destination"));
        Ok(Self {
            source,
            destination,
            ignored: ignored.cloned().collect(),
        })
    }
}

fn no_object(body: &Value) -> Problem {
    let found = kind(body);
    Problem::malformed(format!("the body must be a JSON object, found {found}"))
}

/// The model of a body with an optional flag, and the names of other fields.
pub(super) fn model_beside_flag(
    body: &Value,
    flag: &'static str,
) -> Result<(String, Vec<String>), Problem> {
    let Value::Object(entries) = body else {
        return Err(no_object(body));
    };
    let known = ["model", "name", flag];
    let names = entries
        .keys()
        .filter(|name| !known.contains(&name.as_str()));
    let ignored = names.cloned().collect();
    if !body[flag].is_null() {
        Shape::Flag.check(flag, &body[flag])?;
    }
    // The older name of the field.
    let name = match &body["model"] {
        Value::Null => &body["name"],
        model => model,
    };
    Shape::Text.check("model", name)?;
    let model = untagged(name.as_str().unwrap_or_default()).to_owned();
    Ok((model, ignored))
}
