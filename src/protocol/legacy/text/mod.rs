//! Text requests, from the client's body to the worker's and back.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`request`] | what clients ask for |
//! | [`params`] | the parameters of a text, of a request's or of a style |
//! | [`status`] | what clients read back |
//! | [`payload`] | what a worker is given |
//! | [`metadata`] | what a worker remarks about a text |
//! | [`check`] | which parameters go together |
//! | [`job`] | the request as a neutral job, and a neutral job as a worker's payload |
//! | [`chat`] | a chat written out for workers that take plain text |
//! | [`mod@format`] | what a client may have done to its text |

pub mod chat;
pub mod check;
pub mod format;
pub mod job;
pub mod metadata;
pub mod params;
pub mod payload;
pub mod request;
pub mod status;
