//! Completions, the older API of prompts without roles: a body to jobs, their events to a reply or to chunks.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of a request, declared once or shared with the chat API |
//! | `prompts` | texts and token ids to go on from |
//! | `dialect` | the [`Dialect`](crate::openai::chat::Dialect) of this API |
//! | `reply` | one reply at the end |
//! | `chunks` | the chunks of a stream |
//! | `echo` | the prompt before its completion |
//! | `logprobs` | log probabilities in this API's shape |
//! | `usage` | tokens of several prompts together |
//! | [`schema`] | all of it as JSON Schema |

mod chunks;
mod dialect;
mod echo;
mod fields;
mod logprobs;
mod prompts;
mod reply;
pub mod schema;
#[cfg(test)]
mod tests;
mod usage;

pub use dialect::CompletionsDialect;
pub use fields::read;

use crate::openai::chat;
use crate::openai::field::{FieldRow, rows as rows_of};

/// Every field of a request, with those shared with the chat API.
pub fn rows() -> Vec<FieldRow> {
    let mut rows = rows_of(fields::FIELDS);
    let shared = chat::rows().into_iter();
    rows.extend(shared.filter(|row| fields::SHARED.contains(&row.name)));
    rows.sort_by_key(|row| row.name);
    rows
}
