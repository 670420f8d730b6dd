//! OpenAI's Responses API: a body and the responses before it to a chat body, events to a response or to its stream.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of a request, declared once |
//! | `intent` | facts of a body before it is parsed: which stored responses it continues |
//! | `items` | input items to chat messages |
//! | `parts` | their content |
//! | `tools` | tools, and which of them may be called |
//! | `dialect` | the [`Dialect`](crate::openai::chat::Dialect) of this API |
//! | `output` | output items, gathered from events |
//! | `response` | the response object, by its status |
//! | `native`, `native_body` | for public workers that speak this API: their replies, as events; the body for them |
//! | `reply`, `stream` | one response at the end; the events of a stream |
//! | [`schema`] | all of it as JSON Schema |

mod client_tools;
mod dialect;
mod fields;
mod intent;
mod items;
mod native;
mod native_body;
mod output;
mod parts;
mod reply;
mod response;
pub mod schema;
mod stream;
#[cfg(test)]
mod tests;
mod tools;

pub use dialect::{Recorder, Sealer};
pub use fields::{Context, read, rows};
pub use intent::{ID_PREFIX, Intent, request_of, stored_input};
pub use native::ResponseReader;

/// Path of the route.
pub const RESPONSES: &str = "/v1/responses";
