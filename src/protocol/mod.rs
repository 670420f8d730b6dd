//! The words the parts of Muster share, and the wire shapes of everybody else. Serde and nothing more.
//!
//! | folder | what it is |
//! | --- | --- |
//! | [`anthropic`] | errors in Anthropic's envelope |
//! | [`conformance`] | every field of every dialect |
//! | [`dialect`] | what every text API implements: reading a body, writing events |
//! | [`job`] | the neutral job and its events, which every dialect maps to and from |
//! | [`legacy`] | the poll API: its bodies, replies and errors |
//! | [`link`] | frames between worker and coordinator |
//! | [`ollama`] | Ollama's requests and replies |
//! | [`openai`] | OpenAI's requests, replies, chunks and errors |
//!
//! A dialect is two pure functions: request to [`job::Job`], and [`job::Event`]s to a reply or chunks. Nothing
//! here does I/O, reads a clock or knows who is asking.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a panic fails the test"))]

pub mod anthropic;
pub mod conformance;
pub mod dialect;
pub mod job;
pub mod legacy;
pub mod link;
pub mod ollama;
pub mod openai;
