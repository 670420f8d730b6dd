//! OpenAI's routes, and those of other servers that its clients know.
//!
//! | file | what it is |
//! | --- | --- |
//! | `chat` | chat completions |
//! | `completions` | completions of prompts without roles |
//! | `describe` | descriptions of images |
//! | `encode` | jobs that read and do not write, for every dialect |
//! | `tokens` | tokens of texts, and texts of tokens |
//! | [`images`] | images from prompts |
//! | `audio` | music from prompts |
//! | `videos` | videos from prompts |
//! | `hearing` | transcripts of sounds |
//! | `speech` | texts, spoken |
//! | `dictation` | audio parts of chat messages |
//! | `media_chat` | chats with models that make images or videos |
//! | [`responses`] | the Responses API |
//! | `embeddings`, `rerank` | vectors of texts, scores of documents |

/// The route of chat completions.
pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";
pub const DESCRIBE: &str = "/v1/images/describe";

pub mod audio;
pub mod chat;
pub mod completions;
pub mod describe;
mod dictation;
pub mod embeddings;
pub mod encode;
pub mod hearing;
pub mod images;
mod media_chat;
pub mod rerank;
pub mod responses;
pub mod speech;
pub mod tokens;
#[cfg(feature = "tone")]
pub mod tones;
pub mod videos;
