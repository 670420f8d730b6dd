//! `worker text-process`: tokenizer and chat template of one model, for the worker that starts it.

use super::{Exit, Failure};
use crate::runtime::text;

const EXAMPLES: &str = "\
Example:
  worker text-process < frames > replies     (started by the worker itself)";

/// Run a model's tokenizer and chat template within limits, for the worker that starts this process.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {}

pub fn run() -> Result<(), Failure> {
    text::serve_isolated()
        .map_err(|error| Failure::new(Exit::Failed, format!("the text process failed: {error}")))
}
