//! Messages to chat messages. Ollama's calls have no ids, so that the result of a tool belongs to the first call of its
//! name that has none yet.

use serde_json::{Value, json};

use crate::openai::{Problem, Shape, field};

use super::fields::retain;

const KEYS: &[&str] = &[
    "role",
    "content",
    "thinking",
    "images",
    "tool_calls",
    "tool_name",
    "tool_call_id",
];
const CALL_KEYS: &[&str] = &["id", "type", "function"];
const FUNCTION_KEYS: &[&str] = &["index", "name", "description", "arguments"];

/// A call whose result has not come yet.
struct OpenCall {
    id: String,
    name: String,
}

pub fn read(messages: Value) -> Result<Vec<Value>, Problem> {
    let Value::Array(messages) = messages else {
        return Ok(Vec::new());
    };
    let mut open: Vec<OpenCall> = Vec::new();
    let mut read = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let place = format!("messages[{index}]");
        read.push(one(&place, message, index, &mut open)?);
    }
    Ok(read)
}

/// Removes fields of messages that Ollama ignores, too.
pub fn set_aside(body: &mut Value, names: &mut Vec<String>) {
    let messages = body.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten() {
        let known = |name: &str| KEYS.contains(&name);
        retain(message, "messages.", known, names);
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let known = |name: &str| CALL_KEYS.contains(&name);
            retain(call, "messages.tool_calls.", known, names);
            if let Some(function) = call.get_mut("function") {
                let known = |name: &str| FUNCTION_KEYS.contains(&name);
                retain(function, "messages.tool_calls.function.", known, names);
            }
        }
    }
}

/// Number of messages that may be dropped: all but system messages and the last one.
pub fn droppable(body: &Value) -> usize {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    let before_last = messages.split_last().map_or(&[][..], |(_, others)| others);
    before_last.iter().filter(|one| !is_of_system(one)).count()
}

/// Drops this many of the oldest messages, with results of dropped calls.
pub fn drop_oldest(body: &mut Value, count: usize) {
    let Some(messages) = body.get_mut("messages").and_then(Value::as_array_mut) else {
        return;
    };
    let last = messages.len().saturating_sub(1);
    let (mut at, mut left, mut is_first) = (0, count, true);
    messages.retain(|message| {
        let is_last = at == last;
        at += 1;
        if is_of_system(message) || is_last || count == 0 {
            return true;
        }
        if left > 0 {
            left -= 1;
            return false;
        }
        is_first &= message["role"] == "tool";
        !is_first
    });
}

fn is_of_system(message: &Value) -> bool {
    message["role"] == "system"
}

fn one(
    place: &str,
    message: &Value,
    index: usize,
    open: &mut Vec<OpenCall>,
) -> Result<Value, Problem> {
    Shape::Object.check(place, message)?;
    if let Value::Object(entries) = message {
        field::nothing_but(KEYS, place, entries)?;
    }
    const ROLES: &[&str] = &["system", "user", "assistant", "tool"];
    Shape::Word(ROLES).check(&format!("{place}.role"), &message["role"])?;
    for name in ["content", "thinking", "tool_name", "tool_call_id"] {
        if !message[name].is_null() {
            Shape::Text.check(&format!("{place}.{name}"), &message[name])?;
        }
    }
    let text = message["content"].as_str().unwrap_or_default();
    let images = images(&format!("{place}.images"), &message["images"])?;
    let mut out = json!({"role": message["role"], "content": content(text, images)});
    match message["role"].as_str() {
        Some("assistant") => {
            if let Some(thinking) = message["thinking"].as_str().filter(|text| !text.is_empty()) {
                out["reasoning_content"] = thinking.into();
            }
            let calls = calls(place, &message["tool_calls"], index, open)?;
            if !calls.is_empty() {
                out["tool_calls"] = calls.into();
            }
        }
        Some("tool") => {
            out["tool_call_id"] = answered(place, message, open)?.into();
        }
        _ => {}
    }
    Ok(out)
}

fn calls(
    place: &str,
    calls: &Value,
    message: usize,
    open: &mut Vec<OpenCall>,
) -> Result<Vec<Value>, Problem> {
    if calls.is_null() {
        return Ok(Vec::new());
    }
    let place = format!("{place}.tool_calls");
    Shape::List.check(&place, calls)?;
    let mut read = Vec::new();
    for (index, call) in calls.as_array().into_iter().flatten().enumerate() {
        let place = format!("{place}[{index}]");
        Shape::Object.check(&place, call)?;
        if let Value::Object(entries) = call {
            field::nothing_but(CALL_KEYS, &place, entries)?;
        }
        let function = &call["function"];
        let place = format!("{place}.function");
        Shape::Object.check(&place, function)?;
        if let Value::Object(entries) = function {
            field::nothing_but(FUNCTION_KEYS, &place, entries)?;
        }
        Shape::Text.check(&format!("{place}.name"), &function["name"])?;
        let arguments = match &function["arguments"] {
            Value::Null => "{}".to_owned(),
            arguments => {
                Shape::Object.check(&format!("{place}.arguments"), arguments)?;
                arguments.to_string()
            }
        };
        let made_up = || format!("call_{message}_{index}");
        let id = call["id"].as_str().map_or_else(made_up, str::to_owned);
        let name = function["name"].as_str().unwrap_or_default().to_owned();
        read.push(json!({
            "id": id,
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }));
        open.push(OpenCall { id, name });
    }
    Ok(read)
}

/// The id of the call that a message of a tool answers.
fn answered(place: &str, message: &Value, open: &mut Vec<OpenCall>) -> Result<String, Problem> {
    let (name, id) = (
        message["tool_name"].as_str(),
        message["tool_call_id"].as_str(),
    );
    let found = open.iter().position(|call| match (id, name) {
        (Some(id), _) => call.id == id,
        (None, Some(name)) => call.name == name,
        (None, None) => true,
    });
    match found {
        Some(found) => Ok(open.remove(found).id),
        None => {
            let message = format!("{place}: no earlier message calls this tool without an answer");
            Err(Problem::invalid(place.to_owned(), message))
        }
    }
}

/// Images as links that hold their data.
pub fn images(place: &str, images: &Value) -> Result<Vec<String>, Problem> {
    if images.is_null() {
        return Ok(Vec::new());
    }
    Shape::List.check(place, images)?;
    let images = images.as_array().into_iter().flatten().enumerate();
    images
        .map(|(index, image)| {
            Shape::Text.check(&format!("{place}[{index}]"), image)?;
            let data = image.as_str().unwrap_or_default();
            Ok(format!("data:{};base64,{data}", media_type(data)))
        })
        .collect()
}

/// By the first bytes of the file, in base64.
fn media_type(data: &str) -> &'static str {
    match data {
        data if data.starts_with("/9j/") => "image/jpeg",
        data if data.starts_with("R0lGOD") => "image/gif",
        data if data.starts_with("UklGR") => "image/webp",
        _ => "image/png",
    }
}

/// Text alone is a string.
pub fn content(text: &str, images: Vec<String>) -> Value {
    if images.is_empty() {
        return text.into();
    }
    let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
    let images = images
        .into_iter()
        .map(|url| json!({"type": "image_url", "image_url": {"url": url}}));
    text.into_iter().chain(images).collect()
}
