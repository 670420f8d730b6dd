//! Text requests, from the client's body to the worker's and back.
//!
//! | file | contents |
//! | --- | --- |
//! | [`request`] | the client's body |
//! | [`params`] | the parameters of a text, of a request's or of a style |
//! | [`status`] | the client's status reply |
//! | [`payload`] | the worker's job payload |
//! | [`metadata`] | workers' remarks about a text |
//! | [`check`] | which parameters go together |
//! | [`job`] | the request as a neutral job, and a neutral job as a worker's payload |
//! | [`chat`] | a chat written out for workers that take plain text |
//! | [`mod@format`] | a client's formatting options |

pub mod chat;
pub mod check;
pub mod format;
pub mod job;
pub mod metadata;
pub mod params;
pub mod payload;
pub mod request;
pub mod status;
