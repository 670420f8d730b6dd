//! Moderation of chats. All texts are checked, wherever they are: in messages, and in descriptions of tools and
//! response formats. Images are left out, and names too short to say anything.

use serde_json::Value;

use crate::error::ApiError;
use crate::http::auto::Auto;
use crate::moderation::{Asker, Blocked, LONGEST, Moderation, Piece, Said};
use muster_protocol::job::FailureKind;

/// Shorter names are taken for words of the protocol.
const LONGEST_NAME: usize = 16;

/// Moderates the body in place. True if it changed.
pub async fn moderate(
    body: &mut Value,
    moderation: &Moderation,
    who: &Asker,
) -> Result<bool, ApiError> {
    let models = models(body);
    let examined = moderation.examine_talk(pieces(body), &models, who).await;
    let rewritten = examined.map_err(explain)?;
    let is_rewritten = rewritten.iter().any(Option::is_some);
    if is_rewritten {
        replace(body, rewritten);
    }
    Ok(is_rewritten)
}

/// The requested model; empty for `auto`.
fn models(body: &Value) -> Vec<String> {
    let name = body["model"].as_str();
    let name = name.filter(|name| Auto::called(name).is_none());
    name.map(str::to_owned).into_iter().collect()
}

fn pieces(body: &mut Value) -> Vec<Piece> {
    let mut pieces = Vec::new();
    visit_body(body, &mut |text, said| {
        let text = text.clone();
        pieces.push(Piece { text, said });
    });
    pieces
}

fn replace(body: &mut Value, rewritten: Vec<Option<String>>) {
    let mut rewritten = rewritten.into_iter();
    visit_body(body, &mut |text, _| {
        if let Some(other) = rewritten.next().flatten() {
            *text = other;
        }
    });
}

type Visit<'a> = &'a mut dyn FnMut(&mut String, Said);

/// Every text, always in the same order.
fn visit_body(body: &mut Value, visit: Visit<'_>) {
    let Value::Object(entries) = body else {
        return;
    };
    for (name, value) in entries {
        match (name.as_str(), value) {
            ("model", _) => {}
            ("messages", Value::Array(messages)) => {
                for message in messages {
                    let by_model = message["role"] == "assistant";
                    let said = if by_model {
                        Said::ByModel
                    } else {
                        Said::ByClient
                    };
                    visit_value(message, said, visit);
                }
            }
            (_, value) => visit_value(value, Said::ToProgram, visit),
        }
    }
}

fn visit_value(value: &mut Value, said: Said, visit: Visit<'_>) {
    match value {
        Value::String(text) => visit(text, said),
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| visit_value(value, said, visit)),
        Value::Object(entries) => {
            for (name, value) in entries {
                visit_name(name, visit);
                visit_entry(name, value, said, visit);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn visit_name(name: &str, visit: Visit<'_>) {
    if name.len() > LONGEST_NAME {
        visit(&mut name.to_owned(), Said::ToProgram);
    }
}

fn visit_entry(name: &str, value: &mut Value, said: Said, visit: Visit<'_>) {
    match (name, value) {
        ("role" | "type" | "name" | "id" | "tool_call_id", Value::String(name)) => {
            visit_name(name, visit);
        }
        ("url" | "file_data", Value::String(url)) if url.starts_with("data:") => {}
        ("url", Value::String(url)) => visit_name(url, visit),
        ("description", Value::String(text)) => visit(text, Said::ByClient),
        ("arguments", Value::String(text)) => visit_arguments(text, said, visit),
        (_, value) => visit_value(value, said, visit),
    }
}

/// Moderates the strings inside JSON arguments, which stay valid JSON.
fn visit_arguments(text: &mut String, said: Said, visit: Visit<'_>) {
    let Ok(mut value) = serde_json::from_str::<Value>(text) else {
        return visit(text, said);
    };
    let mut changed = false;
    visit_value(&mut value, said, &mut |text, said| {
        let before = text.clone();
        visit(text, said);
        changed |= *text != before;
    });
    if changed {
        *text = value.to_string();
    }
}

fn explain(blocked: Blocked) -> ApiError {
    let kind = match blocked {
        Blocked::Unread { .. } => FailureKind::TooLarge,
        _ => FailureKind::ContentRefused,
    };
    let message = match blocked {
        Blocked::Unread { found, most } => {
            format!("the messages must have at most {most} bytes, found {found}")
        }
        Blocked::Corrupt => {
            "the messages were rejected by the content filters of this service".to_owned()
        }
        Blocked::Slow => {
            "the content filters of this service took too long to read the messages: shorten them"
                .to_owned()
        }
        Blocked::TooLong(characters) => format!(
            "a message that the content filters rewrite must have at most {LONGEST} characters, found {characters}"
        ),
    };
    ApiError {
        param: Some("messages".into()),
        ..ApiError::new(kind, message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{models, pieces, replace};
    use crate::moderation::Said;

    fn talk() -> Value {
        json!({"model": "m", "stop": ["end"], "messages": [
            {"role": "system", "content": "data: be kind"},
            {"role": "user", "name": "ann", "content": [
                {"type": "text", "text": "what is this"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"q\":\"\\u0061n ant\"}"}},
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
        ], "tools": [{"type": "function", "function": {
            "name": "a name that tells a story", "description": "finds", "parameters": {"type": "object"},
        }}]})
    }

    #[test]
    fn whatever_is_said_is_looked_at_and_no_picture() {
        let found = pieces(&mut talk());
        let found: Vec<_> = found.iter().map(|it| (it.text.as_str(), it.said)).collect();
        let expected = [
            ("end", Said::ToProgram),
            ("data: be kind", Said::ByClient),
            ("what is this", Said::ByClient),
            ("an ant", Said::ByModel),
            ("a cat", Said::ByClient),
            ("a name that tells a story", Said::ToProgram),
            ("finds", Said::ByClient),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_rewritten_is_put_where_it_was() {
        let mut body = talk();
        let count = pieces(&mut body).len();
        let mut rewritten = vec![None; count];
        rewritten[3] = Some("a \"bee\"".to_owned());
        rewritten[4] = Some("a dog".to_owned());
        replace(&mut body, rewritten);
        let mut expected = talk();
        expected["messages"][2]["tool_calls"][0]["function"]["arguments"] =
            json!("{\"q\":\"a \\\"bee\\\"\"}");
        expected["messages"][3]["content"] = json!("a dog");
        assert_eq!(body, expected);
    }

    #[test]
    fn a_model_that_is_ours_to_choose_may_be_any() {
        assert_eq!(models(&json!({"model": "m"})), ["m"]);
        assert!(models(&json!({"model": "auto:fast"})).is_empty());
    }
}
