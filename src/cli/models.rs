//! `worker models`: not built yet.

use super::{Failure, Root};

/// List, show, pull, remove and verify models (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker models list")]
pub struct Args {}

pub fn run(_: Args, _: &Root) -> Result<(), Failure> {
    Err(Failure::unavailable("`worker models` is not built yet"))
}
