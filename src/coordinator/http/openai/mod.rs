//! OpenAI's routes, and those of other servers that its clients know.
//!
//! | file | contents |
//! | --- | --- |
//! | `chat` | chat completions |
//! | `completions` | completions of prompts without roles |
//! | `describe` | descriptions of images |
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

pub mod audio;
pub mod chat;
pub mod completions;
pub mod describe;
mod dictation;
pub mod embeddings;
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
