//! Tools, which of them may or must be called, and the older functions, which become the same.

use serde_json::{Map, Value, json};

use crate::protocol::job::{Capabilities, ToolChoice};
use crate::protocol::openai::shape::kind;
use crate::protocol::openai::{Problem, Shape, field};

use super::Demand;

/// The most tools of one request.
const MOST_TOOLS: usize = 128;

/// What the client wants called.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    None,
    Auto,
    Required,
    Named(String),
    /// Only these, and one of them for sure when `required`.
    Allowed {
        names: Vec<String>,
        required: bool,
    },
}

/// Tools as the model will see them: none when it must not call any.
#[derive(Debug, Default)]
pub struct Settled {
    pub tools: Vec<Value>,
    pub choice: Option<ToolChoice>,
    pub demands: Vec<Demand>,
}

pub fn settle(tools: Vec<Value>, choice: Option<Value>) -> Result<Settled, Problem> {
    let choice = choice.map(|value| choice_of(&value)).transpose()?;
    let mut demands = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        demands.extend(check_tool(&format!("tools[{index}]"), tool)?);
    }
    agree(tools, choice, demands, ["tools", "tool_choice"])
}

pub fn settle_functions(functions: Vec<Value>, choice: Option<Choice>) -> Result<Settled, Problem> {
    for (index, function) in functions.iter().enumerate() {
        check_function(&format!("functions[{index}]"), function)?;
    }
    let tools = functions
        .into_iter()
        .map(|function| json!({"type": "function", "function": function}));
    agree(
        tools.collect(),
        choice,
        Vec::new(),
        ["functions", "function_call"],
    )
}

/// `"auto"`, `"none"` or `{"name": …}`
pub fn choice_of_function_call(value: Value) -> Result<Choice, Problem> {
    match value {
        Value::String(word) if word == "none" => Ok(Choice::None),
        Value::String(_) => Ok(Choice::Auto),
        Value::Object(entries) => name_in("function_call", &entries).map(Choice::Named),
        _ => Ok(Choice::Auto),
    }
}

fn choice_of(value: &Value) -> Result<Choice, Problem> {
    let Value::Object(entries) = value else {
        return Ok(match value.as_str() {
            Some("none") => Choice::None,
            Some("required") => Choice::Required,
            _ => Choice::Auto,
        });
    };
    match entries.get("type").and_then(Value::as_str) {
        Some("function") => {
            let function = entries.get("function").unwrap_or(&Value::Null);
            Shape::Object.check("tool_choice.function", function)?;
            let entries = function.as_object().into_iter().flatten();
            let entries: Map<_, _> = entries.map(|(k, v)| (k.clone(), v.clone())).collect();
            name_in("tool_choice.function", &entries).map(Choice::Named)
        }
        Some("allowed_tools") => allowed(entries.get("allowed_tools").unwrap_or(&Value::Null)),
        Some("custom") => Err(Problem::unsupported(
            "tool_choice",
            "custom tools are not supported here",
        )),
        _ => Err(Problem::invalid(
            "tool_choice.type",
            "tool_choice.type must be \"function\" or \"allowed_tools\"",
        )),
    }
}

fn allowed(value: &Value) -> Result<Choice, Problem> {
    const PLACE: &str = "tool_choice.allowed_tools";
    Shape::Object.check(PLACE, value)?;
    let mode = &value["mode"];
    Shape::Word(&["auto", "required"]).check("tool_choice.allowed_tools.mode", mode)?;
    let listed = &value["tools"];
    Shape::List.check("tool_choice.allowed_tools.tools", listed)?;
    let listed = listed.as_array().into_iter().flatten();
    let names: Option<Vec<String>> = listed
        .map(|tool| Some(tool["function"]["name"].as_str()?.to_owned()))
        .collect();
    let Some(names) = names else {
        return Err(Problem::invalid(
            PLACE,
            format!("{PLACE}.tools must hold functions with their names"),
        ));
    };
    Ok(Choice::Allowed {
        names,
        required: mode == "required",
    })
}

