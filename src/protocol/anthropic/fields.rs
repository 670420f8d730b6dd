//! Every field of a request, once: honoured, or refused by its name.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::job::{Formats, NativeBody};
use crate::openai::chat::Reading;
use crate::openai::field::{self, Field};
use crate::openai::shape::kind;
use crate::openai::{IgnoredFields, Problem, Shape, Strictness};

use super::conversation::{self, ChatMessages};
use super::dialect::{MessagesDialect, Signer};
use super::error::THREAD;
use super::thinking::{Thinking, ThinkingShown};
use super::tools;

/// The request so far, as a chat body.
#[derive(Default)]
pub struct MessageDraft {
    chat: Map<String, Value>,
    system: Option<Value>,
    messages: Option<Value>,
    thinking: Option<Thinking>,
}

/// A body as the chat API would have it.
struct ChatBody {
    chat: Value,
    /// For each chat message, the index of the client's message.
    places: Vec<Option<usize>>,
    thinking: ThinkingShown,
}

/// The purpose of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Message,
    /// The number of tokens of its prompt.
    Count,
}

pub const MOST_TOKENS: i64 = u32::MAX as i64;

const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut MessageDraft, Value) -> Result<(), Problem>,
) -> Field<MessageDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

#[rustfmt::skip]
pub const FIELDS: &[Field<MessageDraft>] = &[
    field("model", Shape::Text, "Model name as listed by /v1/models.", |draft, value| draft.put("model", value)),
    field("messages", Shape::List, "Conversation so far; ends with a user or system message.", |draft, value| {
        draft.messages = Some(value);
        Ok(())
    }),
    field("system", Shape::Either(&[Shape::Text, Shape::List]), "System prompt: a string or text blocks.", |draft, value| {
        draft.system = Some(value);
        Ok(())
    }),
    field("max_tokens", Shape::Integer(1..=MOST_TOKENS), "Maximum number of generated tokens, including thinking; the model's limit if absent.", |draft, value| {
        draft.put("max_tokens", value)
    }),
    field("stream", Shape::Flag, "Send events as tokens are generated.", |draft, value| draft.put("stream", value)),
    field("stop_sequences", Shape::List, "Up to 64 strings that end the answer; stop_sequence names the one that did.", |draft, value| {
        draft.put("stop", value)
    }),
    field("temperature", Shape::Number(0.0..=1.0), "Sampling temperature; 0 takes the most likely token.", |draft, value| {
        draft.put("temperature", value)
    }),
    field("top_p", Shape::Number(0.0..=1.0), "Sample from the most likely tokens with this total probability.", |draft, value| {
        draft.put("top_p", value)
    }),
    field("top_k", Shape::Integer(0..=1_000_000), "Sample from this many most likely tokens.", |draft, value| {
        draft.put("top_k", value)
    }),
    field("tools", Shape::List, "Tools of your own: with input_schema, or of the types bash, text_editor and memory, whose schemas are known; server tools are refused.", |draft, value| {
        draft.put("tools", tools::declared(value)?)
    }),
    field("tool_choice", Shape::Object, "auto, any, tool or none; disable_parallel_tool_use allows one call.", |draft, value| {
        let choice = tools::choice(&value)?;
        draft.put("tool_choice", choice.choice)?;
        match choice.is_single {
            true => draft.put("parallel_tool_calls", false.into()),
            false => Ok(()),
        }
    }),
    field("thinking", Shape::Object, "enabled, adaptive or disabled; disabled if absent. budget_tokens becomes the template's reasoning effort; thinking counts towards max_tokens; display omitted returns its signature alone.", |draft, value| {
        draft.thinking = Some(Thinking::read(&value)?);
        Ok(())
    }),
    field("output_config", Shape::Object, "effort, and format: a JSON schema that the answer keeps to.", |draft, value| {
        draft.output_config(value)
    }),
    field("output_format", Shape::Object, "Older place of output_config.format.", |draft, value| {
        draft.format("output_format", value)
    }),
    field("metadata", Shape::Object, "user_id: your identifier of the end user; no effect.", |_, value| {
        check_metadata(&value)
    }),
    field("cache_control", Shape::Object, "No effect: common beginnings of prompts are cached automatically.", |_, value| {
        check_cache_control("cache_control", &value)
    }),
    field("service_tier", Shape::Word(&["auto", "standard_only"]), "No effect: one tier exists.", |_, _| Ok(())),
    field("speed", Shape::Word(&["standard", "fast"]), "Only standard.", |_, value| match value == "standard" {
        true => Ok(()),
        false => Err(Problem::unsupported("speed", "speed must be \"standard\" here")),
    }),

    field("thread", Shape::Object, "Not supported: send the whole conversation; the error has the details by which Anthropic's clients do so themselves.", |_, _| {
        // Not a value that an operator may have ignored: the conversation would lose its beginning.
        Err(Problem::invalid(THREAD, "thread is not supported here: send the whole conversation in messages"))
    }),
    field("container", Shape::Either(&[Shape::Text, Shape::Object]), "Not supported: no code execution.", |_, _| never("container")),
    field("mcp_servers", Shape::List, "Not supported: connect to MCP servers in your client.", |_, value| {
        match value.as_array().is_some_and(Vec::is_empty) {
            true => Ok(()),
            false => never("mcp_servers"),
        }
    }),
    field("context_management", Shape::Object, "Only edits that keep all thinking: messages are used as they are sent.", |_, value| {
        check_context_management(&value)
    }),
    field("diagnostics", Shape::Object, "Not supported: earlier prompts are not kept.", |_, _| never("diagnostics")),
    field("inference_geo", Shape::Text, "Not supported.", |_, _| never("inference_geo")),
    field("user_profile_id", Shape::Text, "Not supported: there are no user profiles.", |_, _| never("user_profile_id")),
    field("workspace_id", Shape::Text, "Not supported: a key belongs to one account.", |_, _| never("workspace_id")),
];

