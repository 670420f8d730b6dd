//! Input items to chat messages. The reasoning, text and calls of one model turn become one message.

use serde_json::{Value, json};

use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

use super::client_tools::ClientTool;
use super::dialect::Sealer;
use super::parts;
use super::tools::joined;

/// The source of a chat message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Instructions,
    /// A stored response.
    Previous,
    /// An item of the input; `None` if the input is a string.
    Input(Option<usize>),
}

#[derive(Debug)]
pub struct Conversation<'a> {
    pub messages: Vec<Value>,
    pub places: Vec<Place>,
    turn: Option<Turn>,
    /// Ids of calls so far.
    calls: Vec<String>,
    sealer: &'a dyn Sealer,
}

/// The model's output since the last item of another role.
#[derive(Debug)]
struct Turn {
    place: Place,
    thinking: String,
    parts: Vec<Value>,
    calls: Vec<Value>,
}

const TYPES: &str = "message, function_call, function_call_output, custom_tool_call, \
                     custom_tool_call_output, shell_call, shell_call_output, local_shell_call, \
                     local_shell_call_output, apply_patch_call, apply_patch_call_output, reasoning \
                     or item_reference";

impl<'a> Conversation<'a> {
    pub fn new(sealer: &'a dyn Sealer) -> Self {
        Self {
            messages: Vec::new(),
            places: Vec::new(),
            turn: None,
            calls: Vec::new(),
            sealer,
        }
    }

    pub fn instructions(&mut self, text: &str) {
        self.push(
            json!({"role": "system", "content": text}),
            Place::Instructions,
        );
    }

    pub fn item(&mut self, name: &str, place: Place, item: &Value) -> Result<(), Problem> {
        Shape::Object.check(name, item)?;
        let word = match (&item["type"], item["role"].is_string()) {
            (Value::Null, true) => "message",
            (word, _) => word.as_str().unwrap_or_default(),
        };
        if let Some(tool) = ClientTool::of_call(word) {
            return self.client_call(tool, name, place, item);
        }
        if let Some(tool) = ClientTool::of_output(word) {
            return self.client_output(tool, name, place, item);
        }
        match word {
            "message" => self.message(name, place, item),
            "reasoning" => self.reasoning(name, place, item),
            "function_call" => {
                known(name, item, &["call_id", "name", "arguments", "namespace"])?;
                let arguments = string(name, "arguments", item)?.to_owned();
                self.call(name, place, item, arguments)
            }
            "custom_tool_call" => {
                known(name, item, &["call_id", "name", "input", "namespace"])?;
                let input = json!({"input": string(name, "input", item)?});
                self.call(name, place, item, input.to_string())
            }
            "function_call_output" | "custom_tool_call_output" => self.output(name, place, item),
            other => {
                let param = format!("{name}.type");
                let found = shortened(other);
                let message = format!("{param} must be {TYPES} here, found {found:?}");
                Err(Problem::unsupported(param, message))
            }
        }
    }

    /// Whether the item answers a call that is not here.
    pub fn is_orphan(&self, item: &Value) -> bool {
        let word = item["type"].as_str().unwrap_or_default();
        let is_output = matches!(word, "function_call_output" | "custom_tool_call_output")
            || ClientTool::of_output(word).is_some();
        let id = id_of_call(item);
        is_output && !self.calls.iter().any(|call| id == call.as_str())
    }

    pub fn finish(mut self) -> (Vec<Value>, Vec<Place>) {
        self.end_turn();
        (self.messages, self.places)
    }

    fn push(&mut self, message: Value, place: Place) {
        self.end_turn();
        self.messages.push(message);
        self.places.push(place);
    }

