//! Messages and their content blocks to chat messages. Consecutive messages of one role are one turn; tool results
//! become messages of the tool.

use serde_json::{Map, Value, json};

use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

use super::dialect::Signer;
use super::fields::check_cache_control;

/// Chat messages, and of each the index of the client's message.
#[derive(Debug, Default)]
pub struct Conversation {
    pub messages: Vec<Value>,
    pub places: Vec<Option<usize>>,
}

/// The turn of one role.
struct Turn {
    role: Role,
    /// The client's message that it begins with.
    index: usize,
    parts: Vec<Value>,
    thinking: String,
    calls: Vec<Value>,
    /// Results of tools, each a message of its own.
    results: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    User,
    Assistant,
}

const USER_BLOCKS: &str = "text, image, document, search_result or tool_result";
const ASSISTANT_BLOCKS: &str = "text, thinking or tool_use";

impl Conversation {
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

    fn turn(&mut self, turn: Turn) {
        let Turn {
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
            Role::User if is_empty => {}
            Role::User => self.push(json!({"role": "user", "content": content}), Some(index)),
            Role::Assistant => {
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

pub fn read(messages: Value, signer: &dyn Signer, into: &mut Conversation) -> Result<(), Problem> {
    let Value::Array(messages) = messages else {
        return Ok(());
    };
    if messages.is_empty() {
        let message = "messages is empty: send at least one";
        return Err(Problem::invalid("messages", message));
    }
    let last = messages.len() - 1;
    let mut turn: Option<Turn> = None;
    // Ids of the tools that the last turn of the assistant used, and whose results are still missing.
    let mut used: Vec<String> = Vec::new();
    for (index, message) in messages.into_iter().enumerate() {
        let place = format!("messages.{index}");
        let (role, content) = head(&place, message)?;
        if role == Role::Assistant && index == last {
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
        let turn = turn.get_or_insert_with(|| Turn::new(role, index));
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

fn head(place: &str, message: Value) -> Result<(Role, Value), Problem> {
    Shape::Object.check(place, &message)?;
    let Value::Object(mut message) = message else {
        return Ok((Role::User, Value::Null));
    };
    field::nothing_but(&["role", "content"], place, &message)?;
    let role = message.get("role").unwrap_or(&Value::Null);
    Shape::Word(&["user", "assistant"]).check(&format!("{place}.role"), role)?;
    let role = match role == "user" {
        true => Role::User,
        false => Role::Assistant,
    };
    Ok((role, message.remove("content").unwrap_or_default()))
}

impl Turn {
    fn new(role: Role, index: usize) -> Self {
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
        self.parts.push(json!({"type": "text", "text": text}));
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
            (Role::User, "image") => self.parts.push(image(place, &block)?),
            (Role::User, "document") => {
                let text = document(place, &block)?;
                self.text(text);
            }
            (Role::User, "search_result") => {
                let text = search_result(place, &block)?;
                self.text(text);
            }
            (Role::User, "tool_result") => self.results.push(tool_result(place, &block, used)?),
            (Role::Assistant, "thinking") => {
                self.thinking.push_str(thinking(place, &block, signer)?)
            }
            (Role::Assistant, "tool_use") => {
                let call = tool_use(place, &block)?;
                if let Some(id) = block["id"].as_str() {
                    used.push(id.to_owned());
                }
                self.calls.push(call);
            }
            (role, other) => {
                let known = match role {
                    Role::User => USER_BLOCKS,
                    Role::Assistant => ASSISTANT_BLOCKS,
                };
                let param = format!("{place}.type");
                let message = format!("{param} must be {known} here, found {:?}", shortened(other));
                return Err(Problem::unsupported(param, message));
            }
        }
        Ok(())
    }
}

/// The block's entries, if they have no others than these.
fn entries<'a>(
    place: &str,
    block: &'a Value,
    known: &[&str],
) -> Result<&'a Map<String, Value>, Problem> {
    let Value::Object(entries) = block else {
        let message = format!("{place} must be an object, found {}", kind(block));
        return Err(Problem::invalid(place.to_owned(), message));
    };
    let known: Vec<&str> = known
        .iter()
        .copied()
        .chain(["type", "cache_control"])
        .collect();
    field::nothing_but(&known, place, entries)?;
    check_cache_control(&format!("{place}.cache_control"), &block["cache_control"])?;
    Ok(entries)
}

fn string<'a>(place: &str, name: &str, block: &'a Value) -> Result<&'a str, Problem> {
    Shape::Text.check(&format!("{place}.{name}"), &block[name])?;
    Ok(block[name].as_str().unwrap_or_default())
}

fn text_of(place: &str, block: &Value) -> Result<String, Problem> {
    entries(place, block, &["text", "citations"])?;
    Ok(string(place, "text", block)?.to_owned())
}

fn image(place: &str, block: &Value) -> Result<Value, Problem> {
    entries(place, block, &["source"])?;
    let source = &block["source"];
    let place = format!("{place}.source");
    let url = match source["type"].as_str() {
        Some("base64") => {
            let media_type = string(&place, "media_type", source)?;
            format!(
                "data:{media_type};base64,{}",
                string(&place, "data", source)?
            )
        }
        Some("url") => string(&place, "url", source)?.to_owned(),
        _ => return Err(no_source(&place, "base64 or url")),
    };
    Ok(json!({"type": "image_url", "image_url": {"url": url}}))
}

fn no_source(place: &str, wanted: &str) -> Problem {
    let param = format!("{place}.type");
    let message = format!("{param} must be {wanted} here");
    Problem::unsupported(param, message)
}

fn document(place: &str, block: &Value) -> Result<String, Problem> {
    entries(place, block, &["source", "title", "context", "citations"])?;
    no_citations(place, block)?;
    let source = &block["source"];
    let inner = format!("{place}.source");
    let text = match source["type"].as_str() {
        Some("text") => string(&inner, "data", source)?.to_owned(),
        Some("content") => texts(&format!("{inner}.content"), &source["content"])?,
        _ => {
            let wanted = "text or content (other documents cannot be read)";
            return Err(no_source(&inner, wanted));
        }
    };
    let mut whole = String::new();
    for name in ["title", "context"] {
        if !block[name].is_null() {
            whole.push_str(string(place, name, block)?);
            whole.push('\n');
        }
    }
    whole.push_str(&text);
    Ok(whole)
}

fn search_result(place: &str, block: &Value) -> Result<String, Problem> {
    entries(place, block, &["source", "title", "content", "citations"])?;
    no_citations(place, block)?;
    let title = string(place, "title", block)?;
    let source = string(place, "source", block)?;
    let text = texts(&format!("{place}.content"), &block["content"])?;
    Ok(format!("{title}\n{source}\n{text}"))
}

fn no_citations(place: &str, block: &Value) -> Result<(), Problem> {
    match block["citations"]["enabled"] == Value::Bool(true) {
        true => {
            let param = format!("{place}.citations");
            let message = format!("{param} is not supported here");
            Err(Problem::unsupported(param, message))
        }
        false => Ok(()),
    }
}

/// A string, or blocks that are text.
fn texts(place: &str, content: &Value) -> Result<String, Problem> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        Value::Array(blocks) => {
            let texts: Result<Vec<String>, Problem> = blocks
                .iter()
                .enumerate()
                .map(|(index, block)| {
                    let place = format!("{place}.{index}");
                    match block["type"].as_str() {
                        Some("text") => text_of(&place, block),
                        Some("document") => document(&place, block),
                        Some("search_result") => search_result(&place, block),
                        _ => {
                            let param = format!("{place}.type");
                            let message =
                                format!("{param} must be text, document or search_result here");
                            Err(Problem::unsupported(param, message))
                        }
                    }
                })
                .collect();
            Ok(texts?.join("\n"))
        }
        other => {
            let found = kind(other);
            let message = format!("{place} must be a string or an array of blocks, found {found}");
            Err(Problem::invalid(place.to_owned(), message))
        }
    }
}

