//! The poll API `/api/v2` as clients and workers of many years speak it: bodies, replies, errors and the small exact
//! rules between them. No I/O, no clock, nobody's state.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`error`], `codes` | what is told when something is refused, and every `rc` |
//! | `body`, `rules`, `tables` | bodies read strictly, from tables of one line a field |
//! | [`fields`] | the `X-Fields` mask |
//! | [`words`] | closed lists of words |
//! | [`requests`] | what image and text requests have in common |
//! | [`image`], [`text`], [`interrogation`] | each kind of request, from its client to its worker and back |
//! | [`annotation`] | control maps that are asked for by themselves |
//! | [`pop`], [`submit`] | what workers say when they ask for work and bring it back |
//! | [`popped`] | what a worker of ours reads in another coordinator's answer to a pop |
//! | [`rating`], [`style`], [`user`], [`kudos`], [`shared_key`], [`worker`], [`team`] | one resource each |
//! | [`service`], [`stats`], [`filter`], [`operations`], [`webhook`] | the service, its numbers, its moderators, its calls |
//! | [`development`] | users for tests, where they are offered |
//! | [`agent`] | what a worker's software can do |
//! | [`abilities`] | what an image asks of a worker, and what a worker offers |
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
