//! `worker models`: which models there are, and which of their files are here.

pub mod bars;
mod convert;
mod failures;
mod list;
mod load;
mod place;
mod pull;
mod remove;
mod report;
mod target;
mod verify;

use clap::Subcommand;

use super::{Failure, Root};
pub use place::Place;

const EXAMPLES: &str = "\
Examples:
  worker models list                            list all models and their state on disk
  worker models pull qwen3-0.6b                 download a model of the catalog
  worker models pull llama-3.2-1b:q8_0          download another quantization
  worker models pull org/name:model-q4_k_m.gguf download a file of any repository
  worker models load qwen3-0.6b                 load a model into the running worker
  worker models unload qwen3-0.6b               free its memory
  worker models verify                          verify the checksum of every file
  worker models convert old.ckpt                write the tensors of a PyTorch file as safetensors";

/// List, download, load, verify and remove models.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    List(list::Args),
    Show(list::ShowArgs),
    Pull(pull::Args),
    Load(load::LoadArgs),
    Unload(load::UnloadArgs),
    Verify(verify::Args),
    Convert(convert::ConvertArgs),
    Rm(remove::Args),
}

pub use list::{Args as ListArgs, ShowArgs};
#[cfg(feature = "coordinator")]
pub use load::withdraw_from_worker;
pub use load::{UnloadArgs, load_into_worker};
pub use pull::Args as PullArgs;
pub use remove::Args as RemoveArgs;
#[cfg(feature = "coordinator")]
pub use remove::{removable, remove_files};

/// For the same commands without `models` before them.
impl Args {
    pub fn list(args: ListArgs) -> Self {
        let command = Command::List(args);
        Self { command }
    }

    pub fn show(args: ShowArgs) -> Self {
        let command = Command::Show(args);
        Self { command }
    }

    pub fn pull(args: PullArgs) -> Self {
        let command = Command::Pull(args);
        Self { command }
    }

    pub fn unload(args: UnloadArgs) -> Self {
        let command = Command::Unload(args);
        Self { command }
    }

    pub fn remove(args: RemoveArgs) -> Self {
        let command = Command::Rm(args);
        Self { command }
    }
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let place = || Place::open(root);
    match args.command {
        Command::Convert(args) => convert::run(&args),
        Command::List(args) => list::run(&args, &place()?),
        Command::Show(args) => list::show(&args, &place()?),
        Command::Pull(args) => pull::run(&args, &place()?),
        Command::Load(args) => load::load(&args, root),
        Command::Unload(args) => load::unload(&args, root),
        Command::Rm(args) => remove::run(&args, &place()?),
        Command::Verify(args) => verify::run(&args, &place()?),
    }
}
