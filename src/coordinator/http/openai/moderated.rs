//! What moderators have laid down holds for chats as for every other prompt. All that a chat says is looked at as one text,
//! since what is suspicious may be spread over its messages; only where it has to be rewritten is each looked at alone.

use serde_json::Value;

use super::auto::Auto;
use crate::coordinator::error::ApiError;
use crate::coordinator::moderation::{Asker, Blocked, LONGEST, Medium, Moderation, Prompt};
use crate::protocol::job::FailureKind;

/// Entries of a message that name something and say nothing.
const NAMES: [&str; 6] = ["role", "type", "id", "tool_call_id", "name", "url"];

/// Leaves the body as it may be served.
pub async fn moderate(
    body: &mut Value,
    moderation: &Moderation,
    who: &Asker,
) -> Result<(), ApiError> {
    if !moderation.may_object(who.roles) {
        return Ok(());
    }
    let room = Room {
        models: models(body),
        moderation,
        who,
    };
    if room.look(&all_of(body)).await?.is_none() {
        return Ok(());
    }
    for text in texts(body) {
        if let Some(rewritten) = room.look(text).await? {
            *text = rewritten;
        }
    }
    match room.look(&all_of(body)).await? {
        None => Ok(()),
        Some(_) => Err(explain(Blocked::Corrupt)),
    }
}

/// Where texts are looked at.
struct Room<'a> {
    models: Vec<String>,
    moderation: &'a Moderation,
    who: &'a Asker,
}

impl Room<'_> {
    /// The text as it may be served, where that is not as it came.
    async fn look(&self, text: &str) -> Result<Option<String>, ApiError> {
        if !text.chars().any(char::is_alphanumeric) {
            return Ok(None);
        }
        let prompt = Prompt {
            text,
            medium: Medium::Text,
            // The API has no word for it.
            may_be_rewritten: false,
            models: &self.models,
        };
        let examined = self.moderation.examine(prompt, self.who).await;
        examined.map_err(explain)
    }
}

/// The model that is asked for; none, if it is left to us.
fn models(body: &Value) -> Vec<String> {
    let name = body["model"].as_str();
    let name = name.filter(|name| Auto::called(name).is_none());
    name.map(str::to_owned).into_iter().collect()
}

fn all_of(body: &mut Value) -> String {
    let texts: Vec<&str> = texts(body).into_iter().map(|text| &**text).collect();
    texts.join("\n")
}

/// Every text in the messages. Pictures and other files are none.
fn texts(body: &mut Value) -> Vec<&mut String> {
    let mut found = Vec::new();
    if let Some(messages) = body.get_mut("messages") {
        gather(messages, &mut found);
    }
    found
}

fn gather<'a>(value: &'a mut Value, found: &mut Vec<&'a mut String>) {
    match value {
        Value::String(text) if text.starts_with("data:") => {}
        Value::String(text) => found.push(text),
        Value::Array(values) => values.iter_mut().for_each(|value| gather(value, found)),
        Value::Object(entries) => {
            let said = entries
                .iter_mut()
                .filter(|(name, _)| !NAMES.contains(&name.as_str()));
            said.for_each(|(_, value)| gather(value, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn explain(blocked: Blocked) -> ApiError {
    let message = match blocked {
        Blocked::Corrupt => "the filters of this service let nobody ask for this".to_owned(),
        Blocked::TooLong(characters) => format!(
            "the messages have to be rewritten, and have {characters} characters: wanted at most {LONGEST}"
        ),
    };
    ApiError {
        param: Some("messages".into()),
        ..ApiError::new(FailureKind::ContentRefused, message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{all_of, models};

    #[test]
    fn all_that_is_said_is_looked_at_and_no_picture() {
        let mut body = json!({"model": "m", "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "name": "ann", "content": [
                {"type": "text", "text": "what is this"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            ]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"q\":1}"}},
            ]},
            {"role": "tool", "tool_call_id": "c", "content": "a cat"},
        ]});
        let expected = "be kind\nwhat is this\n{\"q\":1}\na cat";
        assert_eq!(all_of(&mut body), expected);
    }

    #[test]
    fn a_model_that_is_ours_to_choose_may_be_any() {
        assert_eq!(models(&json!({"model": "m"})), ["m"]);
        assert!(models(&json!({"model": "auto:fast"})).is_empty());
    }
}
