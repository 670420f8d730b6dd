//! Converts one content block to the parts of a chat message.

use serde_json::{Map, Value, json};

use crate::openai::chat::file_part;
use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

use super::dialect::Signer;
use super::fields::check_cache_control;

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
    let known = || known.iter().copied().chain(["type", "cache_control"]);
    let mut given = entries.iter().filter(|(_, value)| !value.is_null());
    if let Some((name, _)) = given.find(|(name, _)| !known().any(|known| known == name.as_str())) {
        return Err(field::unknown(&format!("{place}."), name, known()));
    }
    check_cache_control(&format!("{place}.cache_control"), &block["cache_control"])?;
    Ok(entries)
}

fn string<'a>(place: &str, name: &str, block: &'a Value) -> Result<&'a str, Problem> {
    Shape::Text.check(&format!("{place}.{name}"), &block[name])?;
    Ok(block[name].as_str().unwrap_or_default())
}

pub fn text_of(place: &str, block: &Value) -> Result<String, Problem> {
    entries(place, block, &["text", "citations"])?;
    Ok(string(place, "text", block)?.to_owned())
}

pub fn image(place: &str, block: &Value) -> Result<Value, Problem> {
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

/// A document to the parts that a message has of it: its text, or a file with its title and context before it.
pub fn document(place: &str, block: &Value) -> Result<Vec<Value>, Problem> {
    let inner = format!("{place}.source");
    let source = &block["source"];
    let file = match source["type"].as_str() {
        Some("base64") => {
            let param = format!("{inner}.media_type");
            Shape::Word(&["application/pdf"]).check(&param, &source["media_type"])?;
            let data = string(&inner, "data", source)?;
            format!("data:application/pdf;base64,{data}")
        }
        Some("url") => string(&inner, "url", source)?.to_owned(),
        Some("text" | "content") => {
            return Ok(vec![text_part(text_document(place, block)?)]);
        }
        _ => return Err(no_source(&inner, "base64, url, text or content")),
    };
    let about = about_document(place, block)?;
    let about = about.trim_end();
    let text = (!about.is_empty()).then(|| text_part(about.to_owned()));
    let file = file_part(file.into(), &Value::Null, &Value::Null);
    Ok(text.into_iter().chain([file]).collect())
}

pub fn text_part(text: String) -> Value {
    json!({"type": "text", "text": text})
}

/// A document that is text already.
fn text_document(place: &str, block: &Value) -> Result<String, Problem> {
    let mut whole = about_document(place, block)?;
    let source = &block["source"];
    let inner = format!("{place}.source");
    let text = match source["type"].as_str() {
        Some("text") => string(&inner, "data", source)?.to_owned(),
        Some("content") => texts(&format!("{inner}.content"), &source["content"])?,
        _ => {
            let wanted = "text or content (other documents are read in messages of the user)";
            return Err(no_source(&inner, wanted));
        }
    };
    whole.push_str(&text);
    Ok(whole)
}

/// Title and context, a line each.
fn about_document(place: &str, block: &Value) -> Result<String, Problem> {
    entries(place, block, &["source", "title", "context", "citations"])?;
    no_citations(place, block)?;
    let mut about = String::new();
    for name in ["title", "context"] {
        if !block[name].is_null() {
            about.push_str(string(place, name, block)?);
            about.push('\n');
        }
    }
    Ok(about)
}

pub fn search_result(place: &str, block: &Value) -> Result<String, Problem> {
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
                        Some("document") => text_document(&place, block),
                        Some("search_result") => search_result(&place, block),
                        Some("tool_reference") => tool_reference(&place, block),
                        _ => {
                            let param = format!("{place}.type");
                            let message = format!(
                                "{param} must be text, document, search_result or tool_reference here"
                            );
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

/// A tool that the client's own search has found: the model sees it already.
fn tool_reference(place: &str, block: &Value) -> Result<String, Problem> {
    entries(place, block, &["tool_name"])?;
    let name = string(place, "tool_name", block)?;
    Ok(format!("The tool {name} is available."))
}

pub fn tool_result(place: &str, block: &Value, used: &mut Vec<String>) -> Result<Value, Problem> {
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
pub fn thinking<'a>(
    place: &str,
    block: &'a Value,
    signer: &dyn Signer,
) -> Result<&'a str, Problem> {
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

pub fn tool_use(place: &str, block: &Value) -> Result<Value, Problem> {
    entries(place, block, &["id", "name", "input", "caller"])?;
    let (id, name) = (string(place, "id", block)?, string(place, "name", block)?);
    if !block["caller"].is_null() {
        Shape::Word(&["direct"])
            .check(&format!("{place}.caller.type"), &block["caller"]["type"])?;
    }
    Shape::Object.check(&format!("{place}.input"), &block["input"])?;
    let arguments = block["input"].to_string();
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}
