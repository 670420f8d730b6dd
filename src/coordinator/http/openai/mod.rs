//! OpenAI's doors.
//!
//! | file | what it is |
//! | --- | --- |
//! | `chat` | chat completions, from the body to the reply |
//! | `auto` | which model `auto` is |
//! | `moderated` | messages as filters let them pass |
//! | `order` | a request that was read to jobs for the queue |
//! | `choices` | the events of all choices, in the order they come |
//! | `stream` | those events as a body of server-sent events |
//! | `refused` | what the queue's refusal means to the one who asked |

/// Where chats are asked for.
pub const CHAT: &str = "/v1/chat/completions";

pub mod auto;
pub mod chat;
mod choices;
mod moderated;
mod order;
mod refused;
mod stream;
