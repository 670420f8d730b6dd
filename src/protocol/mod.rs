//! The types that the parts of Muster share, and the wire formats of other APIs. Depends on serde and little else.
//!
//! | folder | contents |
//! | --- | --- |
//! | [`anthropic`] | errors in Anthropic's envelope |
//! | [`conformance`] | every field of every dialect |
//! | [`job`] | the neutral job and its events, which every dialect maps to and from |
//! | [`legacy`] | the AI Horde API: its bodies, replies and errors |
//! | [`link`] | frames between worker and coordinator |
//! | [`ollama`] | Ollama's requests and replies |
//! | [`openai`] | OpenAI's requests, replies, chunks and errors |
//!
//! A dialect is two pure functions: request to [`job::Job`], and [`job::Event`]s to a reply or chunks. Nothing here
//! does I/O, reads a clock or knows the caller.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a panic fails the test"))]

pub mod anthropic;
pub mod conformance;
pub mod job;
pub mod legacy;
pub mod link;
pub mod ollama;
pub mod openai;
