//! `worker key` in a build without the coordinator.

use super::{Failure, Root};

/// Create, list and revoke the keys of a coordinator (not in this build).
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker key list")]
pub struct Args {}

pub fn run(_: Args, _: &Root) -> Result<(), Failure> {
    Err(super::coordinator::absent("key"))
}
