//! The content of items: a string, or parts.

use serde_json::{Value, json};

use crate::openai::chat::file_part;
use crate::openai::nearest::shortened;
use crate::openai::shape::kind;
use crate::openai::{Problem, Shape, field};

/// Parts of the chat API. `is_output`: the model wrote them.
pub fn read(place: &str, content: &Value, is_output: bool) -> Result<Vec<Value>, Problem> {
    match content {
        Value::String(text) => Ok(vec![text_part(text)]),
        Value::Array(parts) => {
            let parts = parts.iter().enumerate();
            parts
                .map(|(index, part)| one(&format!("{place}[{index}]"), part, is_output))
                .collect()
        }
        other => {
            let found = kind(other);
            let message = format!("{place} must be a string or an array of parts, found {found}");
            Err(Problem::invalid(place.to_owned(), message))
        }
    }
}

/// The output of a tool, which a model reads as text.
pub fn tool_output(place: &str, output: &Value) -> Result<String, Problem> {
    let parts = read(place, output, false)?;
    let mut texts = Vec::with_capacity(parts.len());
    for part in &parts {
        match part["text"].as_str() {
            Some(text) => texts.push(text),
            None => {
                let message = format!("{place}: only text is supported as the output of a tool");
                return Err(Problem::unsupported(place.to_owned(), message));
            }
        }
    }
    Ok(texts.join("\n"))
}

pub fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn one(place: &str, part: &Value, is_output: bool) -> Result<Value, Problem> {
    Shape::Object.check(place, part)?;
    let string = |name: &str| -> Result<&str, Problem> {
        Shape::Text.check(&format!("{place}.{name}"), &part[name])?;
        Ok(part[name].as_str().unwrap_or_default())
    };
    let known = |names: &[&str]| match part.as_object() {
        Some(entries) => field::nothing_but(names, place, entries),
        None => Ok(()),
    };
    match part["type"].as_str().unwrap_or_default() {
        // Clients of both kinds send the one for the other.
        "input_text" | "output_text" | "text" => {
            known(&[
                "type",
                "text",
                "annotations",
                "logprobs",
                "prompt_cache_breakpoint",
            ])?;
            Ok(text_part(string("text")?))
        }
        "refusal" if is_output => {
            known(&["type", "refusal"])?;
            Ok(text_part(string("refusal")?))
        }
        "input_image" if !is_output => {
            known(&["type", "image_url", "detail", "file_id"])?;
            if !part["file_id"].is_null() {
                let param = format!("{place}.file_id");
                let message =
                    format!("{param} is not supported here: send the image as a data URL");
                return Err(Problem::unsupported(param, message));
            }
            let mut image = json!({"url": string("image_url")?});
            if !part["detail"].is_null() {
                image["detail"] = part["detail"].clone();
            }
            Ok(json!({"type": "image_url", "image_url": image}))
        }
        "input_file" if !is_output => {
            known(&[
                "type",
                "file_data",
                "file_url",
                "filename",
                "file_id",
                "detail",
            ])?;
            file(place, part)
        }
        other => {
            let wanted = match is_output {
                true => "output_text or refusal",
                false => "input_text, input_image or input_file",
            };
            let param = format!("{place}.type");
            let found = shortened(other);
            let message = format!("{param} must be {wanted} here, found {found:?}");
            Err(Problem::unsupported(param, message))
        }
    }
}

fn file(place: &str, part: &Value) -> Result<Value, Problem> {
    if !part["file_id"].is_null() {
        let param = format!("{place}.file_id");
        let message =
            format!("{param} is not supported here: send the file as a data URL in file_data");
        return Err(Problem::unsupported(param, message));
    }
    let name = match (part["file_data"].is_null(), part["file_url"].is_null()) {
        (false, true) => "file_data",
        (true, false) => "file_url",
        (both_missing, _) => {
            let found = match both_missing {
                true => "neither",
                false => "both",
            };
            let message = format!("{place} must have either file_data or file_url, found {found}");
            return Err(Problem::invalid(place.to_owned(), message));
        }
    };
    for name in [name, "filename"] {
        if !part[name].is_null() {
            Shape::Text.check(&format!("{place}.{name}"), &part[name])?;
        }
    }
    if name == "file_url" {
        let url = part[name].as_str().unwrap_or_default();
        if !["https://", "http://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            let param = format!("{place}.{name}");
            let message = format!("{param} must begin with https:// or http://");
            return Err(Problem::invalid(param, message));
        }
    }
    if !part["detail"].is_null() {
        let words = Shape::Word(&["auto", "low", "high"]);
        words.check(&format!("{place}.detail"), &part["detail"])?;
    }
    Ok(file_part(
        part[name].clone(),
        &part["filename"],
        &part["detail"],
    ))
}
