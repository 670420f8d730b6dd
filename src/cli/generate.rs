//! `worker generate`: not built yet.

use super::Failure;

/// Generate text with a model (not built yet).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker generate tiny.gguf 'Once upon'")]
pub struct Args {}

pub fn run(_: Args) -> Result<(), Failure> {
    Err(Failure::unavailable("`worker generate` is not built yet"))
}
