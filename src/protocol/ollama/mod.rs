//! Ollama's API: a body to a chat body or a prompt, events to JSON lines.
//!
//! | file | content |
//! | --- | --- |
//! | `fields` | every field of a request, declared once |
//! | `options` | the fields of `options` |
//! | `messages` | messages to chat messages |
//! | `dialect` | the API as a [`Dialect`](crate::openai::chat::Dialect) |
//! | `answer` | a reply at the end, or its lines as they come |
//! | `embed` | texts to vectors |
//! | `pull` | downloads of models |
//! | `listing` | models as programs list and show them |
//! | [`schema`] | all of it as JSON Schema |

mod answer;
mod dialect;
mod embed;
mod fields;
mod listing;
mod messages;
mod options;
mod pull;
pub mod schema;
#[cfg(test)]
mod tests;

pub use embed::EmbedRequest;
pub use fields::{CopyRequest, DeleteRequest, Door, LoadRequest, ShowRequest, read, rows};
pub use listing::{ListedModel, running, show, tags};
pub use messages::{drop_oldest, droppable};
pub use pull::PullRequest;

use serde_json::{Value, json};

pub const CHAT: &str = "/api/chat";
pub const GENERATE: &str = "/api/generate";
pub const EMBED: &str = "/api/embed";
pub const EMBEDDINGS: &str = "/api/embeddings";
pub const TAGS: &str = "/api/tags";
pub const SHOW: &str = "/api/show";
pub const PS: &str = "/api/ps";
pub const VERSION: &str = "/api/version";
pub const PULL: &str = "/api/pull";
pub const DELETE: &str = "/api/delete";
pub const COPY: &str = "/api/copy";

/// All routes of the API.
pub const ROUTES: [&str; 11] = [
    CHAT, GENERATE, EMBED, EMBEDDINGS, TAGS, SHOW, PS, VERSION, PULL, DELETE, COPY,
];

/// The placeholder key of Ollama's clients, since Ollama has no keys.
pub const NO_KEY: &str = "ollama";

/// The version of Ollama whose API this is: programs ask for it before they use newer fields.
const COMPATIBLE_WITH: &str = "0.14.0";

/// The reply of `/api/version`.
pub fn version() -> Value {
    json!({"version": COMPATIBLE_WITH})
}

/// The model and the prompt of a body for [`GENERATE`], where both are texts, and the most tokens of the answer.
pub fn prompt_of(body: &Value) -> Option<(&str, &str, Option<u64>)> {
    let (model, prompt) = (body["model"].as_str()?, body["prompt"].as_str()?);
    Some((
        untagged(model),
        prompt,
        body["options"]["num_predict"].as_u64(),
    ))
}

/// The name of a model without the tag that clients add to names without one.
pub fn untagged(name: &str) -> &str {
    name.strip_suffix(":latest").unwrap_or(name)
}

/// Converts an error body of OpenAI's shape to Ollama's: a message, with code and param beside it.
pub fn error_body(body: &Value) -> Value {
    let error = &body["error"];
    json!({"error": error["message"], "code": error["code"], "param": error["param"]})
}
