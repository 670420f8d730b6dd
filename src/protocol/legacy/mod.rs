//! The AI Horde API, `/api/v2`: bodies, replies, errors and the exact rules between them. No I/O, no clock, no state.
//!
//! | file | contents |
//! | --- | --- |
//! | [`error`], `codes` | refusals, and every `rc` |
//! | `body`, `rules`, `tables` | bodies read strictly, from tables of one line a field |
//! | [`fields`] | the `X-Fields` mask |
//! | [`words`] | closed lists of words |
//! | [`requests`] | common parts of image and text requests |
//! | [`image`], [`text`], [`interrogation`] | each kind of request, from its client to its worker and back |
//! | [`annotation`] | control maps as a request of their own |
//! | [`pop`], [`submit`] | workers' pops and submits |
//! | [`popped`] | another coordinator's reply to a pop, for our own worker |
//! | [`rating`], [`style`], [`user`], [`kudos`], [`shared_key`], [`worker`], [`team`] | one resource each |
//! | [`service`], [`stats`], [`filter`], [`operations`], [`webhook`] | service status, statistics, moderation, webhooks |
//! | [`development`] | users for tests, where they are offered |
//! | [`agent`] | features of worker software |
//! | [`abilities`] | capabilities of image requests and workers |
//! | [`work`] | how much work an image is |
//! | [`seed`], [`date`] | seeds and dates |
//!
//! A body is read by [`Body::parse`] or [`Body::read`]; a reply is a struct to be serialized. The names of both are
//! those of the contract, and so are the fields', so that one can be found from the other.

pub mod abilities;
pub mod agent;
pub mod annotation;
pub mod date;
pub mod development;
pub mod error;
pub mod fields;
pub mod filter;
pub mod image;
pub mod interrogation;
pub mod kudos;
pub mod operations;
pub mod pop;
pub mod popped;
pub mod rating;
pub mod requests;
pub mod seed;
pub mod service;
pub mod shared_key;
pub mod stats;
pub mod style;
pub mod submit;
pub mod team;
pub mod text;
pub mod user;
pub mod webhook;
pub mod words;
pub mod work;
pub mod worker;

mod body;
mod codes;
pub mod contract;
mod rules;
mod tables;

#[cfg(any(test, feature = "testing"))]
pub mod schemas;

pub use body::Body;
pub use error::{Code, Refusal};
