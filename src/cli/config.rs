//! `worker config`: not built yet.

use super::Failure;

/// Check the configuration (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker config check")]
pub struct Args {}

pub fn run(_: Args) -> Result<(), Failure> {
    Err(Failure::unavailable("`worker config` is not built yet"))
}
