//! In place of the coordinator, where a build leaves it out.

use super::{Failure, Root, serve, up};
use crate::config::Flag;

pub fn serve(_: &serve::Args, _: Vec<Flag>, _: &Root) -> Result<(), Failure> {
    Err(absent("serve"))
}

pub fn up(_: &up::Args, _: Vec<Flag>, _: &Root) -> Result<(), Failure> {
    Err(absent("up"))
}

pub fn absent(command: &str) -> Failure {
    Failure::unavailable(format!(
        "`worker {command}` needs the coordinator, which is not in this build"
    ))
    .hint("build with `--features coordinator`")
}
