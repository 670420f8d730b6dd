//! The poll API `/api/v2` as clients and workers of many years speak it: bodies, replies, errors and the small exact
//! rules between them. No I/O, no clock, nobody's state.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`error`], `codes` | what is told when something is refused, and every `rc` |
//! | `body`, `rules`, `tables` | bodies read strictly, from tables of one line a field |
//! | [`fields`] | the `X-Fields` mask |
//! | [`words`] | closed lists of words |
//!
//! A body is read by [`Body::parse`] or [`Body::read`]; a reply is a struct to be serialized. The names of both are
//! those of the contract, and so are the fields', so that one can be found from the other.

pub mod error;
pub mod fields;
pub mod words;

mod body;
mod codes;
mod rules;
mod tables;

#[cfg(test)]
mod schemas;

pub use body::Body;
pub use error::{Code, Refusal};
