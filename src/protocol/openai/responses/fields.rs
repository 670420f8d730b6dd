//! Every field of a request, once: honoured, or refused by its name.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::openai::chat::Reading;
use crate::openai::field::{self, Field, FieldRow};
use crate::openai::{IgnoredFields, Problem, Shape, Strictness, chat};

use super::dialect::{Recorder, ResponsesDialect, Sealer};
use super::items::{Conversation, Place};
use super::native_body;
use super::output::OutputOptions;
use super::tools::{self, ToolDeclarations};

/// Parts of a request besides its body.
#[derive(Debug, Clone)]
pub struct Context {
    /// Items of the continued stored responses, oldest first.
    pub history: Arc<Vec<Value>>,
    /// Stored items that the input names by their ids.
    pub referenced: Arc<HashMap<String, Value>>,
    pub sealer: Arc<dyn Sealer>,
    pub recorder: Option<Arc<dyn Recorder>>,
    /// Number of the oldest items of history and input that are dropped.
    pub dropped: usize,
    /// Whether a response is stored whose request says nothing about it.
    pub stores_by_default: bool,
}

/// The request so far.
#[derive(Default)]
pub struct ResponseDraft {
    chat: Map<String, Value>,
    /// Fields that the response repeats.
    echo: Map<String, Value>,
    input: Option<Value>,
    instructions: Option<String>,
    tools: ToolDeclarations,
    tool_choice: Option<Value>,
    logprobs: bool,
    seals: bool,
    summary: bool,
    is_background: bool,
    obfuscation: bool,
    max_tokens: Option<Value>,
}

const MOST_TOKENS: i64 = u32::MAX as i64;
const EFFORTS: &[&str] = &["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// Fields of the chat API that mean the same here. Not in OpenAI's API.
const SHARED: &[&str] = &[
    "chat_template_kwargs",
    "enable_thinking",
    "frequency_penalty",
    "ignore_eos",
    "logit_bias",
    "min_p",
    "min_tokens",
    "presence_penalty",
    "repeat_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "top_k",
    "typical_p",
];

/// Values of a response for fields that the request leaves out.
fn defaults() -> Value {
    json!({
        "background": false,
        "instructions": null,
        "max_output_tokens": null,
        "max_tool_calls": null,
        "metadata": {},
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "prompt_cache_key": null,
        "reasoning": {"effort": null, "summary": null},
        "safety_identifier": null,
        "service_tier": "default",
        "store": true,
        "temperature": null,
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": null,
        "truncation": "disabled",
        "user": null,
    })
}

const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut ResponseDraft, Value) -> Result<(), Problem>,
) -> Field<ResponseDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

