//! Tools that OpenAI defines and the client runs: a shell, and patches of files. The model sees functions; their calls
//! and outputs are items of types of their own.

use serde_json::{Value, json};

use crate::openai::{Problem, Shape};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientTool {
    Shell,
    LocalShell,
    ApplyPatch,
}

/// Types of calls and of outputs.
pub const ITEM_TYPES: [&str; 6] = [
    "shell_call",
    "shell_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
];

impl ClientTool {
    const ALL: [Self; 3] = [Self::Shell, Self::LocalShell, Self::ApplyPatch];

    /// The tool's type, under which the model sees it, too.
    pub fn word(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::LocalShell => "local_shell",
            Self::ApplyPatch => "apply_patch",
        }
    }

    pub fn of_type(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.word() == word)
    }

    /// Whether the client runs it as it declares it: a shell may also be one in a container of the service.
    pub fn is_of_client(self, tool: &Value) -> bool {
        let environment = tool["environment"]["type"].as_str();
        self != Self::Shell || environment.is_none_or(|found| found == "local")
    }

    pub fn call_type(self) -> &'static str {
        match self {
            Self::Shell => "shell_call",
            Self::LocalShell => "local_shell_call",
            Self::ApplyPatch => "apply_patch_call",
        }
    }

    pub fn of_call(item_type: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|tool| tool.call_type() == item_type)
    }

    pub fn of_output(item_type: &str) -> Option<Self> {
        Self::of_call(item_type.strip_suffix("_output")?)
    }

    /// The declaration as a function of the chat API.
    pub fn function(self) -> Value {
        let (about, properties, required) = match self {
            Self::Shell => (
                "Run shell commands on the user's machine, one after the other, and read what they print.",
                json!({
                    "commands": {"type": "array", "items": {"type": "string"}},
                    "timeout_ms": {"type": "integer", "description": "Time for each command, in milliseconds."},
                    "max_output_length": {"type": "integer", "description": "Characters of output to return."},
                }),
                json!(["commands"]),
            ),
            Self::LocalShell => (
                "Run a program on the user's machine and read what it prints.",
                json!({
                    "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
                    "working_directory": {"type": "string"},
                    "timeout_ms": {"type": "integer", "description": "Time for it, in milliseconds."},
                    "env": {"type": "object", "additionalProperties": {"type": "string"}},
                }),
                json!(["command"]),
            ),
            Self::ApplyPatch => (
                "Create, update or delete one file. A diff has lines that begin with +, - or a space, after @@ marks; \
                 that of a new file has + lines alone.",
                json!({
                    "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
                    "path": {"type": "string"},
                    "diff": {"type": "string", "description": "Not for delete_file."},
                }),
                json!(["type", "path"]),
            ),
        };
        let parameters = json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        });
        json!({"name": self.word(), "description": about, "parameters": parameters})
    }

    /// The field of a call's item that holds the action.
    pub fn field(self) -> &'static str {
        match self {
            Self::Shell | Self::LocalShell => "action",
            Self::ApplyPatch => "operation",
        }
    }

    /// The value of that field, of arguments as far as they can be read.
    pub fn asked(self, arguments: &str) -> Value {
        let given: Value = serde_json::from_str(arguments).unwrap_or_default();
        let text = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
        match self {
            Self::Shell => json!({
                "commands": texts(&given["commands"]),
                "timeout_ms": given["timeout_ms"].as_u64(),
                "max_output_length": given["max_output_length"].as_u64(),
            }),
            Self::LocalShell => json!({
                "type": "exec",
                "command": texts(&given["command"]),
                "env": given["env"].as_object().cloned().unwrap_or_default(),
                "timeout_ms": given["timeout_ms"].as_u64(),
                "working_directory": given["working_directory"].as_str(),
            }),
            Self::ApplyPatch if given["type"] == "delete_file" => {
                json!({"type": "delete_file", "path": text("path")})
            }
            Self::ApplyPatch => {
                let kind = match given["type"] == "create_file" {
                    true => "create_file",
                    false => "update_file",
                };
                json!({"type": kind, "path": text("path"), "diff": text("diff")})
            }
        }
    }

    /// The arguments that the model gave, of an item that the client sends back.
    pub fn arguments(self, place: &str, item: &Value) -> Result<String, Problem> {
        let field = self.field();
        Shape::Object.check(&format!("{place}.{field}"), &item[field])?;
        let mut given = item[field].clone();
        if let Value::Object(entries) = &mut given {
            entries.retain(|name, value| {
                let is_of_item = self == Self::LocalShell && name == "type";
                !value.is_null() && !is_of_item
            });
        }
        Ok(given.to_string())
    }

    /// The model's input from an output that is no text: the parts of a shell's output, joined.
    pub fn output(self, place: &str, item: &Value) -> Result<String, Problem> {
        let output = &item["output"];
        match (self, output) {
            (Self::Shell, Value::Array(parts)) => {
                let parts = parts.iter().enumerate();
                let read =
                    parts.map(|(index, part)| shell_output(&format!("{place}[{index}]"), part));
                Ok(read.collect::<Result<Vec<_>, _>>()?.join("\n"))
            }
            (Self::ApplyPatch, _) => {
                if !output.is_null() {
                    Shape::Text.check(place, output)?;
                }
                let said = output.as_str().unwrap_or_default();
                let status = item["status"].as_str().unwrap_or("completed");
                Ok(format!("{status}\n{said}").trim_end().to_owned())
            }
            _ => {
                Shape::Text.check(place, output)?;
                Ok(output.as_str().unwrap_or_default().to_owned())
            }
        }
    }
}

fn shell_output(place: &str, part: &Value) -> Result<String, Problem> {
    Shape::Object.check(place, part)?;
    for name in ["stdout", "stderr"] {
        Shape::Text.check(&format!("{place}.{name}"), &part[name])?;
    }
    let outcome = match part["outcome"]["type"].as_str() {
        Some("timeout") => "timed out".to_owned(),
        _ => format!("exit code {}", part["outcome"]["exit_code"]),
    };
    let texts = [&part["stdout"], &part["stderr"]].map(|text| text.as_str().unwrap_or_default());
    let texts = texts.into_iter().filter(|text| !text.is_empty());
    let lines: Vec<&str> = texts.chain([outcome.as_str()]).collect();
    Ok(lines.join("\n"))
}

fn texts(list: &Value) -> Vec<&str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}
