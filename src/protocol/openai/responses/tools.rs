//! Tools of the client, and which of them may be called. A custom tool becomes a function with one string, a namespace
//! the functions in it. Tools that a service runs itself are left out, unless the client demands one of them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

use super::client_tools::ClientTool;

/// Tools as the chat API declares them.
#[derive(Debug, Default)]
pub struct ToolDeclarations {
    pub tools: Vec<Value>,
    /// The source of each tool.
    pub places: Vec<String>,
    /// Names of tools that take text instead of JSON.
    pub custom: BTreeSet<String>,
    /// Tools of namespaces, by the name under which the model sees them.
    pub namespaced: BTreeMap<String, NamespacedName>,
    /// Tools that OpenAI defines and the client runs.
    pub client: BTreeSet<ClientTool>,
    /// Types of tools that a service would run itself, with the place of the first of each.
    hosted: Vec<HostedTool>,
}

/// A tool of a namespace, as the client calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacedName {
    pub namespace: String,
    pub name: String,
}

/// A tool that this service does not have.
#[derive(Debug)]
struct HostedTool {
    place: String,
    kind: String,
}

/// The one argument of a custom tool.
pub const INPUT: &str = "input";

/// Tools hosted by OpenAI, all unsupported here. A shell may also run at the client.
const HOSTED: &[&str] = &[
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "file_search",
    "image_generation",
    "mcp",
    "shell",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
];

