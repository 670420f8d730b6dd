//! `worker serve`: run the coordinator.

use super::Failure;

/// Run the coordinator (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker serve")]
pub struct Args {}

pub fn run(_: Args) -> Result<(), Failure> {
    Err(super::coordinator_is_missing("serve"))
}
