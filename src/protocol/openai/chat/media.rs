//! Chats with models that make images or videos: the last message of the user is the prompt, its last image the source,
//! and the answer links to the file. Earlier messages are no part of the prompt.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::fields::FIELDS;
use super::head::FINGERPRINT;
use super::usage::Total;
use super::{Grid, Head};
use crate::job::Kind;
use crate::openai::field::{nothing_but, unknown};
use crate::openai::media::{FinishedMedia, MediaGrid};
use crate::openai::shape::kind;
use crate::openai::{IgnoredFields, Problem};

/// A chat, read for a model that makes media.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaChat {
    pub model: String,
    pub prompt: String,
    /// A data URL or a link.
    pub source: Option<String>,
    pub seed: Option<Value>,
    /// None for one reply at the end.
    pub stream: Option<MediaChatStream>,
    /// Fields that are left aside.
    pub ignored: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MediaChatStream {
    pub includes_usage: bool,
}

/// Fields with a meaning for a model that makes media; `user` names the client's own user.
const KNOWN: [&str; 7] = [
    "messages",
    "model",
    "n",
    "seed",
    "stream",
    "stream_options",
    "user",
];

impl MediaChat {
    pub fn read(body: Value, made: Kind, ignored: &IgnoredFields) -> Result<Self, Problem> {
        let Value::Object(mut entries) = body else {
            let found = kind(&body);
            let message = format!("the body must be a JSON object, found {found}");
            return Err(Problem::malformed(message));
        };
        entries.retain(|_, value| !value.is_null());
        let model = entries.get("model").and_then(Value::as_str);
        let model = model.unwrap_or_default().to_owned();
        let mut aside = Vec::new();
        entries.retain(|name, _| {
            let is_kept = KNOWN.contains(&name.as_str()) || !ignored.contain(name);
            if !is_kept {
                aside.push(name.clone());
            }
            is_kept
        });
        if let Some(name) = entries.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            let is_of_chats = FIELDS.iter().any(|field| field.name == name);
            return Err(match is_of_chats {
                true => {
                    let what = made.word();
                    let message = format!(
                        "{name} is not supported by {model}, which makes {what}s: leave it out"
                    );
                    Problem::unsupported(name.clone(), message)
                }
                false => unknown("", name, KNOWN),
            });
        }
        if entries.get("n").is_some_and(|count| *count != 1) {
            let message = "n must be 1 in a chat with a model that makes media; send several \
                           requests, or one to the route of its kind";
            return Err(Problem::unsupported("n", message));
        }
        let stream = match entries.remove("stream") {
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(stream_options(entries.get("stream_options"))?),
            Some(other) => {
                let message = format!("stream must be a boolean, found {}", kind(&other));
                return Err(Problem::invalid("stream", message));
            }
        };
        let messages = entries.remove("messages").unwrap_or_default();
        let (prompt, source) = asked(&messages)?;
        Ok(Self {
            model,
            prompt,
            source,
            seed: entries.remove("seed"),
            stream,
            ignored: aside,
        })
    }
}

fn stream_options(options: Option<&Value>) -> Result<MediaChatStream, Problem> {
    let Some(options) = options else {
        return Ok(MediaChatStream::default());
    };
    let invalid = || Problem::invalid("stream_options", "stream_options must be an object");
    let entries = options.as_object().ok_or_else(invalid)?;
    nothing_but(&["include_usage"], "stream_options", entries)?;
    Ok(MediaChatStream {
        includes_usage: entries.get("include_usage") == Some(&Value::Bool(true)),
    })
}

