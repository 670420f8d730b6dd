//! Tools, which of them may or must be called, and the older functions, which become the same.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::job::{Capabilities, ToolChoice};
use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

use super::{Demand, keywords};

/// The most tools of one request.
const MOST_TOOLS: usize = 128;

/// The client's tool choice.
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
    let functions = tools.iter().map(|tool| &tool["function"]);
    check_names(functions, |index| format!("tools[{index}].function.name"))?;
    agree(tools, choice, demands, ["tools", "tool_choice"])
}

pub fn settle_functions(functions: Vec<Value>, choice: Option<Choice>) -> Result<Settled, Problem> {
    for (index, function) in functions.iter().enumerate() {
        check_function(&format!("functions[{index}]"), function)?;
    }
    check_names(&functions, |index| format!("functions[{index}].name"))?;
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

/// A call could be of either of two functions with one name.
fn check_names<'a>(
    functions: impl IntoIterator<Item = &'a Value>,
    param: impl Fn(usize) -> String,
) -> Result<(), Problem> {
    let mut seen = HashSet::new();
    for (index, function) in functions.into_iter().enumerate() {
        let name = function["name"].as_str().unwrap_or_default();
        if !seen.insert(name) {
            let param = param(index);
            let message = format!("{param}: another function is called {:?}", shortened(name));
            return Err(Problem::invalid(param, message));
        }
    }
    Ok(())
}

/// `"auto"`, `"none"` or `{"name": …}`
pub fn choice_of_function_call(value: Value) -> Result<Choice, Problem> {
    match value {
        Value::String(word) if word == "none" => Ok(Choice::None),
        Value::String(_) => Ok(Choice::Auto),
        Value::Object(entries) => named("function_call", &entries),
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
            field::nothing_but(&["type", "function"], "tool_choice", entries)?;
            named(
                "tool_choice.function",
                object("tool_choice.function", &value["function"])?,
            )
        }
        Some("allowed_tools") => {
            field::nothing_but(&["type", "allowed_tools"], "tool_choice", entries)?;
            allowed(&value["allowed_tools"])
        }
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
    field::nothing_but(&["mode", "tools"], PLACE, object(PLACE, value)?)?;
    let mode = &value["mode"];
    Shape::Word(&["auto", "required"]).check("tool_choice.allowed_tools.mode", mode)?;
    let listed = &value["tools"];
    Shape::List.check("tool_choice.allowed_tools.tools", listed)?;
    let listed = listed.as_array().into_iter().flatten().enumerate();
    let names: Result<_, _> = listed
        .map(|(index, tool)| allowed_tool(&format!("{PLACE}.tools[{index}]"), tool))
        .collect();
    Ok(Choice::Allowed {
        names: names?,
        required: mode == "required",
    })
}

fn allowed_tool(place: &str, tool: &Value) -> Result<String, Problem> {
    field::nothing_but(&["type", "function"], place, object(place, tool)?)?;
    Shape::Word(&["function"]).check(&format!("{place}.type"), &tool["type"])?;
    let place = format!("{place}.function");
    let function = object(&place, &tool["function"])?;
    field::nothing_but(&["name"], &place, function)?;
    name_in(&place, function)
}

/// The one function of this name.
fn named(place: &str, entries: &Map<String, Value>) -> Result<Choice, Problem> {
    field::nothing_but(&["name"], place, entries)?;
    name_in(place, entries).map(Choice::Named)
}

fn object<'a>(place: &str, value: &'a Value) -> Result<&'a Map<String, Value>, Problem> {
    let must_be = || {
        Problem::invalid(
            place.to_owned(),
            format!("{place} must be an object, found {}", kind(value)),
        )
    };
    value.as_object().ok_or_else(must_be)
}

fn agree(
    mut tools: Vec<Value>,
    choice: Option<Choice>,
    mut demands: Vec<Demand>,
    [declared, chosen]: [&'static str; 2],
) -> Result<Settled, Problem> {
    if tools.len() > MOST_TOOLS {
        let message = format!(
            "{declared} must contain at most {MOST_TOOLS} entries, found {}",
            tools.len()
        );
        return Err(Problem::invalid(declared, message));
    }
    let choice = match choice {
        None | Some(Choice::Auto) if tools.is_empty() => return Ok(Settled::default()),
        Some(Choice::None) => return Ok(Settled::default()),
        _ if tools.is_empty() => {
            let message = format!("{chosen} requires a call, but {declared} is empty");
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
    let entries = object(place, tool)?;
    let word = &tool["type"];
    if word == "custom" {
        let message = format!("{place} is a custom tool: only functions are supported here");
        return Err(Problem::unsupported(place.to_owned(), message));
    }
    if word != "function" {
        let param = format!("{place}.type");
        let message = format!("{param} must be \"function\", found {}", kind(word));
        return Err(Problem::invalid(param, message));
    }
    field::nothing_but(&["type", "function"], place, entries)?;
    let place = format!("{place}.function");
    let strict = check_function(&place, &tool["function"])?;
    Ok(strict.then(|| Demand {
        capability: Capabilities::GRAMMAR,
        param: format!("{place}.strict").into(),
    }))
}

/// Whether it promises to keep to its schema.
fn check_function(place: &str, function: &Value) -> Result<bool, Problem> {
    let entries = object(place, function)?;
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
    let is_strict = entries.get("strict") == Some(&Value::Bool(true));
    if is_strict && let Some(parameters) = entries.get("parameters") {
        keywords::check(parameters, &format!("{place}.parameters"))?;
    }
    Ok(is_strict)
}

fn name_in(place: &str, entries: &Map<String, Value>) -> Result<String, Problem> {
    let fits = |name: &&str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(is_part)
    };
    let name = entries.get("name").and_then(Value::as_str).filter(fits);
    name.map(str::to_owned).ok_or_else(|| {
        let param = format!("{place}.name");
        let message = format!("{param} must be 1 to 64 letters, digits, underscores or dashes");
        Problem::invalid(param, message)
    })
}