    fn turn(&mut self, place: Place) -> &mut Turn {
        self.turn.get_or_insert_with(|| Turn {
            place,
            thinking: String::new(),
            parts: Vec::new(),
            calls: Vec::new(),
        })
    }

    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        let mut message = json!({"role": "assistant"});
        message["content"] = match (turn.parts.is_empty(), turn.calls.is_empty()) {
            (false, _) => turn.parts.into(),
            (true, true) => "".into(),
            (true, false) => Value::Null,
        };
        if !turn.thinking.is_empty() {
            message["reasoning_content"] = turn.thinking.into();
        }
        if !turn.calls.is_empty() {
            message["tool_calls"] = turn.calls.into();
        }
        self.messages.push(message);
        self.places.push(turn.place);
    }

    fn message(&mut self, name: &str, place: Place, item: &Value) -> Result<(), Problem> {
        known(name, item, &["role", "content", "phase"])?;
        const ROLES: &[&str] = &["user", "assistant", "system", "developer"];
        Shape::Word(ROLES).check(&format!("{name}.role"), &item["role"])?;
        let is_output = item["role"] == "assistant";
        let parts = parts::read(&format!("{name}.content"), &item["content"], is_output)?;
        if is_output {
            self.turn(place).parts.extend(parts);
            return Ok(());
        }
        let content = match <[Value; 1]>::try_from(parts) {
            Ok([part]) if part["type"] == "text" => part["text"].clone(),
            Ok([part]) => vec![part].into(),
            Err(parts) => parts.into(),
        };
        self.push(json!({"role": item["role"], "content": content}), place);
        Ok(())
    }

    fn reasoning(&mut self, name: &str, place: Place, item: &Value) -> Result<(), Problem> {
        known(name, item, &["summary", "content", "encrypted_content"])?;
        let thinking = match item["encrypted_content"].as_str() {
            Some(sealed) => self.sealer.open(sealed).ok_or_else(|| {
                let param = format!("{name}.encrypted_content");
                let message = format!(
                    "{param} is invalid: reasoning items must be returned unchanged, by the account that got them"
                );
                Problem::invalid(param, message)
            })?,
            None => {
                let list = match &item["content"] {
                    Value::Array(parts) if !parts.is_empty() => parts,
                    _ => match &item["summary"] {
                        Value::Array(parts) => parts,
                        _ => return Ok(()),
                    },
                };
                let texts: Vec<&str> = list.iter().filter_map(|part| part["text"].as_str()).collect();
                texts.join("\n")
            }
        };
        self.turn(place).thinking.push_str(&thinking);
        Ok(())
    }

    fn call(
        &mut self,
        name: &str,
        place: Place,
        item: &Value,
        arguments: String,
    ) -> Result<(), Problem> {
        let id = string(name, "call_id", item)?.to_owned();
        let called = joined(item["namespace"].as_str(), string(name, "name", item)?);
        self.called(place, id, &called, &arguments);
        Ok(())
    }

    fn client_call(
        &mut self,
        tool: ClientTool,
        name: &str,
        place: Place,
        item: &Value,
    ) -> Result<(), Problem> {
        known(name, item, &["call_id", tool.field(), "environment"])?;
        let id = string(name, "call_id", item)?.to_owned();
        let arguments = tool.arguments(name, item)?;
        self.called(place, id, tool.word(), &arguments);
        Ok(())
    }

    fn called(&mut self, place: Place, id: String, called: &str, arguments: &str) {
        let function = json!({"name": called, "arguments": arguments});
        let call = json!({"id": id, "type": "function", "function": function});
        self.turn(place).calls.push(call);
        self.calls.push(id);
    }

    fn output(&mut self, name: &str, place: Place, item: &Value) -> Result<(), Problem> {
        known(name, item, &["call_id", "output"])?;
        let text = parts::tool_output(&format!("{name}.output"), &item["output"])?;
        let id = string(name, "call_id", item)?;
        self.answered(name, place, id, &text)
    }

    fn client_output(
        &mut self,
        tool: ClientTool,
        name: &str,
        place: Place,
        item: &Value,
    ) -> Result<(), Problem> {
        known(name, item, &["call_id", "output", "max_output_length"])?;
        let text = tool.output(&format!("{name}.output"), item)?;
        let id = id_of_call(item);
        Shape::Text.check(&format!("{name}.call_id"), id)?;
        self.answered(name, place, id.as_str().unwrap_or_default(), &text)
    }

    fn answered(&mut self, name: &str, place: Place, id: &str, text: &str) -> Result<(), Problem> {
        if !self.calls.iter().any(|known| known == id) {
            let param = format!("{name}.call_id");
            let id = shortened(id);
            let message = format!("{param}: no earlier item calls a tool with the id {id:?}");
            return Err(Problem::invalid(param, message));
        }
        let message = json!({"role": "tool", "tool_call_id": id, "content": text});
        self.push(message, place);
        Ok(())
    }
}

/// The id of the call that an output answers. The output of a local shell may have it as its own.
fn id_of_call(item: &Value) -> &Value {
    match item["type"] == "local_shell_call_output" && item["call_id"].is_null() {
        true => &item["id"],
        false => &item["call_id"],
    }
}

/// Refuses unknown entries; entries common to all items are known.
fn known(name: &str, item: &Value, names: &[&str]) -> Result<(), Problem> {
    let Value::Object(entries) = item else {
        let message = format!("{name} must be an object, found {}", kind(item));
        return Err(Problem::invalid(name.to_owned(), message));
    };
    let common = ["type", "id", "status", "created_by", "agent"];
    let names: Vec<&str> = names.iter().copied().chain(common).collect();
    let given: serde_json::Map<_, _> = entries
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, _)| (name.clone(), Value::Null))
        .collect();
    field::nothing_but(&names, name, &given)
}

fn string<'v>(place: &str, name: &str, item: &'v Value) -> Result<&'v str, Problem> {
    Shape::Text.check(&format!("{place}.{name}"), &item[name])?;
    Ok(item[name].as_str().unwrap_or_default())
}
