//! `worker bench`: not built yet.

use super::{Failure, Root};

/// Measure this machine with a model (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker bench text tiny.gguf")]
pub struct Args {}

pub fn run(_: Args, _: &Root) -> Result<(), Failure> {
    Err(Failure::unavailable("`worker bench` is not built yet"))
}
