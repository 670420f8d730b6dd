//! The conversation, as a chat template takes it: four roles, text as one string, calls with their arguments parsed.

use serde_json::{Map, Value, json};

use crate::job::Capabilities;
use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, Strictness, field, json};

use super::Demand;
use super::content;

/// Every key of a message, with its roles. `reasoning_content` is a field of our own replies.
const KEYS: &[(&str, &[Role])] = &[
    ("role", Role::ALL),
    ("content", Role::ALL),
    ("name", Role::ALL),
    ("tool_call_id", &[Role::Tool]),
    ("tool_calls", &[Role::Assistant]),
    ("function_call", &[Role::Assistant]),
    ("refusal", &[Role::Assistant]),
    ("reasoning_content", &[Role::Assistant]),
    ("audio", &[Role::Assistant]),
    ("annotations", &[Role::Assistant]),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
    Function,
}

/// Messages that have been read.
#[derive(Debug, Default)]
pub struct Read {
    pub messages: Vec<Value>,
    pub demands: Vec<Demand>,
    /// Bytes of text.
    pub bytes: usize,
    /// For the arguments of all calls together.
    budget: json::Budget,
}

pub fn read(messages: Vec<Value>, strictness: Strictness) -> Result<Read, Problem> {
    if messages.is_empty() {
        return Err(Problem::invalid(
            "messages",
            "messages is empty: send at least one",
        ));
    }
    let mut read = Read::default();
    for (index, message) in messages.into_iter().enumerate() {
        let place = format!("messages[{index}]");
        let message = one(&place, message, strictness, &mut read)?;
        read.messages.push(message);
    }
    Ok(read)
}

impl Role {
    const ALL: &[Self] = &[
        Self::System,
        Self::Developer,
        Self::User,
        Self::Assistant,
        Self::Tool,
        Self::Function,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Function => "function",
        }
    }

    /// Templates know the older four.
    fn template_word(self) -> &'static str {
        match self {
            Self::Developer => "system",
            Self::Function => "tool",
            other => other.word(),
        }
    }

    fn of(place: &str, value: Option<&Value>) -> Result<Self, Problem> {
        let word = value.and_then(Value::as_str);
        let role = Self::ALL.iter().find(|role| Some(role.word()) == word);
        role.copied().ok_or_else(|| {
            let param = format!("{place}.role");
            let words: Vec<_> = Self::ALL.iter().map(|role| role.word()).collect();
            let found = match word {
                Some(word) => format!("{:?}", shortened(word)),
                None => kind(value.unwrap_or(&Value::Null)),
            };
            let message = format!("{param} must be one of {}, found {found}", words.join(", "));
            Problem::invalid(param, message)
        })
    }
}

fn one(
    place: &str,
    message: Value,
    strictness: Strictness,
    read: &mut Read,
) -> Result<Value, Problem> {
    Shape::Object.check(place, &message)?;
    let Value::Object(mut message) = message else {
        return Ok(message);
    };
    message.retain(|_, value| !value.is_null());
    let role = Role::of(place, message.get("role"))?;
    check_keys(place, role, &mut message, strictness)?;
    let mut out = Map::new();
    out.insert("role".to_owned(), role.template_word().into());
    let content = content_of(place, role, &mut message, read)?;
    out.insert("content".to_owned(), content);
    if let Some(calls) = calls_of(place, &mut message, read)? {
        out.insert("tool_calls".to_owned(), calls);
    }
    for name in ["name", "tool_call_id", "reasoning_content"] {
        if let Some(value) = message.remove(name) {
            Shape::Text.check(&format!("{place}.{name}"), &value)?;
            read.bytes += value.as_str().map_or(0, str::len);
            out.insert(name.to_owned(), value);
        }
    }
    require(place, role, &out)?;
    Ok(Value::Object(out))
}

fn check_keys(
    place: &str,
    role: Role,
    message: &mut Map<String, Value>,
    strictness: Strictness,
) -> Result<(), Problem> {
    for name in message.keys() {
        match KEYS.iter().find(|(known, _)| known == name) {
            Some((_, roles)) if roles.contains(&role) => {}
            _ if strictness == Strictness::Tolerate => {}
            Some(_) => {
                let param = format!("{place}.{name}");
                let message = format!("{param} is not allowed with the role {}", role.word());
                return Err(Problem::invalid(param, message));
            }
            None => {
                let known = KEYS.iter().map(|(known, _)| *known);
                return Err(field::unknown(&format!("{place}."), name, known));
            }
        }
    }
    let is_empty_list = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    let notes = message.get("annotations");
    for (name, is_set) in [
        ("audio", message.contains_key("audio")),
        (
            "annotations",
            notes.is_some_and(|notes| !is_empty_list(notes)),
        ),
    ] {
        if is_set && strictness == Strictness::Refuse {
            let param = format!("{place}.{name}");
            let message = format!("{param} is not supported here");
            return Err(Problem::unsupported(param, message));
        }
    }
    Ok(())
}

