//! `worker up`: a coordinator and a worker by one command, on embedded defaults.

use super::coordinator;
use super::serve::DoorArgs;
use super::{Failure, Root};

const EXAMPLES: &str = "\
Examples:
  worker up                                    with the best model on disk
  worker up --model qwen3-0.6b                 with this model
  worker up --port 8080                        on another port
  worker up --listen 127.0.0.1:0 --json        on a free port, for scripts";

/// Run coordinator, worker and models on this machine.
///
/// Serves the best catalog model of each kind that is on disk and fits, else the small built-in models. Creates a key and
/// prints how to use it. Ctrl-C waits for running jobs; a second Ctrl-C exits at once.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub door: DoorArgs,
    /// Model to serve: a catalog name on disk, a .gguf file or a model folder; repeat for several.
    #[arg(long, value_name = "MODEL")]
    pub model: Vec<String>,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let flags = args.door.flags();
    coordinator::up(&args, flags, root)
}
