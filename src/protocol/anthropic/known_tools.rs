//! Tools whose schemas Anthropic's clients leave to the service: the client runs them, and the model has to be shown how
//! they are called.

use serde_json::{Map, Value, json};

use crate::openai::{Problem, field};

use super::tools::check_common;

/// A version of one of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnownTool {
    Bash,
    /// With `undo_edit`, and text to insert in `new_str`.
    FirstEditor,
    Editor,
    Memory,
}

impl KnownTool {
    pub fn of(kind: &str) -> Option<Self> {
        Some(match kind {
            "bash_20241022" | "bash_20250124" => Self::Bash,
            "text_editor_20241022" | "text_editor_20250124" => Self::FirstEditor,
            "text_editor_20250429" | "text_editor_20250728" => Self::Editor,
            "memory_20250818" => Self::Memory,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::FirstEditor => "str_replace_editor",
            Self::Editor => "str_replace_based_edit_tool",
            Self::Memory => "memory",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Bash => {
                "Run a command in a bash shell that keeps its state between calls. Set restart to start a new shell."
            }
            Self::FirstEditor | Self::Editor => {
                "View and edit files. view shows a file or lists a folder, create writes a new file with file_text, \
                 str_replace replaces the one place where old_str stands, insert adds lines after insert_line."
            }
            Self::Memory => {
                "Keep notes between conversations in files below /memories. View that folder before you begin. view shows \
                 a file or lists a folder, create writes a file, str_replace and insert change one, delete and rename \
                 remove and move files and folders."
            }
        }
    }

    /// Parameters of the tool: a command and its operands.
    fn parameters(self) -> Value {
        let text = |about: &str| json!({"type": "string", "description": about});
        let lines = json!({
            "type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2,
            "description": "First and last line to show; -1 is the end. For view.",
        });
        let line = json!({"type": "integer", "minimum": 0, "description": "Insert after this line; 0 is the beginning."});
        let mut properties = json!({
            "path": text("Absolute path of the file or folder."),
            "view_range": lines,
            "file_text": text("Content of the file. For create."),
            "old_str": text("Text to replace; must occur once. For str_replace."),
            "new_str": text("Text in its place. For str_replace."),
            "insert_line": line,
            "insert_text": text("Text to insert. For insert."),
        });
        let (commands, required): (&[&str], &[&str]) = match self {
            Self::Bash => {
                return json!({"type": "object", "properties": {
                    "command": text("The command to run; required unless the shell is restarted."),
                    "restart": {"type": "boolean", "description": "Start a new shell."},
                }, "additionalProperties": false});
            }
            Self::FirstEditor => {
                properties["new_str"] =
                    text("Text in its place, or to insert. For str_replace and insert.");
                if let Some(properties) = properties.as_object_mut() {
                    properties.remove("insert_text");
                }
                let commands = &["view", "create", "str_replace", "insert", "undo_edit"];
                (commands, &["command", "path"])
            }
            Self::Editor => (
                &["view", "create", "str_replace", "insert"],
                &["command", "path"],
            ),
            Self::Memory => {
                properties["old_path"] = text("Path of the file to move. For rename.");
                properties["new_path"] = text("Where to move it. For rename.");
                let commands = &[
                    "view",
                    "create",
                    "str_replace",
                    "insert",
                    "delete",
                    "rename",
                ];
                (commands, &["command"])
            }
        };
        properties["command"] = json!({"type": "string", "enum": commands});
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    }

    /// The tool as the chat API declares it.
    pub fn declared(self, place: &str, tool: &Map<String, Value>) -> Result<Value, Problem> {
        let mut keys = vec![
            "type",
            "name",
            "allowed_callers",
            "cache_control",
            "defer_loading",
            "eager_input_streaming",
            "strict",
        ];
        if self == Self::Editor {
            // The client itself shortens the files that it shows.
            keys.push("max_characters");
        }
        field::nothing_but(&keys, place, tool)?;
        check_common(place, tool)?;
        let name = self.name();
        if tool.get("name").is_none_or(|given| given != name) {
            let param = format!("{place}.name");
            let message = format!("{param} must be {name:?} for a tool of this type");
            return Err(Problem::invalid(param, message));
        }
        let mut function = json!({
            "name": name,
            "description": self.description(),
            "parameters": self.parameters(),
        });
        if let Some(strict) = tool.get("strict") {
            function["strict"] = strict.clone();
        }
        Ok(json!({"type": "function", "function": function}))
    }
}
