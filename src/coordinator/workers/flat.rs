//! A chat as one text, for workers without support for messages.

use serde_json::Value;

/// `User: …`, `Assistant: …`, a line each, with an open assistant line at the end.
pub fn transcript(messages: &Value) -> String {
    let mut text = String::new();
    for message in messages.as_array().into_iter().flatten() {
        text.push_str(speaker(message["role"].as_str().unwrap_or("user")));
        text.push_str(": ");
        words(&message["content"], &mut text);
        text.push('\n');
    }
    text.push_str("Assistant:");
    text
}

fn speaker(role: &str) -> &'static str {
    match role {
        "system" | "developer" => "System",
        "assistant" => "Assistant",
        "tool" | "function" => "Tool",
        _ => "User",
    }
}

/// The text of a message's parts, without images.
fn words(content: &Value, into: &mut String) {
    match content {
        Value::String(text) => into.push_str(text),
        Value::Array(parts) => {
            for part in parts {
                words(part.get("text").unwrap_or(&Value::Null), into);
            }
        }
        _ => {}
    }
}
