//! Tools of the client, and which of them may be called. A custom tool becomes a function with one string.

use serde_json::{Map, Value, json};

use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

/// Tools as the chat API declares them.
#[derive(Debug, Default)]
pub struct ToolDeclarations {
    pub tools: Vec<Value>,
    /// Names of those that take text instead of JSON.
    pub custom: Vec<String>,
}

/// The one argument of a custom tool.
pub const INPUT: &str = "input";

pub fn declared(tools: &Value) -> Result<ToolDeclarations, Problem> {
    let mut declared = ToolDeclarations::default();
    for (index, tool) in tools.as_array().into_iter().flatten().enumerate() {
        let place = format!("tools[{index}]");
        Shape::Object.check(&place, tool)?;
        let function = match tool["type"].as_str().unwrap_or_default() {
            "function" => function(&place, tool)?,
            "custom" => {
                let name = tool["name"].as_str().unwrap_or_default();
                declared.custom.push(name.to_owned());
                custom(&place, tool)?
            }
            other => return Err(no_such_type(&place, other)),
        };
        let name = &function["name"];
        if declared
            .tools
            .iter()
            .any(|known| known["function"]["name"] == *name)
        {
            let param = format!("{place}.name");
            let name = shortened(name.as_str().unwrap_or_default());
            let message = format!("{param}: another tool is called {name:?}");
            return Err(Problem::invalid(param, message));
        }
        let tool = json!({"type": "function", "function": function});
        declared.tools.push(tool);
    }
    Ok(declared)
}

fn no_such_type(place: &str, found: &str) -> Problem {
    let param = format!("{place}.type");
    let found = shortened(found);
    let message = format!(
        "{param}: {found:?} is not supported here: declare a function or a custom tool and run it in your client"
    );
    Problem::unsupported(param, message)
}

fn entries<'a>(
    place: &str,
    value: &'a Value,
    known: &[&str],
) -> Result<&'a Map<String, Value>, Problem> {
    let Some(entries) = value.as_object() else {
        let message = format!("{place} must be an object, found {}", kind(value));
        return Err(Problem::invalid(place.to_owned(), message));
    };
    field::nothing_but(known, place, entries)?;
    Ok(entries)
}

fn function(place: &str, tool: &Value) -> Result<Value, Problem> {
    const KEYS: &[&str] = &[
        "type",
        "name",
        "description",
        "parameters",
        "strict",
        "defer_loading",
    ];
    let mut function = Map::new();
    for (name, value) in entries(place, tool, KEYS)? {
        if name == "defer_loading" {
            not_deferred(place, value)?;
        } else if name != "type" && !value.is_null() {
            function.insert(name.clone(), value.clone());
        }
    }
    Ok(Value::Object(function))
}

/// A tool that the model has to search for first.
fn not_deferred(place: &str, value: &Value) -> Result<(), Problem> {
    match value == true {
        true => {
            let param = format!("{place}.defer_loading");
            let message =
                format!("{param} is not supported here: all tools are shown to the model");
            Err(Problem::unsupported(param, message))
        }
        false => Ok(()),
    }
}

fn custom(place: &str, tool: &Value) -> Result<Value, Problem> {
    let keys = ["type", "name", "description", "format", "defer_loading"];
    let entries = entries(place, tool, &keys)?;
    if let Some(value) = entries.get("defer_loading") {
        not_deferred(place, value)?;
    }
    let pattern = pattern(&format!("{place}.format"), &tool["format"])?;
    let mut input = json!({"type": "string"});
    if let Some(pattern) = &pattern {
        input["pattern"] = format!("^(?:{pattern})$").into();
    }
    let mut function = json!({
        "name": tool["name"],
        "parameters": {
            "type": "object",
            "properties": {INPUT: input},
            "required": [INPUT],
            "additionalProperties": false,
        },
        "strict": pattern.is_some(),
    });
    if !tool["description"].is_null() {
        function["description"] = tool["description"].clone();
    }
    Ok(function)
}

/// The regular expression that the input matches.
fn pattern<'a>(place: &str, format: &'a Value) -> Result<Option<&'a str>, Problem> {
    if format.is_null() {
        return Ok(None);
    }
    entries(place, format, &["type", "syntax", "definition"])?;
    Shape::Word(&["text", "grammar"]).check(&format!("{place}.type"), &format["type"])?;
    if format["type"] == "text" {
        return Ok(None);
    }
    if format["syntax"] == "lark" {
        let param = format!("{place}.syntax");
        let message = format!(
            "{param}: lark is not supported here for the input of a tool, which a model writes inside a JSON string: use regex"
        );
        return Err(Problem::unsupported(param, message));
    }
    Shape::Word(&["regex", "lark"]).check(&format!("{place}.syntax"), &format["syntax"])?;
    Shape::Text.check(&format!("{place}.definition"), &format["definition"])?;
    Ok(format["definition"].as_str())
}

pub fn choice(value: Value) -> Result<Value, Problem> {
    const PLACE: &str = "tool_choice";
    if !value.is_object() {
        return Ok(value);
    }
    let named = |value: &Value| {
        entries(PLACE, value, &["type", "name"])?;
        Shape::Text.check("tool_choice.name", &value["name"])?;
        Ok(json!({"type": "function", "function": {"name": value["name"]}}))
    };
    match value["type"].as_str().unwrap_or_default() {
        "function" | "custom" => named(&value),
        "allowed_tools" => {
            entries(PLACE, &value, &["type", "mode", "tools"])?;
            Shape::List.check("tool_choice.tools", &value["tools"])?;
            let tools = value["tools"].as_array().into_iter().flatten();
            let tools =
                tools.map(|tool| json!({"type": "function", "function": {"name": tool["name"]}}));
            let tools: Vec<Value> = tools.collect();
            let allowed = json!({"mode": value["mode"], "tools": tools});
            Ok(json!({"type": "allowed_tools", "allowed_tools": allowed}))
        }
        other => {
            let found = shortened(other);
            let message = format!(
                "tool_choice.type must be function, custom or allowed_tools here, found {found:?}"
            );
            Err(Problem::unsupported("tool_choice.type", message))
        }
    }
}