#[rustfmt::skip]
const FIELDS: &[Field<ResponseDraft>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/models.", |draft, value| draft.put("model", value)),
    field("input", Shape::Either(&[Shape::Text, Shape::List]), "A string, or items: messages, calls of tools and their outputs, reasoning, references to stored items.", |draft, value| {
        draft.input = Some(value);
        Ok(())
    }),
    field("instructions", Shape::Text, "System prompt; that of a previous response is not carried over.", |draft, value| {
        draft.instructions = value.as_str().map(str::to_owned);
        draft.repeat("instructions", value)
    }),
    field("previous_response_id", Shape::Text, "A stored response that this one goes on from.", |draft, value| {
        draft.repeat("previous_response_id", value)
    }),
    field("store", Shape::Flag, "Keep the response, so that it can be read again and gone on from. If absent, the operator's setting decides; usually true.", |draft, value| {
        draft.repeat("store", value)
    }),
    field("background", Shape::Flag, "Answer at once and generate in the background; poll the response, or stream it. Requires store.", |draft, value| {
        draft.is_background = value == true;
        draft.repeat("background", value)
    }),
    field("stream", Shape::Flag, "Send events as tokens are generated.", |draft, value| draft.put("stream", value)),
    field("stream_options", Shape::Object, "include_obfuscation: pad deltas so that their lengths tell less; streams only.", |draft, value| {
        draft.stream_options(&value)
    }),
    field("max_output_tokens", Shape::Integer(1..=MOST_TOKENS), "Maximum number of generated tokens, including reasoning; the model's limit if absent.", |draft, value| {
        draft.put("max_completion_tokens", value.clone())?;
        draft.repeat("max_output_tokens", value)
    }),
    field("max_tokens", Shape::Integer(1..=MOST_TOKENS), "Used where max_output_tokens is absent. Not in OpenAI's API.", |draft, value| {
        draft.max_tokens = Some(value);
        Ok(())
    }),
    field("temperature", Shape::Number(0.0..=2.0), "Sampling temperature; 0 takes the most likely token.", |draft, value| {
        draft.both("temperature", value)
    }),
    field("top_p", Shape::Number(0.0..=1.0), "Sample from the most likely tokens with this total probability.", |draft, value| {
        draft.both("top_p", value)
    }),
    field("top_logprobs", Shape::Integer(0..=20), "Return the log probability of each token, and so many alternatives.", |draft, value| {
        draft.logprobs |= value != 0;
        draft.both("top_logprobs", value)
    }),
    field("include", Shape::List, "message.output_text.logprobs and reasoning.encrypted_content; what belongs to tools of a server is refused.", |draft, value| {
        draft.include(&value)
    }),
    field("tools", Shape::List, "Functions, namespaces of functions, custom tools that take text, freely or by a regular expression, and shell, local_shell and apply_patch, which the client runs. Tools that OpenAI runs (web_search and others) are left out and named in x-ignored-fields.", |draft, value| {
        draft.tools = tools::declared(&value)?;
        draft.repeat("tools", value)
    }),
    field("tool_choice", Shape::Either(&[Shape::Word(&["none", "auto", "required"]), Shape::Object]), "Whether the model may, must or must not call tools, or which.", |draft, value| {
        draft.tool_choice = Some(value.clone());
        draft.repeat("tool_choice", value)
    }),
    field("parallel_tool_calls", Shape::Flag, "Allow several calls in one answer.", |draft, value| draft.both("parallel_tool_calls", value)),
    field("max_tool_calls", Shape::Integer(1..=MOST_TOKENS), "Limits calls of a server's own tools: there are none, so that it has no effect.", |draft, value| {
        draft.repeat("max_tool_calls", value)
    }),
    field("text", Shape::Object, "format: text, json_object or json_schema; verbosity: only medium.", |draft, value| draft.text(value)),
    field("reasoning", Shape::Object, "effort, passed to the chat template; summary: auto or detailed shows the reasoning itself as its summary.", |draft, value| {
        draft.reasoning(value)
    }),
    field("truncation", Shape::Word(&["auto", "disabled"]), "auto drops the oldest items where the input is too long for the model.", |draft, value| {
        draft.repeat("truncation", value)
    }),
    field("metadata", Shape::Object, "Up to 16 strings, returned with the response.", |draft, value| draft.both("metadata", value)),
    field("client_metadata", Shape::Object, "Metadata for the client's own use; no effect.", |_, _| Ok(())),
    field("prompt_cache_key", Shape::Text, "Requests with the same key prefer workers that may have their prefix cached.", |draft, value| {
        draft.both("prompt_cache_key", value)
    }),
    field("prompt_cache_retention", Shape::Word(&["in_memory", "24h"]), "Only in_memory: prompts are not stored.", |draft, value| {
        draft.put("prompt_cache_retention", value)
    }),
    field("prompt_cache_options", Shape::Object, "Only implicit mode, without a guaranteed lifetime.", |draft, value| {
        draft.put("prompt_cache_options", value)
    }),
    field("service_tier", Shape::Word(&["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"]), "Only auto and default: one tier exists.", |draft, value| {
        draft.put("service_tier", value)
    }),
    field("user", Shape::Text, "Your identifier of the end user; no effect.", |draft, value| draft.repeat("user", value)),
    field("safety_identifier", Shape::Text, "Your identifier of the end user; no effect.", |draft, value| {
        draft.repeat("safety_identifier", value)
    }),

    field("conversation", Shape::Either(&[Shape::Text, Shape::Object]), "Not supported: use previous_response_id.", |_, _| never("conversation")),
    field("prompt", Shape::Object, "Not supported: no prompt templates are stored.", |_, _| never("prompt")),
    field("context_management", Shape::List, "Not supported: items are used as they are sent.", |_, _| never("context_management")),
    field("moderation", Shape::Object, "Not supported.", |_, _| never("moderation")),
];

/// Every field of a request.
pub fn rows() -> Vec<FieldRow> {
    let mut rows = field::rows(FIELDS);
    let shared = chat::rows().into_iter();
    rows.extend(shared.filter(|row| SHARED.contains(&row.name)));
    rows.sort_by_key(|row| row.name);
    rows
}

/// Fields of a request that its response repeats, as JSON Schema.
pub fn repeated() -> Vec<(String, Value)> {
    let Value::Object(defaults) = defaults() else {
        return Vec::new();
    };
    let schema = |name: &str| {
        let field = FIELDS.iter().find(|field| field.name == name)?;
        let mut schema = json!({"anyOf": [field.shape.schema(), {"type": "null"}]});
        if name == "tools" {
            schema = json!({"type": "array", "items": {"type": "object"}});
        }
        Some(schema)
    };
    let names = defaults.into_iter().map(|(name, _)| name);
    names
        .filter_map(|name| Some((name.clone(), schema(&name)?)))
        .collect()
}

