//! Muster turns idle GPUs into one generation service. Start reading here.
//!
//! | crate | folder | contents | uses |
//! | --- | --- | --- | --- |
//! | `muster` | `src/cli` | the binary `worker`: one file per subcommand | all |
//! | `muster-worker` | `src/worker` | the daemon: [`daemon`], [`link`], [`hub`], [`upstream`], [`catalog`], [`hardware`] | engine, media, pages, protocol, reader, config, process |
//! | `muster-coordinator` | `src/coordinator` | accounts, request queue, ledger, APIs; feature `coordinator` | mcp, media, pages, protocol, reader, process, characters |
//! | `muster-mcp` | `src/mcp` | tools of the Model Context Protocol over the `/v1` API | |
//! | `muster-engine` | `src/engine` | [`networks`] and the [`runtime`] that owns a device | kernels, process, schema, characters |
//! | `muster-kernels` | `src/kernels` | operations that candle lacks or does slowly | |
//! | `muster-protocol` | `src/protocol` | the neutral job and every wire shape | schema, characters |
//! | `muster-schema` | `src/schema` | limits of clients' schemas and patterns | |
//! | `muster-reader` | `src/reader` | foreign sounds, videos and PDF files, read in a process with limits | media, process |
//! | `muster-media` | `src/media` | types and codecs of images, sound and video | |
//! | `muster-pages` | `src/pages` | pages in a browser: their policy, and the origins that may reach a server of this machine | |
//! | `muster-characters` | `src/characters` | which characters of a text are read aloud, names of others, and the longest text | |
//! | `muster-config` | `src/config` | `worker.toml`: raw text in, checked values out | |
//! | `muster-process` | `src/process` | [`tasks`], [`telemetry`], [`memory`], [`intake`], child processes | |
//!
//! The manifests of the crates are the layering between them; `tests/it/layering` checks the rest.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")
)]

pub mod cli;

pub use muster_config as config;
#[cfg(feature = "coordinator")]
pub use muster_coordinator as coordinator;
pub use muster_engine::{networks, runtime};
pub use muster_kernels as kernels;
pub use muster_media as media;
pub use muster_process::{child, intake, memory, tasks, telemetry};
pub use muster_protocol as protocol;
pub use muster_reader as reader;
pub use muster_worker::{catalog, daemon, hardware, hub, link, upstream};

/// Of the binary, the tests and the benches of this package.
#[global_allocator]
static ALLOCATOR: memory::Allocator = memory::ALLOCATOR;