/// A body of `/v1/messages`, or of its `count_tokens`.
pub fn read(
    body: Value,
    purpose: Purpose,
    wanted: &IgnoredFields,
    signer: &Arc<dyn Signer>,
) -> Result<Reading, Problem> {
    let is_known = |name: &str| FIELDS.iter().any(|field| field.name == name);
    let read = |body: Value| read_strictly(body, purpose, &**signer);
    let (read, body, ignored) = field::leniently(body, wanted, is_known, read)?;
    Ok(Reading {
        chat: read.chat,
        dialect: Box::new(MessagesDialect {
            places: read.places,
            thinking: read.thinking,
            signer: Arc::clone(signer),
        }),
        ignored,
        native: Some(NativeBody {
            format: Formats::ANTHROPIC,
            body: Arc::new(for_strangers(body)),
        }),
    })
}

/// The body for a worker of the public network: without nulls, and without fields that identify the client.
fn for_strangers(mut body: Value) -> Value {
    if let Value::Object(fields) = &mut body {
        fields.retain(|name, value| name != "metadata" && !value.is_null());
    }
    body
}

fn read_strictly(body: Value, purpose: Purpose, signer: &dyn Signer) -> Result<ChatBody, Problem> {
    let Value::Object(entries) = body else {
        let found = kind(&body);
        let message = format!("the body must be a JSON object, found {found}");
        return Err(Problem::malformed(message));
    };
    let mut draft = MessageDraft::default();
    field::read(FIELDS, entries, Strictness::Refuse, &mut draft)?;
    if purpose == Purpose::Count {
        for name in ["stream", "max_tokens"] {
            draft.chat.remove(name);
        }
    }
    draft.finish(signer)
}

impl MessageDraft {
    fn put(&mut self, name: &str, value: Value) -> Result<(), Problem> {
        self.chat.insert(name.to_owned(), value);
        Ok(())
    }

