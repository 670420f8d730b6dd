//! The process itself, for every part of the program.
//!
//! | file | content |
//! | --- | --- |
//! | [`tasks`] | every task of the process, and the signal that stops them |
//! | [`telemetry`] | the log |
//! | [`cpu_time`] | processor time of a thread |
//! | [`memory`] | the allocator, and memory given back to the system |
//! | [`internet`] | public and private addresses |
//! | [`child`] | a child process of this program, for work that may not end |
//! | [`intake`] | WebSocket messages, read in pieces under a memory budget |

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

pub mod child;
pub mod cpu_time;
pub mod intake;
pub mod internet;
pub mod memory;
pub mod tasks;
pub mod telemetry;