/// The prompt, and the image it is about: the last that the user has shown.
fn asked(messages: &Value) -> Result<(String, Option<String>), Problem> {
    let invalid = |message: &str| Problem::invalid("messages", message.to_owned());
    let messages = messages
        .as_array()
        .ok_or_else(|| invalid("messages must be a list of messages"))?;
    let users = messages.iter().enumerate();
    let mut users = users.filter(|(_, message)| message["role"] == "user").rev();
    let (at, last) = users.next().ok_or_else(|| {
        invalid("messages must have a message of the user: its text is the prompt")
    })?;
    let prompt = prompt_of(at, &last["content"])?;
    if prompt.trim().is_empty() {
        let name = format!("messages[{at}].content");
        let message = format!("{name} must have a text: it is the prompt");
        return Err(Problem::invalid(name, message));
    }
    let earlier = users.map(|(_, message)| message);
    let images = std::iter::once(last).chain(earlier);
    let mut images = images.flat_map(|message| {
        let parts = message["content"].as_array().into_iter().flatten().rev();
        parts.filter_map(|part| part["image_url"]["url"].as_str())
    });
    Ok((prompt, images.next().map(str::to_owned)))
}

fn prompt_of(at: usize, content: &Value) -> Result<String, Problem> {
    let parts = match content {
        Value::String(text) => return Ok(text.clone()),
        Value::Array(parts) => parts,
        other => {
            let name = format!("messages[{at}].content");
            let message = format!(
                "{name} must be a text or a list of parts, found {}",
                kind(other)
            );
            return Err(Problem::invalid(name, message));
        }
    };
    let mut texts = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        match part["type"].as_str() {
            Some("text") => texts.push(part["text"].as_str().unwrap_or_default()),
            Some("image_url") => {}
            other => {
                let name = format!("messages[{at}].content[{index}]");
                let found = other.unwrap_or("none");
                let message = format!(
                    "{name} must have the type text or image_url for a model that makes media, found {found}"
                );
                return Err(Problem::unsupported(name, message));
            }
        }
    }
    Ok(texts.join("\n"))
}

/// Media have no tokens.
fn usage() -> Value {
    Total::default().body()
}

fn generation(output: &FinishedMedia, grid: &MediaGrid) -> Value {
    let seed = output.seed.and_then(|seed| i64::try_from(seed).ok());
    let grid = Grid {
        worker: grid.worker.as_deref().map(Arc::from),
        gen_time: grid.rounded_seconds(),
        seed: seed.unwrap_or_default(),
        ..Grid::default()
    };
    grid.body()
}

/// Shared by reply and chunks.
#[derive(Debug, Clone)]
pub struct MediaChatHead {
    pub head: Head,
    pub made: Kind,
}

impl MediaChatHead {
    /// The whole reply.
    pub fn reply(&self, output: &FinishedMedia, grid: &MediaGrid) -> Value {
        let mut message = self.said(output.url.as_deref().unwrap_or_default());
        message.insert("role".to_owned(), "assistant".into());
        message.insert("refusal".to_owned(), Value::Null);
        json!({
            "id": self.head.id,
            "object": "chat.completion",
            "created": self.head.created,
            "model": &*self.head.model,
            "system_fingerprint": FINGERPRINT,
            "choices": [{
                "index": 0, "message": message, "logprobs": null, "finish_reason": "stop",
            }],
            "usage": usage(),
            "grid": generation(output, grid),
        })
    }

    /// The first chunk.
    pub fn opening(&self) -> String {
        self.chunk(&json!({"role": "assistant", "content": ""}), None)
    }

    /// All that follows it.
    pub fn closing(
        &self,
        output: &FinishedMedia,
        grid: &MediaGrid,
        wanted: MediaChatStream,
    ) -> String {
        let said = self.chunk(
            &Value::Object(self.said(output.url.as_deref().unwrap_or_default())),
            None,
        );
        let stop = self.chunk(&json!({}), Some("stop"));
        let usage = match wanted.includes_usage {
            true => self.event(json!({
                "choices": [], "usage": usage(), "grid": generation(output, grid),
            })),
            false => String::new(),
        };
        format!("{said}{stop}{usage}data: [DONE]\n\n")
    }

    /// A failure after the first chunk, with the body of its error.
    pub fn failed(body: &Value) -> String {
        format!("data: {body}\n\ndata: [DONE]\n\n")
    }

