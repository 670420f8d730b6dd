//! `worker reader`: reads one foreign file within limits, for the program that starts this process.

use super::{Exit, Failure};
use crate::reader;

const EXAMPLES: &str = "\
Example:
  worker reader TASK < file > blocks     (started by the worker or the coordinator itself)";

/// Read a sound or a video within limits, for the program that starts this process.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ReaderArgs {
    /// The task, as JSON.
    task: String,
}

pub fn run(args: &ReaderArgs) -> Result<(), Failure> {
    let served = reader::serve(&args.task);
    served.map_err(|error| Failure::new(Exit::Failed, format!("the reader failed: {error}")))
}
