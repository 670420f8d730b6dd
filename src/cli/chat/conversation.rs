//! Messages so far.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cli::{Exit, Failure};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    pub messages: Vec<Message>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub role: String,
    pub content: String,
}

impl Conversation {
    pub fn ask(&mut self, content: String) {
        self.push("user", content);
    }

    /// An answer that was stopped before its first word is none: its question goes with it.
    pub fn answered(&mut self, text: &str) {
        match text.is_empty() {
            true => self.take_back(),
            false => self.push("assistant", text.to_owned()),
        }
    }

    pub fn take_back(&mut self) {
        self.messages.pop();
    }

    fn push(&mut self, role: &str, content: String) {
        let role = role.to_owned();
        self.messages.push(Message { role, content });
    }

    /// The request for the next answer.
    pub fn body(&self) -> Value {
        let system = self.system.iter();
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let messages = self.messages.iter().map(|message| json!(message));
        let messages: Vec<Value> = system.chain(messages).collect();
        json!({
            "model": self.model,
            "messages": messages,
            "stream": true,
            "stream_options": {"include_usage": true},
        })
    }

    pub fn save(&self, file: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).map_err(anyhow::Error::from)?;
        fs::write(file, text + "\n").map_err(|error| Failure::writing(file, &error))
    }

    pub fn load(file: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(file).map_err(|error| Failure::reading(file, &error))?;
        serde_json::from_str(&text).map_err(|error| {
            let message = format!("{}: not a saved chat: {error}", file.display());
            Failure::new(Exit::BadData, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Conversation;

    fn conversation() -> Conversation {
        Conversation {
            model: "tiny".to_owned(),
            system: Some("Be brief.".to_owned()),
            messages: Vec::new(),
        }
    }

    #[test]
    fn a_request_has_all_messages_in_order() {
        let mut chat = conversation();
        chat.ask("a".to_owned());
        chat.answered("b");
        chat.ask("lost".to_owned());
        chat.answered("");
        chat.ask("c".to_owned());
        let body = chat.body();
        let contents: Vec<&str> = body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|message| message["content"].as_str())
            .collect();
        assert_eq!(contents, ["Be brief.", "a", "b", "c"]);
    }

    #[test]
    fn a_saved_chat_is_loaded_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("chat.json");
        let mut chat = conversation();
        chat.ask("a\n\"b\"".to_owned());
        chat.save(&file).unwrap();
        assert_eq!(Conversation::load(&file).unwrap(), chat);
        std::fs::write(&file, "{}").unwrap();
        assert!(Conversation::load(&file).is_err());
    }
}
