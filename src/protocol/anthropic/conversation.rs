//! Messages to chat messages. Consecutive messages of one role are one turn; tool results become messages of the tool.

use serde_json::{Value, json};

use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

use super::blocks::{
    document, image, search_result, text_of, text_part, thinking, tool_result, tool_use,
};
use super::dialect::Signer;

/// Chat messages, and of each the index of the client's message.
#[derive(Debug, Default)]
pub struct ChatMessages {
    pub messages: Vec<Value>,
    pub places: Vec<Option<usize>>,
}

/// The turn of one role.
struct MessageTurn {
    role: TurnRole,
    /// The client's message that it begins with.
    index: usize,
    parts: Vec<Value>,
    thinking: String,
    calls: Vec<Value>,
    /// Results of tools, each a message of its own.
    results: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnRole {
    User,
    Assistant,
    System,
}

const USER_BLOCKS: &str = "text, image, document, search_result or tool_result";
const ASSISTANT_BLOCKS: &str = "text, thinking or tool_use";
const SYSTEM_BLOCKS: &str = "text";

impl ChatMessages {
    pub fn system(&mut self, system: Value) -> Result<(), Problem> {
        let text = match system {
            Value::String(text) => text,
            Value::Array(blocks) => {
                let texts: Result<Vec<String>, Problem> = blocks
                    .iter()
                    .enumerate()
                    .map(|(index, block)| {
                        let place = format!("system.{index}");
                        Shape::Word(&["text"]).check(&format!("{place}.type"), &block["type"])?;
                        text_of(&place, block)
                    })
                    .collect();
                texts?.join("\n")
            }
            _ => String::new(),
        };
        if !text.is_empty() {
            self.push(json!({"role": "system", "content": text}), None);
        }
        Ok(())
    }

    fn push(&mut self, message: Value, place: Option<usize>) {
        self.messages.push(message);
        self.places.push(place);
    }

    fn turn(&mut self, turn: MessageTurn) {
        let MessageTurn {
            role,
            index,
            parts,
            thinking,
            calls,
            results,
        } = turn;
        for result in results {
            self.push(result, Some(index));
        }
        let content = match <[Value; 1]>::try_from(parts) {
            Ok([part]) if part["type"] == "text" => part["text"].clone(),
            Ok([part]) => vec![part].into(),
            Err(parts) => parts.into(),
        };
        let is_empty = content.as_array().is_some_and(Vec::is_empty);
        match role {
            TurnRole::User if is_empty => {}
            TurnRole::User => self.push(json!({"role": "user", "content": content}), Some(index)),
            TurnRole::System => {
                self.push(json!({"role": "system", "content": content}), Some(index))
            }
            TurnRole::Assistant => {
                let mut message = json!({"role": "assistant"});
                message["content"] = match (is_empty, calls.is_empty()) {
                    (false, _) => content,
                    (true, true) => "".into(),
                    (true, false) => Value::Null,
                };
                if !thinking.is_empty() {
                    message["reasoning_content"] = thinking.into();
                }
                if !calls.is_empty() {
                    message["tool_calls"] = calls.into();
                }
                self.push(message, Some(index));
            }
        }
    }
}

pub fn read(messages: Value, signer: &dyn Signer, into: &mut ChatMessages) -> Result<(), Problem> {
    let Value::Array(messages) = messages else {
        return Ok(());
    };
    if messages.is_empty() {
        let message = "messages is empty: send at least one";
        return Err(Problem::invalid("messages", message));
    }
    let last = messages.len() - 1;
    let mut turn: Option<MessageTurn> = None;
    // Ids of the tools that the last turn of the assistant used, and whose results are still missing.
    let mut used: Vec<String> = Vec::new();
    for (index, message) in messages.into_iter().enumerate() {
        let place = format!("messages.{index}");
        let (role, content) = head(&place, message)?;
        if role == TurnRole::Assistant && index == last {
            let message = format!(
                "{place}: beginning the answer for the model is not supported here: end with a user message"
            );
            return Err(Problem::unsupported(place, message));
        }
        if turn.as_ref().is_some_and(|turn| turn.role != role)
            && let Some(turn) = turn.take()
        {
            into.turn(turn);
        }
        let turn = turn.get_or_insert_with(|| MessageTurn::new(role, index));
        match content {
            Value::String(text) => turn.text(text),
            Value::Array(blocks) => {
                for (number, block) in blocks.into_iter().enumerate() {
                    let place = format!("{place}.content.{number}");
                    turn.block(&place, block, &mut used, signer)?;
                }
            }
            other => {
                let param = format!("{place}.content");
                let found = kind(&other);
                let message =
                    format!("{param} must be a string or an array of blocks, found {found}");
                return Err(Problem::invalid(param, message));
            }
        }
    }
    if let Some(turn) = turn {
        into.turn(turn);
    }
    Ok(())
}

fn head(place: &str, message: Value) -> Result<(TurnRole, Value), Problem> {
    Shape::Object.check(place, &message)?;
    let Value::Object(mut message) = message else {
        return Ok((TurnRole::User, Value::Null));
    };
    field::nothing_but(&["role", "content"], place, &message)?;
    let role = message.get("role").unwrap_or(&Value::Null);
    Shape::Word(&["user", "assistant", "system"]).check(&format!("{place}.role"), role)?;
    let role = match role.as_str() {
        Some("assistant") => TurnRole::Assistant,
        Some("system") => TurnRole::System,
        _ => TurnRole::User,
    };
    Ok((role, message.remove("content").unwrap_or_default()))
}

impl MessageTurn {
    fn new(role: TurnRole, index: usize) -> Self {
        Self {
            role,
            index,
            parts: Vec::new(),
            thinking: String::new(),
            calls: Vec::new(),
            results: Vec::new(),
        }
    }

    fn text(&mut self, text: String) {
        self.parts.push(text_part(text));
    }

    fn block(
        &mut self,
        place: &str,
        block: Value,
        used: &mut Vec<String>,
        signer: &dyn Signer,
    ) -> Result<(), Problem> {
        Shape::Object.check(place, &block)?;
        match (self.role, block["type"].as_str().unwrap_or_default()) {
            (_, "text") => {
                let text = text_of(place, &block)?;
                self.text(text);
            }
            (TurnRole::User, "image") => self.parts.push(image(place, &block)?),
            (TurnRole::User, "document") => self.parts.extend(document(place, &block)?),
            (TurnRole::User, "search_result") => {
                let text = search_result(place, &block)?;
                self.text(text);
            }
            (TurnRole::User, "tool_result") => self.results.push(tool_result(place, &block, used)?),
            (TurnRole::Assistant, "thinking") => {
                self.thinking.push_str(thinking(place, &block, signer)?)
            }
            (TurnRole::Assistant, "tool_use") => {
                let call = tool_use(place, &block)?;
                if let Some(id) = block["id"].as_str() {
                    used.push(id.to_owned());
                }
                self.calls.push(call);
            }
            (role, other) => {
                let known = match role {
                    TurnRole::User => USER_BLOCKS,
                    TurnRole::Assistant => ASSISTANT_BLOCKS,
                    TurnRole::System => SYSTEM_BLOCKS,
                };
                let param = format!("{place}.type");
                let message = format!("{param} must be {known} here, found {:?}", shortened(other));
                return Err(Problem::unsupported(param, message));
            }
        }
        Ok(())
    }
}
