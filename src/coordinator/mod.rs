//! The coordinator's half: doors for clients, a line for workers, one queue between them.
//!
//! | folder | what it owns |
//! | --- | --- |
//! | [`dispatch`] | the queue, placement, leases, retries: a state machine without I/O |
//!
//! It shares `protocol` with the worker's half, and nothing else.

pub mod dispatch;