    fn said(&self, url: &str) -> Map<String, Value> {
        let link = json!({"url": url});
        let (content, name, entry) = match self.made {
            Kind::Video => (
                format!("[video]({url})"),
                "videos",
                json!({"type": "video_url", "video_url": link}),
            ),
            _ => (
                format!("![image]({url})"),
                "images",
                json!({"type": "image_url", "image_url": link}),
            ),
        };
        let fields = [("content", content.into()), (name, json!([entry]))];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        fields.into_iter().collect()
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> String {
        self.event(json!({
            "choices": [{
                "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish,
            }],
        }))
    }

    fn event(&self, mut event: Value) -> String {
        event["id"] = self.head.id.as_str().into();
        event["object"] = "chat.completion.chunk".into();
        event["created"] = self.head.created.into();
        event["model"] = (*self.head.model).into();
        event["system_fingerprint"] = FINGERPRINT.into();
        format!("data: {event}\n\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{MediaChat, MediaChatStream, generation};
    use crate::job::Kind;
    use crate::openai::IgnoredFields;
    use crate::openai::media::{FinishedMedia, MediaGrid};

    fn read(more: Value) -> Result<MediaChat, String> {
        let mut body = json!({
            "model": "draws",
            "messages": [{"role": "user", "content": "a red circle"}],
        });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let wanted = IgnoredFields::Named(["top_p".to_owned()].into());
        let read = MediaChat::read(body, Kind::Image, &wanted);
        read.map_err(|problem| format!("{}: {problem}", problem.param.as_deref().unwrap_or("")))
    }

    #[test]
    fn the_last_words_of_the_user_are_the_prompt_and_the_last_image_the_source() {
        let image = |name: &str| json!({"type": "image_url", "image_url": {"url": name}});
        let chat = read(json!({"messages": [
            {"role": "system", "content": "You draw."},
            {"role": "user", "content": [{"type": "text", "text": "this"}, image("one"), image("two")]},
            {"role": "assistant", "content": "![image](x)"},
            {"role": "user", "content": [{"type": "text", "text": "but"}, {"type": "text", "text": "blue"}]},
        ], "seed": 7, "top_p": 0.5, "tools": null}));
        let chat = chat.unwrap();
        assert_eq!(chat.prompt, "but\nblue");
        assert_eq!(chat.source.as_deref(), Some("two"));
        assert_eq!(chat.seed, Some(json!(7)));
        assert_eq!(
            (chat.ignored, chat.stream),
            (vec!["top_p".to_owned()], None)
        );
        let chat = read(json!({"stream": true, "stream_options": {"include_usage": true}}));
        let stream = MediaChatStream {
            includes_usage: true,
        };
        assert_eq!(chat.unwrap().stream, Some(stream));
    }

    #[test]
    fn seconds_of_a_chat_are_rounded_as_those_of_the_other_routes() {
        let grid = MediaGrid {
            seconds: 1.234_567,
            ..MediaGrid::default()
        };
        let output = FinishedMedia {
            index: 0,
            url: None,
            base64: None,
            seed: None,
            size: None,
        };
        let chat = generation(&output, &grid);
        assert_eq!(chat["gen_time"], grid.render()["gen_time"]);
        assert_eq!(chat["gen_time"], 1.23);
    }

    #[test]
    fn what_says_nothing_to_such_a_model_is_refused_by_its_name() {
        for (more, start) in [
            (
                json!({"temperature": 0.5}),
                "temperature: temperature is not supported by draws, which makes images",
            ),
            (json!({"n": 2}), "n: "),
            (json!({"tools": []}), "tools: "),
            (json!({"colour": 1}), "colour: unknown field"),
            (json!({"stream": 1}), "stream: "),
            (
                json!({"stream_options": {"x": 1}, "stream": true}),
                "stream_options.x: ",
            ),
            (json!({"messages": "hello"}), "messages: "),
            (
                json!({"messages": [{"role": "assistant", "content": "x"}]}),
                "messages: ",
            ),
            (
                json!({"messages": [{"role": "user", "content": " "}]}),
                "messages[0].content: ",
            ),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}),
                "messages[0].content[0]: ",
            ),
        ] {
            let error = read(more).unwrap_err();
            assert!(error.starts_with(start), "{error}");
        }
    }
}
