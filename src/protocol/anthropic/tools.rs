//! Tools of the client, and which of them may be used.

use serde_json::{Map, Value, json};

use crate::openai::nearest::shortened;
use crate::openai::{Problem, Shape, field};

use super::fields::check_cache_control;
use super::known_tools::KnownTool;

/// The result of `tool_choice`.
pub struct ToolPolicy {
    pub choice: Value,
    /// At most one call.
    pub is_single: bool,
}

/// Tools as the chat API declares them.
pub fn declared(tools: Value) -> Result<Value, Problem> {
    let Value::Array(tools) = tools else {
        return Ok(tools);
    };
    let mut declared: Vec<Value> = Vec::with_capacity(tools.len());
    for (index, tool) in tools.into_iter().enumerate() {
        let tool = one(&format!("tools.{index}"), tool)?;
        let name = &tool["function"]["name"];
        if declared
            .iter()
            .any(|known| known["function"]["name"] == *name)
        {
            let param = format!("tools.{index}.name");
            let name = shortened(name.as_str().unwrap_or_default());
            let message = format!("{param}: another tool is called {name:?}");
            return Err(Problem::invalid(param, message));
        }
        declared.push(tool);
    }
    Ok(declared.into())
}

fn one(place: &str, tool: Value) -> Result<Value, Problem> {
    const KEYS: &[&str] = &[
        "type",
        "name",
        "description",
        "input_schema",
        "strict",
        "cache_control",
        "input_examples",
        "eager_input_streaming",
        "allowed_callers",
        "defer_loading",
    ];
    Shape::Object.check(place, &tool)?;
    let Value::Object(mut tool) = tool else {
        return Ok(tool);
    };
    tool.retain(|_, value| !value.is_null());
    let known = tool.get("type").and_then(Value::as_str);
    if let Some(known) = known.and_then(KnownTool::of) {
        return known.declared(place, &tool);
    }
    if let Some(kind) = tool.get("type").filter(|kind| *kind != "custom") {
        let param = format!("{place}.type");
        let kind = shortened(kind.as_str().unwrap_or_default());
        let message = format!(
            "{param}: {kind:?} is not supported here: declare the tool with an input_schema"
        );
        return Err(Problem::unsupported(param, message));
    }
    field::nothing_but(KEYS, place, &tool)?;
    if tool.contains_key("input_examples") {
        let param = format!("{place}.input_examples");
        let message = format!("{param} is not supported here: put examples into the description");
        return Err(Problem::unsupported(param, message));
    }
    check_common(place, &tool)?;
    for (name, shape) in [("name", Shape::Text), ("input_schema", Shape::Object)] {
        let value = tool.get(name).unwrap_or(&Value::Null);
        shape.check(&format!("{place}.{name}"), value)?;
    }
    let mut function = Map::new();
    for (name, theirs) in [
        ("name", "name"),
        ("description", "description"),
        ("parameters", "input_schema"),
        ("strict", "strict"),
    ] {
        if let Some(value) = tool.remove(theirs) {
            function.insert(name.to_owned(), value);
        }
    }
    Ok(json!({"type": "function", "function": function}))
}

/// Fields that every tool may have.
pub fn check_common(place: &str, tool: &Map<String, Value>) -> Result<(), Problem> {
    check_callers(place, tool.get("allowed_callers"))?;
    if let Some(value) = tool.get("cache_control") {
        check_cache_control(&format!("{place}.cache_control"), value)?;
    }
    // All tools are shown to the model at once, and pieces of the input are sent as they are generated.
    for name in ["defer_loading", "eager_input_streaming", "strict"] {
        if let Some(value) = tool.get(name) {
            Shape::Flag.check(&format!("{place}.{name}"), value)?;
        }
    }
    Ok(())
}

/// Only the model itself calls tools: no code is executed here.
fn check_callers(place: &str, callers: Option<&Value>) -> Result<(), Problem> {
    match callers {
        None => Ok(()),
        Some(callers) if *callers == json!(["direct"]) => Ok(()),
        Some(_) => {
            let param = format!("{place}.allowed_callers");
            let message = format!("{param} must be [\"direct\"] here: no code is executed");
            Err(Problem::unsupported(param, message))
        }
    }
}

pub fn choice(value: &Value) -> Result<ToolPolicy, Problem> {
    const KEYS: &[&str] = &["type", "name", "disable_parallel_tool_use"];
    if let Value::Object(entries) = value {
        field::nothing_but(KEYS, "tool_choice", entries)?;
    }
    Shape::Word(&["auto", "any", "tool", "none"]).check("tool_choice.type", &value["type"])?;
    let single = &value["disable_parallel_tool_use"];
    if !single.is_null() {
        Shape::Flag.check("tool_choice.disable_parallel_tool_use", single)?;
    }
    let choice = match value["type"].as_str() {
        Some("any") => "required".into(),
        Some("none") => "none".into(),
        Some("tool") => {
            Shape::Text.check("tool_choice.name", &value["name"])?;
            json!({"type": "function", "function": {"name": value["name"]}})
        }
        _ => "auto".into(),
    };
    Ok(ToolPolicy {
        choice,
        is_single: *single == Value::Bool(true),
    })
}