/// The request as JSON Schema.
pub fn schema() -> Value {
    let mut schema = field::schema(FIELDS, &["model"]);
    for (name, field) in chat::field_schemas(SHARED) {
        schema["properties"][name] = field;
    }
    schema
}

/// A body of `/v1/responses`.
pub fn read(body: Value, wanted: &IgnoredFields, context: &Context) -> Result<Reading, Problem> {
    let is_known =
        |name: &str| SHARED.contains(&name) || FIELDS.iter().any(|field| field.name == name);
    let read = |body: Value| read_strictly(body, context);
    let (read, body, mut ignored) = field::leniently(body, wanted, is_known, read)?;
    let (chat, dialect, left_out) = read;
    ignored.extend(left_out);
    Ok(Reading {
        chat,
        dialect: Box::new(dialect),
        ignored,
        native: native_body::native(body, context),
    })
}

/// The body of the chat API, the dialect, and the names of tools that are left out.
type StrictReading = (Value, ResponsesDialect, Vec<String>);

fn read_strictly(body: Value, context: &Context) -> Result<StrictReading, Problem> {
    let (own, chat) = chat::split(body, FIELDS, SHARED)?;
    let mut draft = ResponseDraft {
        chat,
        ..ResponseDraft::default()
    };
    field::read(FIELDS, own, Strictness::Refuse, &mut draft)?;
    draft.finish(context)
}

impl ResponseDraft {
    fn put(&mut self, name: &str, value: Value) -> Result<(), Problem> {
        self.chat.insert(name.to_owned(), value);
        Ok(())
    }

    fn repeat(&mut self, name: &str, value: Value) -> Result<(), Problem> {
        self.echo.insert(name.to_owned(), value);
        Ok(())
    }

    /// For the model, and repeated.
    fn both(&mut self, name: &str, value: Value) -> Result<(), Problem> {
        self.put(name, value.clone())?;
        self.repeat(name, value)
    }

    fn stream_options(&mut self, value: &Value) -> Result<(), Problem> {
        const NAME: &str = "include_obfuscation";
        if let Value::Object(entries) = value {
            field::nothing_but(&[NAME], "stream_options", entries)?;
        }
        if !value[NAME].is_null() {
            Shape::Flag.check("stream_options.include_obfuscation", &value[NAME])?;
        }
        self.obfuscation = value[NAME] == true;
        Ok(())
    }

    fn include(&mut self, value: &Value) -> Result<(), Problem> {
        for (index, value) in value.as_array().into_iter().flatten().enumerate() {
            match value.as_str().unwrap_or_default() {
                "message.output_text.logprobs" => self.logprobs = true,
                "reasoning.encrypted_content" => self.seals = true,
                _ => {
                    let param = format!("include[{index}]");
                    let message = format!(
                        "{param} must be \"message.output_text.logprobs\" or \"reasoning.encrypted_content\" here"
                    );
                    return Err(Problem::unsupported(param, message));
                }
            }
        }
        Ok(())
    }

    fn text(&mut self, value: Value) -> Result<(), Problem> {
        if let Value::Object(entries) = &value {
            field::nothing_but(&["format", "verbosity"], "text", entries)?;
        }
        if !value["verbosity"].is_null() {
            Shape::Word(&["low", "medium", "high"]).check("text.verbosity", &value["verbosity"])?;
            self.put("verbosity", value["verbosity"].clone())?;
        }
        let format = &value["format"];
        if !format.is_null() {
            Shape::Object.check("text.format", format)?;
            let format = match format["type"].as_str() {
                Some("json_schema") => {
                    let mut schema = format.clone();
                    if let Value::Object(entries) = &mut schema {
                        entries.remove("type");
                    }
                    json!({"type": "json_schema", "json_schema": schema})
                }
                _ => format.clone(),
            };
            self.put("response_format", format)?;
        }
        let mut shown = json!({"format": {"type": "text"}, "verbosity": "medium"});
        for name in ["format", "verbosity"] {
            if !value[name].is_null() {
                shown[name] = value[name].clone();
            }
        }
        self.repeat("text", shown)
    }

