//! `worker probe`: not built yet.

use super::Failure;

/// Show what this machine offers (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker probe")]
pub struct Args {}

pub fn run(_: Args) -> Result<(), Failure> {
    Err(Failure::unavailable("`worker probe` is not built yet"))
}
