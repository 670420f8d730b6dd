//! `worker doctor`: not built yet.

use super::Failure;

/// Find out why something does not work (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker doctor")]
pub struct Args {}

pub fn run(_: Args) -> Result<(), Failure> {
    Err(Failure::unavailable("`worker doctor` is not built yet"))
}
