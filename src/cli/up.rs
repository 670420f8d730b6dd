//! `worker up`: a coordinator and worker in one process, on embedded defaults.

use super::Failure;

/// Coordinator and worker in one process, on embedded defaults (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker up")]
pub struct Args {}

pub fn run(_: Args) -> Result<(), Failure> {
    Err(super::coordinator_is_missing("up"))
}
