//! `worker completions`: a script that lets a shell complete our commands.

use clap_complete::Shell;

use super::{Failure, output};

const EXAMPLES: &str = "\
Examples:
  worker completions bash > ~/.local/share/bash-completion/completions/worker
  worker completions zsh > ~/.zfunc/_worker
  worker completions fish > ~/.config/fish/completions/worker.fish";

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell to complete commands in.
    shell: Shell,
}

pub fn run(args: Args) -> Result<(), Failure> {
    // Made in memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::command(), "worker", &mut script);
    output::bytes(&script)
}