fn tool_result(place: &str, block: &Value, used: &mut Vec<String>) -> Result<Value, Problem> {
    entries(place, block, &["tool_use_id", "content", "is_error"])?;
    let id = string(place, "tool_use_id", block)?;
    let Some(known) = used.iter().position(|one| one == id) else {
        let param = format!("{place}.tool_use_id");
        let id = shortened(id);
        let message =
            format!("{param}: no earlier tool_use block has the id {id:?} and no result yet");
        return Err(Problem::invalid(param, message));
    };
    used.remove(known);
    let mut text = texts(&format!("{place}.content"), &block["content"])?;
    if !block["is_error"].is_null() {
        Shape::Flag.check(&format!("{place}.is_error"), &block["is_error"])?;
    }
    if block["is_error"] == Value::Bool(true) {
        text.insert_str(0, "Error: ");
    }
    Ok(json!({"role": "tool", "tool_call_id": id, "content": text}))
}

/// The text of a thought, if this service has signed it.
fn thinking<'a>(place: &str, block: &'a Value, signer: &dyn Signer) -> Result<&'a str, Problem> {
    entries(place, block, &["thinking", "signature"])?;
    let text = string(place, "thinking", block)?;
    let signature = string(place, "signature", block)?;
    match signer.verifies(text, signature) {
        true => Ok(text),
        false => {
            let param = format!("{place}.signature");
            let message = format!(
                "{param}: invalid signature: thinking blocks must be returned unchanged to the service that wrote them"
            );
            Err(Problem::invalid(param, message))
        }
    }
}

fn tool_use(place: &str, block: &Value) -> Result<Value, Problem> {
    entries(place, block, &["id", "name", "input", "caller"])?;
    let (id, name) = (string(place, "id", block)?, string(place, "name", block)?);
    Shape::Object.check(&format!("{place}.input"), &block["input"])?;
    let arguments = block["input"].to_string();
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}
