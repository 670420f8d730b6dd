//! `worker init`: not built yet.

use super::Failure;

/// Write a worker.toml that fits this machine (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker init")]
pub struct Args {}

pub fn run(_: Args) -> Result<(), Failure> {
    Err(Failure::unavailable("`worker init` is not built yet"))
}
