//! Anthropic's Messages API: a body to a chat body, events to a message or to its stream, failures in its envelope.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of a request, declared once |
//! | `conversation` | messages to chat messages |
//! | `blocks` | one content block |
//! | `thinking` | whether the model thinks, and whether the reply shows it |
//! | `tools`, `known_tools` | tools, and which of them may be used; those whose schemas clients do not send |
//! | `dialect` | the [`Dialect`](crate::openai::chat::Dialect) of this API |
//! | `message` | one message at the end |
//! | `stream` | the events of a stream |
//! | `native` | a public worker's reply in this API, as events |
//! | `error` | failures in Anthropic's envelope |
//! | [`schema`] | all of it as JSON Schema |

mod blocks;
mod conversation;
mod dialect;
mod error;
mod fields;
mod known_tools;
mod message;
mod native;
pub mod schema;
mod stream;
#[cfg(test)]
mod tests;
mod thinking;
mod tools;

pub use dialect::{MessagesDialect, Signer};
pub use error::{error_body, error_schema};
pub use fields::{FIELDS, Purpose, read};
pub use native::MessageReader;

/// Paths of the routes.
pub const MESSAGES: &str = "/v1/messages";
pub const COUNT_TOKENS: &str = "/v1/messages/count_tokens";