    fn output_config(&mut self, value: Value) -> Result<(), Problem> {
        let Value::Object(entries) = value else {
            return Ok(());
        };
        for (name, value) in entries {
            match name.as_str() {
                _ if value.is_null() => {}
                "effort" => {
                    const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];
                    Shape::Word(EFFORTS).check("output_config.effort", &value)?;
                    self.put("reasoning_effort", value)?;
                }
                "format" => self.format("output_config.format", value)?,
                _ => {
                    return Err(field::unknown(
                        "output_config.",
                        &name,
                        ["effort", "format"],
                    ));
                }
            }
        }
        Ok(())
    }

    fn format(&mut self, place: &str, value: Value) -> Result<(), Problem> {
        Shape::Word(&["json_schema"]).check(&format!("{place}.type"), &value["type"])?;
        Shape::Object.check(&format!("{place}.schema"), &value["schema"])?;
        if let Value::Object(entries) = &value {
            field::nothing_but(&["type", "schema"], place, entries)?;
        }
        let format = json!({"name": "output", "schema": value["schema"], "strict": true});
        self.put(
            "response_format",
            json!({"type": "json_schema", "json_schema": format}),
        )
    }

    fn finish(mut self, signer: &dyn Signer) -> Result<ChatBody, Problem> {
        let messages = self.messages.take().ok_or_else(|| {
            Problem::invalid("messages", "messages is missing: send at least one")
        })?;
        let mut conversation = ChatMessages::default();
        if let Some(system) = self.system.take() {
            conversation.system(system)?;
        }
        conversation::read(messages, signer, &mut conversation)?;
        let thinking = self.thinking.take().unwrap_or(Thinking::OFF);
        self.put("enable_thinking", thinking.is_on.into())?;
        if let Some(effort) = thinking.effort {
            let known = self.chat.entry("reasoning_effort");
            known.or_insert_with(|| effort.into());
        }
        let ChatMessages { messages, places } = conversation;
        self.put("messages", messages.into())?;
        Ok(ChatBody {
            chat: Value::Object(self.chat),
            places,
            thinking: thinking.shown,
        })
    }
}

/// Checks `cache_control` of a block or of the request, which has no further effect: caching is automatic.
pub fn check_cache_control(place: &str, value: &Value) -> Result<(), Problem> {
    if value.is_null() {
        return Ok(());
    }
    Shape::Object.check(place, value)?;
    if let Value::Object(entries) = value {
        field::nothing_but(&["type", "ttl"], place, entries)?;
    }
    Shape::Word(&["ephemeral"]).check(&format!("{place}.type"), &value["type"])
}

/// Coding agents request that all thinking be kept, which is the behaviour here.
fn check_context_management(value: &Value) -> Result<(), Problem> {
    const PLACE: &str = "context_management";
    if let Value::Object(entries) = value {
        field::nothing_but(&["edits"], PLACE, entries)?;
    }
    for (index, edit) in value["edits"].as_array().into_iter().flatten().enumerate() {
        let keeps_all = edit["keep"] == "all" || edit["keep"]["type"] == "all";
        if edit["type"] != "clear_thinking_20251015" || !keeps_all {
            let param = format!("{PLACE}.edits.{index}");
            let message = format!(
                "{param} is not supported here: messages are used as they are sent, with all of their thinking"
            );
            return Err(Problem::unsupported(param, message));
        }
    }
    Ok(())
}

fn check_metadata(value: &Value) -> Result<(), Problem> {
    if let Value::Object(entries) = value {
        field::nothing_but(&["user_id"], "metadata", entries)?;
    }
    match &value["user_id"] {
        Value::Null => Ok(()),
        id => Shape::Text.check("metadata.user_id", id),
    }
}

fn never(name: &'static str) -> Result<(), Problem> {
    let message = format!("{name} is not supported here");
    Err(Problem::unsupported(name, message))
}
