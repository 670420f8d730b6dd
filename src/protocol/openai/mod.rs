//! OpenAI's dialect: requests to neutral jobs, events to replies and chunks, failures to error bodies.
//!
//! | file | contents |
//! | --- | --- |
//! | [`chat`] | chat completions |
//! | [`completions`] | completions of prompts without roles |
//! | [`describe`] | descriptions of images |
//! | [`encode`] | embeddings, rerank scores and token counts |
//! | [`images`] | images from prompts |
//! | [`audio`] | music from prompts |
//! | [`form`] | forms as the JSON that they stand for |
//! | [`media`] | common parts of media replies |
//! | [`videos`] | videos from prompts |
//! | [`responses`] | the Responses API |
//! | [`account`] | bodies of account routes |
//! | [`json`] | untrusted bytes to JSON, with precise errors |
//! | [`error`] | a failure in OpenAI's shape |
//! | `field`, [`shape`], [`nearest`] | fields declared once: reading, refusing and describing them |
//! | `ignored_fields` | fields that are left aside |
//! | `problem` | the error of a request, and its field |
//! | `text` | JSON strings written straight into a buffer |

pub mod account;
pub mod audio;
pub mod chat;
pub mod completions;
pub mod describe;
pub mod encode;
pub mod error;
pub mod form;
pub mod hearing;
pub mod images;
pub mod json;
pub mod media;
pub mod nearest;
pub mod responses;
pub mod shape;
pub mod speech;

pub mod field;
mod field_path;
mod ignored_fields;
mod problem;
pub mod text;
pub mod videos;

pub use ignored_fields::IgnoredFields;
pub use problem::Problem;
pub use shape::Shape;

/// How a peer's request is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// From a client: unknown names and unsupported values are refused.
    Refuse,
    /// From a coordinator, which adds and passes on fields of its own: unknown names, and settings of another service,
    /// are ignored.
    Tolerate,
}