fn agree(
    mut tools: Vec<Value>,
    choice: Option<Choice>,
    mut demands: Vec<Demand>,
    [declared, chosen]: [&'static str; 2],
) -> Result<Settled, Problem> {
    if tools.len() > MOST_TOOLS {
        let message = format!("{declared} may hold {MOST_TOOLS}, found {}", tools.len());
        return Err(Problem::invalid(declared, message));
    }
    let choice = match choice {
        None | Some(Choice::Auto) if tools.is_empty() => return Ok(Settled::default()),
        Some(Choice::None) => return Ok(Settled::default()),
        _ if tools.is_empty() => {
            let message = format!("{chosen} asks for a call and {declared} is empty");
            return Err(Problem::invalid(chosen, message));
        }
        choice => narrow(&mut tools, choice, chosen)?,
    };
    demands.push(demand(Capabilities::TOOLS, declared));
    if !matches!(choice, ToolChoice::Auto) {
        demands.push(demand(Capabilities::GRAMMAR, chosen));
    }
    Ok(Settled {
        tools,
        choice: Some(choice),
        demands,
    })
}

/// Leaves the tools that may be called.
fn narrow(
    tools: &mut Vec<Value>,
    choice: Option<Choice>,
    chosen: &'static str,
) -> Result<ToolChoice, Problem> {
    let has = |tools: &[Value], name: &str| tools.iter().any(|tool| tool_name(tool) == Some(name));
    match choice {
        Some(Choice::Required) => Ok(ToolChoice::Required),
        Some(Choice::Named(name)) if has(tools, &name) => Ok(ToolChoice::Named(name)),
        Some(Choice::Allowed { names, required }) if names.iter().all(|name| has(tools, name)) => {
            tools.retain(|tool| {
                tool_name(tool).is_some_and(|name| names.iter().any(|allowed| allowed == name))
            });
            Ok(if required {
                ToolChoice::Required
            } else {
                ToolChoice::Auto
            })
        }
        Some(Choice::Named(_) | Choice::Allowed { .. }) => Err(Problem::invalid(
            chosen,
            format!("{chosen} names a function that was not declared"),
        )),
        None | Some(Choice::Auto | Choice::None) => Ok(ToolChoice::Auto),
    }
}

fn demand(capability: Capabilities, param: &'static str) -> Demand {
    Demand {
        capability,
        param: param.into(),
    }
}

fn tool_name(tool: &Value) -> Option<&str> {
    tool["function"]["name"].as_str()
}

/// A promise to keep to the parameters' schema needs a grammar.
fn check_tool(place: &str, tool: &Value) -> Result<Option<Demand>, Problem> {
    Shape::Object.check(place, tool)?;
    let word = &tool["type"];
    if word == "custom" {
        let message = format!("{place} is a custom tool, and only functions are supported here");
        return Err(Problem::unsupported(place.to_owned(), message));
    }
    if word != "function" {
        let param = format!("{place}.type");
        let message = format!("{param} must be \"function\", found {}", kind(word));
        return Err(Problem::invalid(param, message));
    }
    for name in tool.as_object().into_iter().flat_map(Map::keys) {
        if !["type", "function"].contains(&name.as_str()) {
            return Err(field::unknown(&format!("{place}."), name, ["function"]));
        }
    }
    let place = format!("{place}.function");
    let strict = check_function(&place, &tool["function"])?;
    Ok(strict.then(|| Demand {
        capability: Capabilities::GRAMMAR,
        param: format!("{place}.strict").into(),
    }))
}

/// Whether it promises to keep to its schema.
fn check_function(place: &str, function: &Value) -> Result<bool, Problem> {
    Shape::Object.check(place, function)?;
    let Some(entries) = function.as_object() else {
        return Ok(false);
    };
    for (name, value) in entries {
        let shape = match name.as_str() {
            "name" | "description" => Shape::Text,
            "parameters" => Shape::Object,
            "strict" => Shape::Flag,
            _ => {
                let known = ["name", "description", "parameters", "strict"];
                return Err(field::unknown(&format!("{place}."), name, known));
            }
        };
        if !value.is_null() {
            shape.check(&format!("{place}.{name}"), value)?;
        }
    }
    name_in(place, entries)?;
    Ok(entries.get("strict") == Some(&Value::Bool(true)))
}

fn name_in(place: &str, entries: &Map<String, Value>) -> Result<String, Problem> {
    let fits = |name: &&str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(is_part)
    };
    let name = entries.get("name").and_then(Value::as_str).filter(fits);
    name.map(str::to_owned).ok_or_else(|| {
        let param = format!("{place}.name");
        let message = format!("{param} must be 1 to 64 letters, digits, underscores and dashes");
        Problem::invalid(param, message)
    })
}
