//! `worker text-process`: tokenizer and chat template of one model, a prover of grammars, or a reader of pickles, for the
//! worker that starts it.

use super::{Exit, Failure};
use crate::runtime::{grammar, pickles, text};

const EXAMPLES: &str = "\
Example:
  worker text-process < frames > replies     (started by the worker itself)";

/// Run a model's tokenizer and chat template within limits, for the worker that starts this process.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Check grammars of clients instead.
    #[arg(long)]
    grammars: bool,
    /// Describe the tensors of a pickle instead.
    #[arg(long, conflicts_with = "grammars")]
    pickles: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let served = match (args.grammars, args.pickles) {
        (true, _) => grammar::serve_prover(),
        (_, true) => pickles::serve(),
        _ => text::serve_isolated(),
    };
    served.map_err(|error| Failure::new(Exit::Failed, format!("the text process failed: {error}")))
}
