//! Headers of replies that several modules name.

use axum::http::HeaderName;

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub const JOB_ID: HeaderName = HeaderName::from_static("x-job-id");
/// Words as `cat, spaceship`; other letters than those of ASCII are percent-encoded.
pub const UNKNOWN_WORDS: HeaderName = HeaderName::from_static("x-unknown-words");
/// Characters of the text that have no English reading, as `U+4E16, U+754C`.
pub const SKIPPED_CHARACTERS: HeaderName = HeaderName::from_static("x-skipped-characters");
/// The model's voice, if the client named one.
pub const VOICE: HeaderName = HeaderName::from_static("x-voice");
pub const IGNORED_FIELDS: HeaderName = HeaderName::from_static("x-ignored-fields");
/// Set in responses to a node that forwarded a request: this node does not lead, or hands over, and settled nothing of
/// the request.
pub const NOT_LEADING: HeaderName = HeaderName::from_static("muster-not-leading");
