//! Muster turns idle GPUs into one generation service. Start reading here.
//!
//! | folder | what it is | whom it may know |
//! | --- | --- | --- |
//! | [`cli`] | one file per subcommand | everything below |
//! | [`config`] | `worker.toml`: raw text in, checked values out | nobody |
//! | `coordinator` | the coordinator's half, feature `coordinator` | `protocol`, `tasks`, `memory`, `intake` |
//! | [`daemon`] | the worker process: probe, fit, pull, load, serve, drain | `config`, `link`, `runtime`, `protocol`, `hub`, `catalog`, `hardware`, `tasks`, `telemetry` |
//! | [`hardware`] | what machine this is: plain data, taken once | nobody |
//! | [`catalog`] | reads `models/`: which models exist and where their weights are | `hub`, for its names of files |
//! | [`hub`] | brings files here: resumable, verified, shared with other programs | nobody |
//! | [`link`] | the worker's line to a coordinator | `protocol`, `tasks`, `intake` |
//! | [`protocol`] | the neutral job, and everybody's wire shapes | nobody |
//! | [`runtime`] | jobs in, events out; one thread owns each device | `networks`, `kernels`, `memory` |
//! | [`networks`] | networks only: tensors in, tensors out | `kernels` |
//! | [`kernels`] | the operations candle lacks or does slowly | candle |
//! | `telemetry`, `tasks`, `memory`, `intake` | logs; every task of the process and the one signal that ends them; the allocator; what WebSockets are read through | nobody |
//!
//! Arrows go down: `tests/it/layering/mod.rs` holds them, and this table.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

#[path = "worker/catalog/mod.rs"]
pub mod catalog;
pub mod cli;
pub mod config;
#[cfg(feature = "coordinator")]
pub mod coordinator;
#[path = "worker/daemon/mod.rs"]
pub mod daemon;
#[path = "worker/hardware/mod.rs"]
pub mod hardware;
#[path = "worker/hub/mod.rs"]
pub mod hub;
#[path = "process/intake.rs"]
pub mod intake;
#[path = "worker/link/mod.rs"]
pub mod link;
#[path = "process/memory.rs"]
pub mod memory;
#[path = "engine/networks/mod.rs"]
pub mod networks;
pub mod protocol;
#[path = "engine/runtime/mod.rs"]
pub mod runtime;
#[path = "process/tasks.rs"]
pub mod tasks;
#[path = "process/telemetry.rs"]
pub mod telemetry;

/// A package of its own, so that it is always optimised.
pub use muster_kernels as kernels;