fn content_of(
    place: &str,
    role: Role,
    message: &mut Map<String, Value>,
    read: &mut Read,
) -> Result<Value, Problem> {
    let refusal = message.remove("refusal");
    let given = message.remove("content").or_else(|| {
        let said_nothing = role == Role::Assistant;
        refusal.filter(|refusal| said_nothing && refusal.is_string())
    });
    let calls = message.contains_key("tool_calls") || message.contains_key("function_call");
    let place = format!("{place}.content");
    match given {
        Some(content) => {
            let content = content::read(&place, role, content)?;
            read.bytes += content.bytes;
            read.demands.extend(content.demands);
            Ok(content.value)
        }
        None if calls || role == Role::Function => Ok("".into()),
        None => Err(Problem::invalid(
            place.clone(),
            format!("{place} is missing"),
        )),
    }
}

fn calls_of(
    place: &str,
    message: &mut Map<String, Value>,
    read: &mut Read,
) -> Result<Option<Value>, Problem> {
    if let Some(function) = message.remove("function_call") {
        let place = format!("{place}.function_call");
        let function = called_function(&place, &function, read)?;
        return Ok(Some(json!([{"type": "function", "function": function}])));
    }
    let Some(calls) = message.remove("tool_calls") else {
        return Ok(None);
    };
    let place = format!("{place}.tool_calls");
    Shape::List.check(&place, &calls)?;
    let calls = calls.as_array().into_iter().flatten().enumerate();
    let calls: Result<Vec<_>, _> = calls
        .map(|(index, call)| tool_call(&format!("{place}[{index}]"), call, read))
        .collect();
    Ok(Some(Value::Array(calls?)))
}

fn tool_call(place: &str, call: &Value, read: &mut Read) -> Result<Value, Problem> {
    Shape::Object.check(place, call)?;
    if call["type"] == "custom" {
        let message = format!("{place} calls a custom tool: only functions are supported here");
        return Err(Problem::unsupported(place.to_owned(), message));
    }
    if let Some(entries) = call.as_object() {
        field::nothing_but(&["id", "type", "function", "index"], place, entries)?;
    }
    if !call["type"].is_null() {
        Shape::Word(&["function"]).check(&format!("{place}.type"), &call["type"])?;
    }
    Shape::Text.check(&format!("{place}.id"), &call["id"])?;
    let function = called_function(&format!("{place}.function"), &call["function"], read)?;
    Ok(json!({"id": call["id"], "type": "function", "function": function}))
}

/// Templates expect the arguments as an object; other JSON stays a string.
fn called_function(place: &str, function: &Value, read: &mut Read) -> Result<Value, Problem> {
    const KEYS: [&str; 2] = ["name", "arguments"];
    Shape::Object.check(place, function)?;
    if let Some(entries) = function.as_object() {
        field::nothing_but(&KEYS, place, entries)?;
    }
    for name in KEYS {
        Shape::Text.check(&format!("{place}.{name}"), &function[name])?;
    }
    let text = function["arguments"].as_str().unwrap_or_default();
    read.bytes += text.len();
    let arguments = match json::object(text, &read.budget) {
        Ok(Some(arguments)) => Value::Object(arguments),
        Ok(None) => text.into(),
        Err(json::TooMany) => {
            let param = format!("{place}.arguments");
            let most = json::MOST_VALUES;
            let message =
                format!("{param}: the tool calls contain more than {most} values in total");
            return Err(Problem::invalid(param, message));
        }
    };
    Ok(json!({"name": function["name"], "arguments": arguments}))
}

fn require(place: &str, role: Role, message: &Map<String, Value>) -> Result<(), Problem> {
    let needed = match role {
        Role::Tool => "tool_call_id",
        Role::Function => "name",
        _ => return Ok(()),
    };
    if message.contains_key(needed) {
        return Ok(());
    }
    let param = format!("{place}.{needed}");
    let message = format!("{param} is missing: the role {} requires it", role.word());
    Err(Problem::invalid(param, message))
}

/// The requirement of an image or a video in the prompt.
pub fn input_demand(capability: Capabilities, place: &str) -> Demand {
    Demand {
        capability,
        param: place.to_owned().into(),
    }
}
