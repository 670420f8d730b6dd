//! `worker account` in a build without the coordinator.

use super::{Failure, Root};

/// List the accounts of a coordinator, set their roles and add credits (not in this build).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker account list")]
pub struct Args {}

pub fn run(_: Args, _: &Root) -> Result<(), Failure> {
    Err(super::coordinator::absent("account"))
}
