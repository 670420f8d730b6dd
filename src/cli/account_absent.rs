//! `worker account` in a build without the coordinator.

use super::{Failure, Root};

/// List, suspend, export and delete the accounts of a coordinator (not in this build).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker account list")]
pub struct Args {}

pub fn run(_: Args, _: &Root) -> Result<(), Failure> {
    Err(super::coordinator::absent("account"))
}
