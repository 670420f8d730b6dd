//! In place of the coordinator, where a build leaves it out.

use super::serve::DoorArgs;
use super::{Failure, Root, up};

pub fn serve(_: &DoorArgs, _: &Root) -> Result<(), Failure> {
    Err(absent("serve"))
}

pub fn up(_: &up::Args, _: &Root) -> Result<(), Failure> {
    Err(absent("up"))
}

fn absent(command: &str) -> Failure {
    Failure::unavailable(format!(
        "`worker {command}` needs the coordinator, which this build leaves out"
    ))
    .hint("build it with `--features coordinator`")
}
