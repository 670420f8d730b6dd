//! `worker up`: a coordinator and a worker in one process, on embedded defaults.

use super::coordinator;
use super::serve::DoorArgs;
use super::{Failure, Root};

const EXAMPLES: &str = "\
Examples:
  worker up                                    everything on this machine, with the best model that is here
  worker up --model qwen3-0.6b                 with this model
  worker up --listen 127.0.0.1:0 --json        on a free port, for scripts";

/// Run everything on this machine: a coordinator, a worker and a model.
///
/// Takes the best model of the catalog that is here and fits, else the small one that is part of the program. Makes
/// a key, and prints how to use it. Ctrl-C lets running jobs finish; a second one leaves at once.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub door: DoorArgs,
    /// Serve this model: a name of the catalog that is here, a .gguf file or a model folder. May be repeated.
    #[arg(long, value_name = "MODEL")]
    pub model: Vec<String>,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let flags = args.door.flags();
    coordinator::up(&args, flags, root)
}
