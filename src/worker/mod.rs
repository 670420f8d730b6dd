//! The worker daemon: probe, fit, pull, load, serve, drain.
//!
//! | folder | content | may use |
//! | --- | --- | --- |
//! | [`daemon`] | the worker process, from its configuration to its drain | every folder below, the engine, the protocol |
//! | [`link`] | the connection to a coordinator: WebSocket or polling | the protocol |
//! | [`upstream`] | models of upstream programs on this machine | the protocol |
//! | [`catalog`] | known models and the sources of their weights | [`hub`], for file names |
//! | [`hub`] | downloads: resumable, verified, in the shared cache | |
//! | [`hardware`] | this machine's hardware, read once | |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

pub mod catalog;
pub mod daemon;
pub mod hardware;
pub mod hub;
pub mod link;
pub mod upstream;