impl ToolDeclarations {
    /// Names of the fields that are left out where the model chooses.
    pub fn left_out(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for tool in &self.hosted {
            let name = format!("tools.{}", tool.kind);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    fn add(&mut self, place: &str, tool: &Value, namespace: Option<&str>) -> Result<(), Problem> {
        let (mut function, is_custom) = match tool["type"].as_str().unwrap_or_default() {
            "function" => (function(place, tool)?, false),
            "custom" => (custom(place, tool)?, true),
            other => return Err(no_such_type(place, other)),
        };
        let own = function["name"].as_str().unwrap_or_default().to_owned();
        let name = joined(namespace, &own);
        let is_known = |known: &Value| known["function"]["name"] == name.as_str();
        if self.tools.iter().any(is_known) {
            let param = format!("{place}.name");
            let message = format!("{param}: another tool is called {:?}", shortened(&own));
            return Err(Problem::invalid(param, message));
        }
        if let Some(namespace) = namespace {
            function["name"] = name.as_str().into();
            let names = NamespacedName {
                namespace: namespace.to_owned(),
                name: own,
            };
            self.namespaced.insert(name.clone(), names);
        }
        if is_custom {
            self.custom.insert(name);
        }
        let tool = json!({"type": "function", "function": function});
        self.tools.push(tool);
        self.places.push(place.to_owned());
        Ok(())
    }

    fn client_tool(&mut self, place: &str, tool: ClientTool) -> Result<(), Problem> {
        let function = tool.function();
        if self
            .tools
            .iter()
            .any(|known| known["function"]["name"] == function["name"])
        {
            let param = format!("{place}.type");
            let message = format!("{param}: another tool is called {:?}", tool.word());
            return Err(Problem::invalid(param, message));
        }
        self.client.insert(tool);
        self.tools
            .push(json!({"type": "function", "function": function}));
        self.places.push(place.to_owned());
        Ok(())
    }

    fn namespace(&mut self, place: &str, tool: &Value) -> Result<(), Problem> {
        entries(place, tool, &["type", "name", "description", "tools"])?;
        Shape::Text.check(&format!("{place}.name"), &tool["name"])?;
        Shape::List.check(&format!("{place}.tools"), &tool["tools"])?;
        let tools = tool["tools"].as_array().into_iter().flatten();
        for (index, tool_in) in tools.enumerate() {
            let place = format!("{place}.tools[{index}]");
            Shape::Object.check(&place, tool_in)?;
            self.add(&place, tool_in, tool["name"].as_str())?;
        }
        Ok(())
    }
}

/// The name under which the model sees a tool of a namespace. Calls in the input are named by the same rule.
pub fn joined(namespace: Option<&str>, name: &str) -> String {
    match namespace.filter(|namespace| !namespace.is_empty()) {
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.to_owned(),
    }
}

pub fn declared(tools: &Value) -> Result<ToolDeclarations, Problem> {
    let mut declared = ToolDeclarations::default();
    for (index, tool) in tools.as_array().into_iter().flatten().enumerate() {
        let place = format!("tools[{index}]");
        Shape::Object.check(&place, tool)?;
        let word = tool["type"].as_str().unwrap_or_default();
        let client_tool = ClientTool::of_type(word).filter(|known| known.is_of_client(tool));
        if let Some(client_tool) = client_tool {
            declared.client_tool(&place, client_tool)?;
            continue;
        }
        match word {
            "namespace" => declared.namespace(&place, tool)?,
            kind if HOSTED.contains(&kind) => declared.hosted.push(HostedTool {
                place,
                kind: kind.to_owned(),
            }),
            _ => declared.add(&place, tool, None)?,
        }
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
            check_loading(place, value)?;
        } else if name != "type" && !value.is_null() {
            function.insert(name.clone(), value.clone());
        }
    }
    Ok(Value::Object(function))
}

/// Whether a model has to search for the tool first: here every tool is shown at once.
fn check_loading(place: &str, value: &Value) -> Result<(), Problem> {
    match value.is_null() {
        true => Ok(()),
        false => Shape::Flag.check(&format!("{place}.defer_loading"), value),
    }
}

fn custom(place: &str, tool: &Value) -> Result<Value, Problem> {
    let keys = ["type", "name", "description", "format", "defer_loading"];
    let entries = entries(place, tool, &keys)?;
    if let Some(value) = entries.get("defer_loading") {
        check_loading(place, value)?;
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

/// Which tools may be called, as the chat API says it.
pub fn choice(value: Value, declared: &ToolDeclarations) -> Result<Value, Problem> {
    const PLACE: &str = "tool_choice";
    if !value.is_object() {
        return match (declared.hosted.first(), value.as_str()) {
            (Some(tool), Some("required")) if declared.tools.is_empty() => {
                Err(no_such_type(&tool.place, &tool.kind))
            }
            _ => Ok(value),
        };
    }
    let named = |place: &str, value: &Value| {
        entries(place, value, &["type", "name", "namespace"])?;
        Shape::Text.check(&format!("{place}.name"), &value["name"])?;
        let name = value["name"].as_str().unwrap_or_default();
        let name = joined(value["namespace"].as_str(), name);
        Ok(json!({"type": "function", "function": {"name": name}}))
    };
    let client_tool = |value: &Value| {
        let tool = ClientTool::of_type(value["type"].as_str()?)?;
        declared
            .client
            .contains(&tool)
            .then(|| json!({"type": "function", "function": {"name": tool.word()}}))
    };
    if let Some(tool) = client_tool(&value) {
        return Ok(tool);
    }
    match value["type"].as_str().unwrap_or_default() {
        "function" | "custom" => named(PLACE, &value),
        "allowed_tools" => {
            entries(PLACE, &value, &["type", "mode", "tools"])?;
            Shape::List.check("tool_choice.tools", &value["tools"])?;
            let mut tools = Vec::new();
            let mut hosted = None;
            let listed = value["tools"].as_array().into_iter().flatten();
            for (index, tool) in listed.enumerate() {
                let place = format!("tool_choice.tools[{index}]");
                Shape::Object.check(&place, tool)?;
                if let Some(tool) = client_tool(tool) {
                    tools.push(tool);
                    continue;
                }
                match tool["type"].as_str() {
                    Some(kind) if HOSTED.contains(&kind) => {
                        hosted.get_or_insert(no_such_type(&place, kind));
                    }
                    _ => tools.push(named(&place, tool)?),
                }
            }
            match hosted {
                Some(problem) if tools.is_empty() && value["mode"] == "required" => Err(problem),
                Some(_) if tools.is_empty() => Ok("none".into()),
                _ => {
                    let allowed = json!({"mode": value["mode"], "tools": tools});
                    Ok(json!({"type": "allowed_tools", "allowed_tools": allowed}))
                }
            }
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
