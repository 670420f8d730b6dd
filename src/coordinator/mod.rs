//! The coordinator's half: doors for clients, a line for workers, one queue between them.
//!
//! | folder | what it owns |
//! | --- | --- |
//! | [`dispatch`] | the queue, placement, leases, retries: a state machine without I/O |
//! | [`switchboard`] | the task around it: between clients, workers and the books |
//! | [`metering`] | how many tokens a job had, by our own count |
//! | [`kudos`] | what a job costs, and how an ended job becomes a settled one |
//!
//! It shares `protocol` with the worker's half, and nothing else.

pub mod dispatch;
pub mod kudos;
pub mod metering;
pub mod switchboard;
