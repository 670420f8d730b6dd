//! OpenAI's routes, and those of other servers that its clients know.
//!
//! | file | contents |
//! | --- | --- |
//! | `chat` | chat completions |
//! | `completions` | completions of prompts without roles |
//! | `describe` | descriptions of images |
//! | `encode` | jobs without generated text: embeddings and rerank scores, for every dialect |
//! | `tokens` | tokenize and detokenize |
//! | [`images`] | image generation |
//! | `audio` | music generation |
//! | `videos` | video generation |
//! | `hearing` | transcription |
//! | `speech` | speech synthesis |
//! | `dictation` | transcription of audio parts in chat messages |
//! | `media_chat` | chats with models that generate images or videos |
//! | [`responses`] | the Responses API |
//! | `embeddings`, `rerank` | embeddings, and relevance scores of documents |

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
