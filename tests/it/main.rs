//! One test binary; one module per capability, named like the resource it is about.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

mod bench;
mod chat;
mod chat_over_socket;
mod cli;
mod config;
mod demo;
mod engine;
mod fit;
mod hub;
mod keys;
mod killed;
mod layering;
mod link;
mod models;
mod probe;
mod readme;
mod routes;
mod support;
mod up;
mod workers;
