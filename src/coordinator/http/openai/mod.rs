//! OpenAI's routes.
//!
//! | file | what it is |
//! | --- | --- |
//! | `chat` | chat completions |

/// The route of chat completions.
pub const CHAT: &str = "/v1/chat/completions";

pub mod chat;
