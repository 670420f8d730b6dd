//! The content of a message: a string, or parts. Parts that are all text become one string, which every chat template
//! takes; with images among them they stay a list.

use serde_json::{Map, Value, json};

use crate::job::Capabilities;
use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

use super::Demand;
use super::messages::{Role, input_demand};

#[derive(Debug, Default)]
pub struct Content {
    pub value: Value,
    pub demands: Vec<Demand>,
    /// Bytes of text.
    pub bytes: usize,
}

const DETAILS: Shape = Shape::Word(&["auto", "low", "high", "original"]);

pub fn read(place: &str, role: Role, content: Value) -> Result<Content, Problem> {
    match content {
        Value::String(text) => Ok(Content {
            bytes: text.len(),
            value: Value::String(text),
            demands: Vec::new(),
        }),
        Value::Array(parts) => read_parts(place, role, parts),
        other => Err(Problem::invalid(
            place.to_owned(),
            format!(
                "{place} must be a string or an array of parts, found {}",
                kind(&other)
            ),
        )),
    }
}

fn read_parts(place: &str, role: Role, parts: Vec<Value>) -> Result<Content, Problem> {
    if parts.is_empty() {
        let message = format!("{place} must contain at least one part");
        return Err(Problem::invalid(place.to_owned(), message));
    }
    let mut content = Content::default();
    let mut read = Vec::with_capacity(parts.len());
    for (index, part) in parts.into_iter().enumerate() {
        let place = format!("{place}[{index}]");
        read.push(read_part(&place, role, part, &mut content)?);
    }
    content.value = if content.demands.is_empty() {
        let texts: Vec<&str> = read
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect();
        Value::String(texts.join("\n"))
    } else {
        Value::Array(read)
    };
    Ok(content)
}

fn read_part(
    place: &str,
    role: Role,
    part: Value,
    content: &mut Content,
) -> Result<Value, Problem> {
    Shape::Object.check(place, &part)?;
    let Value::Object(mut part) = part else {
        return Ok(part);
    };
    part.retain(|_, value| !value.is_null());
    let word = part.remove("type").unwrap_or_default();
    match word.as_str() {
        Some(key @ "text") => text(place, key, part, content),
        Some(key @ "refusal") if role == Role::Assistant => text(place, key, part, content),
        Some("image_url") if role == Role::User => {
            content
                .demands
                .push(input_demand(Capabilities::IMAGE_INPUT, place));
            linked(place, "image_url", part)
        }
        Some("video_url") if role == Role::User => {
            content
                .demands
                .push(input_demand(Capabilities::VIDEO_INPUT, place));
            linked(place, "video_url", part)
        }
        Some(known @ ("image_url" | "video_url" | "refusal")) => {
            let message = format!("{place}: a part of type {known} is not allowed with this role");
            Err(Problem::invalid(place.to_owned(), message))
        }
        Some("file") if role != Role::User => {
            let message = format!("{place}: a part of type file is not allowed with this role");
            Err(Problem::invalid(place.to_owned(), message))
        }
        Some(known @ ("input_audio" | "file")) => {
            let message = format!("{place}: parts of type {known} are not supported here");
            Err(Problem::unsupported(place.to_owned(), message))
        }
        _ => Err(unknown_type(place, &word)),
    }
}

fn unknown_type(place: &str, word: &Value) -> Problem {
    let found = match word {
        Value::String(word) => format!("{:?}", shortened(word)),
        other => kind(other),
    };
    let param = format!("{place}.type");
    let message = format!("{param} must be \"text\", \"image_url\" or \"file\", found {found}");
    Problem::invalid(param, message)
}

fn text(
    place: &str,
    key: &str,
    mut part: Map<String, Value>,
    content: &mut Content,
) -> Result<Value, Problem> {
    let value = part.remove(key).unwrap_or_default();
    Shape::Text.check(&format!("{place}.{key}"), &value)?;
    nothing_else(place, &part, &[key])?;
    content.bytes += value.as_str().map_or(0, str::len);
    Ok(json!({"type": "text", "text": value}))
}

fn linked(place: &str, key: &str, mut part: Map<String, Value>) -> Result<Value, Problem> {
    let link = part.remove(key).unwrap_or_default();
    let inner = format!("{place}.{key}");
    Shape::Object.check(&inner, &link)?;
    Shape::Text.check(&format!("{inner}.url"), &link["url"])?;
    let url = link["url"].as_str().unwrap_or_default();
    if !["data:", "https://", "http://"]
        .iter()
        .any(|scheme| url.starts_with(scheme))
    {
        let param = format!("{inner}.url");
        let message = format!("{param} must begin with https://, http:// or data:");
        return Err(Problem::invalid(param, message));
    }
    for (name, value) in link.as_object().into_iter().flatten() {
        match name.as_str() {
            "url" => {}
            "detail" if value.is_null() => {}
            "detail" => DETAILS.check(&format!("{inner}.detail"), value)?,
            _ => {
                return Err(field::unknown(
                    &format!("{inner}."),
                    name,
                    ["url", "detail"],
                ));
            }
        }
    }
    nothing_else(place, &part, &[key])?;
    Ok(json!({"type": key, key: link}))
}

fn nothing_else(place: &str, part: &Map<String, Value>, known: &[&str]) -> Result<(), Problem> {
    let Some(name) = part.keys().next() else {
        return Ok(());
    };
    if name == "prompt_cache_breakpoint" {
        let param = format!("{place}.{name}");
        let message =
            format!("{param} is not supported here: prompts are cached automatically; remove it");
        return Err(Problem::unsupported(param, message));
    }
    Err(field::unknown(
        &format!("{place}."),
        name,
        known.iter().copied(),
    ))
}
