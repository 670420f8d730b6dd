//! `worker eval`: not built yet.

use super::{Failure, Root};

/// Measure what a model knows (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker eval demo-text")]
pub struct Args {}

pub fn run(_: Args, _: &Root) -> Result<(), Failure> {
    Err(Failure::unavailable("`worker eval` is not built yet"))
}
