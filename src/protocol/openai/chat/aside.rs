//! Unknown fields inside messages and tools, passed on by a coordinator. Clients write for many services
//! (`cache_control` in a part of text, `annotations` beside a call), and a job must not fail for it: such fields are
//! removed before parsing. From our own clients they are refused by name.

use serde_json::Value;

const PART: &[&str] = &[
    "type",
    "text",
    "refusal",
    "image_url",
    "video_url",
    "input_audio",
    "file",
];
const LINK: &[&str] = &["url", "detail"];
const CALL: &[&str] = &["id", "type", "function", "index"];
const CALLED: &[&str] = &["name", "arguments"];
const TOOL: &[&str] = &["type", "function"];
const FUNCTION: &[&str] = &["name", "description", "parameters", "strict"];

pub fn leave(body: &mut Value) {
    for message in list(body, "messages") {
        for part in list(message, "content") {
            keep(part, PART);
            keep_in(part, "image_url", LINK);
            keep_in(part, "video_url", LINK);
        }
        for call in list(message, "tool_calls") {
            keep(call, CALL);
            keep_in(call, "function", CALLED);
        }
        keep_in(message, "function_call", CALLED);
    }
    for tool in list(body, "tools") {
        keep(tool, TOOL);
        keep_in(tool, "function", FUNCTION);
    }
}

/// The items of an entry; none, if it is no list.
fn list<'a>(value: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    let items = value.get_mut(name).and_then(Value::as_array_mut);
    items.into_iter().flatten()
}

fn keep_in(value: &mut Value, name: &str, known: &[&str]) {
    if let Some(inner) = value.get_mut(name) {
        keep(inner, known);
    }
}

fn keep(value: &mut Value, known: &[&str]) {
    if let Some(entries) = value.as_object_mut() {
        entries.retain(|name, _| known.contains(&name.as_str()));
    }
}
