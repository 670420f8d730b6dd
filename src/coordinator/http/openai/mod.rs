//! OpenAI's routes, and those of other servers that its clients know.
//!
//! | file | what it is |
//! | --- | --- |
//! | `chat` | chat completions |
//! | `encode` | jobs that read and do not write, for every dialect |
//! | `tokens` | tokens of texts, and texts of tokens |

/// The route of chat completions.
pub const CHAT: &str = "/v1/chat/completions";

pub mod chat;
pub mod encode;
pub mod tokens;
