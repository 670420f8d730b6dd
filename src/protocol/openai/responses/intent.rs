//! Facts of a body that a coordinator needs before parsing it: whether it is stored, and which stored responses it
//! needs. Values of a wrong type count as missing here: parsing the body refuses them.

use serde_json::{Value, json};

/// Before the id of every response.
pub const ID_PREFIX: &str = "resp_";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intent {
    pub previous: Option<String>,
    /// Ids of items that the client names instead of sending them.
    pub references: Vec<String>,
    /// `None` if missing.
    pub store: Option<bool>,
    pub background: bool,
    pub stream: bool,
    /// Drop the oldest items if the input is too long.
    pub truncates: bool,
}

impl Intent {
    pub fn of(body: &Value) -> Self {
        let items = body["input"].as_array().into_iter().flatten();
        let references = items.filter(|item| item["type"] == "item_reference");
        let id = |item: &Value| item["id"].as_str().map(str::to_owned);
        Self {
            previous: body["previous_response_id"].as_str().map(str::to_owned),
            references: references.filter_map(id).collect(),
            store: body["store"].as_bool(),
            background: body["background"] == true,
            stream: body["stream"] == true,
            truncates: body["truncation"] == "auto",
        }
    }
}

/// The unique part of a response's id, or of an item's: `0f` of `resp_0f` and of `msg_0f_2`.
pub fn request_of(id: &str) -> Option<&str> {
    id.split('_').nth(1).filter(|part| !part.is_empty())
}

/// The input of a body as items with ids, as they are listed later. `previous` items are not among them.
pub fn stored_input(input: &Value, request: &str) -> Vec<Value> {
    let items = match input {
        Value::String(_) => vec![json!({"role": "user", "content": input})],
        Value::Array(items) => items.clone(),
        _ => Vec::new(),
    };
    let items = items.into_iter().enumerate();
    items
        .map(|(index, mut item)| {
            complete(&mut item, || format!("_{request}_i{index}"));
            item
        })
        .collect()
}

fn complete(item: &mut Value, id: impl FnOnce() -> String) {
    let Value::Object(entries) = item else {
        return;
    };
    entries.retain(|_, value| !value.is_null());
    entries.entry("type").or_insert_with(|| "message".into());
    let kind = entries["type"].as_str().unwrap_or_default();
    if kind == "message" && entries.get("content").is_some_and(Value::is_string) {
        let part = match entries.get("role").and_then(Value::as_str) {
            Some("assistant") => "output_text",
            _ => "input_text",
        };
        let text = entries.remove("content").unwrap_or_default();
        entries.insert("content".to_owned(), json!([{"type": part, "text": text}]));
    }
    let prefix = prefix_of(entries["type"].as_str().unwrap_or_default());
    entries
        .entry("id")
        .or_insert_with(|| format!("{prefix}{}", id()).into());
    entries
        .entry("status")
        .or_insert_with(|| "completed".into());
}

/// Before the ids of items of this type.
pub fn prefix_of(kind: &str) -> &'static str {
    match kind {
        "function_call" => "fc",
        "function_call_output" => "fco",
        "custom_tool_call" => "ctc",
        "custom_tool_call_output" => "ctco",
        "shell_call" => "sh",
        "shell_call_output" => "sho",
        "local_shell_call" => "lsh",
        "local_shell_call_output" => "lsho",
        "apply_patch_call" => "apc",
        "apply_patch_call_output" => "apco",
        "reasoning" => "rs",
        _ => "msg",
    }
}