    fn reasoning(&mut self, value: Value) -> Result<(), Problem> {
        const KNOWN: &[&str] = &["effort", "summary", "generate_summary"];
        if let Value::Object(entries) = &value {
            field::nothing_but(KNOWN, "reasoning", entries)?;
        }
        if !value["effort"].is_null() {
            Shape::Word(EFFORTS).check("reasoning.effort", &value["effort"])?;
            self.put("reasoning_effort", value["effort"].clone())?;
        }
        for name in ["summary", "generate_summary"] {
            let summary = &value[name];
            if summary.is_null() {
                continue;
            }
            let param = format!("reasoning.{name}");
            Shape::Word(&["auto", "concise", "detailed"]).check(&param, summary)?;
            if summary == "concise" {
                let message = format!(
                    "{param} must be \"auto\" or \"detailed\" here: reasoning is shown whole"
                );
                return Err(Problem::unsupported(param, message));
            }
            self.summary = true;
        }
        let shown = json!({"effort": value["effort"], "summary": value["summary"]});
        self.repeat("reasoning", shown)
    }

    fn finish(mut self, context: &Context) -> Result<StrictReading, Problem> {
        let stores_by_default = Value::Bool(context.stores_by_default);
        let store = self.echo.entry("store").or_insert(stores_by_default);
        if self.is_background && store == false {
            let message =
                "background requires \"store\": true: a response that is not kept cannot be polled";
            return Err(Problem::invalid("background", message));
        }
        if let Some(value) = self.max_tokens.take()
            && !self.chat.contains_key("max_completion_tokens")
        {
            self.repeat("max_output_tokens", value.clone())?;
            self.put("max_completion_tokens", value)?;
        }
        if let Some(choice) = self.tool_choice.take() {
            self.put("tool_choice", tools::choice(choice, &self.tools)?)?;
        }
        let mut tools = std::mem::take(&mut self.tools);
        if !tools.tools.is_empty() {
            self.put("tools", std::mem::take(&mut tools.tools).into())?;
        }
        let (messages, places) = self.conversation(context)?;
        self.put("messages", messages.into())?;
        if self.logprobs {
            self.put("logprobs", true.into())?;
        }
        if self.is_background {
            self.put("stream", true.into())?;
        }
        let left_out = tools.left_out();
        let mut echo = defaults();
        for (name, value) in self.echo {
            echo[name] = value;
        }
        let dialect = ResponsesDialect {
            places,
            tool_places: tools.places,
            echo,
            output: OutputOptions {
                custom: tools.custom,
                namespaced: tools.namespaced,
                client: tools.client,
                logprobs: self.logprobs,
                summary: self.summary,
                sealer: self.seals.then(|| Arc::clone(&context.sealer)),
            },
            recorder: context.recorder.clone(),
            is_background: self.is_background,
            obfuscation: self.obfuscation,
        };
        Ok((Value::Object(self.chat), dialect, left_out))
    }

    fn conversation(&mut self, context: &Context) -> Result<(Vec<Value>, Vec<Place>), Problem> {
        let input = self.input.take().unwrap_or_default();
        let is_empty = input.is_null() || input.as_array().is_some_and(Vec::is_empty);
        if is_empty && context.history.is_empty() {
            let message = "input is missing: send a string, or an array of items";
            return Err(Problem::invalid("input", message));
        }
        let mut conversation = Conversation::new(&*context.sealer);
        if let Some(text) = &self.instructions {
            conversation.instructions(text);
        }
        // Items are dropped one by one, the output of a tool with its call.
        let mut to_drop = context.dropped;
        let mut is_dropped = |conversation: &Conversation<'_>, item: &Value| {
            let is_dropped = to_drop > 0;
            to_drop = to_drop.saturating_sub(1);
            is_dropped || context.dropped > 0 && conversation.is_orphan(item)
        };
        for item in context.history.iter() {
            if !is_dropped(&conversation, item) {
                conversation.item("previous_response_id", Place::Previous, item)?;
            }
        }
        match &input {
            Value::String(_) => {
                let item = json!({"role": "user", "content": input});
                conversation.item("input", Place::Input(None), &item)?;
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let name = format!("input[{index}]");
                    let item = referenced(&name, item, context)?;
                    if !is_dropped(&conversation, item) {
                        conversation.item(&name, Place::Input(Some(index)), item)?;
                    }
                }
            }
            _ => {}
        }
        Ok(conversation.finish())
    }
}

/// The item itself, or the stored one that it names.
fn referenced<'a>(name: &str, item: &'a Value, context: &'a Context) -> Result<&'a Value, Problem> {
    if item["type"] != "item_reference" {
        return Ok(item);
    }
    Shape::Text.check(&format!("{name}.id"), &item["id"])?;
    let id = item["id"].as_str().unwrap_or_default();
    context.referenced.get(id).ok_or_else(|| {
        let message = format!("{name}: no stored item of your account has this id");
        Problem::invalid(name.to_owned(), message)
    })
}

fn never(name: &'static str) -> Result<(), Problem> {
    let message = format!("{name} is not supported here");
    Err(Problem::unsupported(name, message))
}
