//! `worker man`: the manual pages.

use std::path::{Path, PathBuf};

use clap_mangen::Man;

use super::{Failure, output};

const EXAMPLES: &str = "\
Examples:
  worker man | man -l -                      read the manual page
  worker man ~/.local/share/man/man1         install a page for each command";

/// Print the manual page, or write one page per command.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder for the pages, created if missing (default: print the main page).
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    match args.folder {
        None => print(),
        Some(folder) => write(&folder).map_err(|error| Failure::writing(&folder, &error)),
    }
}

fn print() -> Result<(), Failure> {
    let mut page = Vec::new();
    Man::new(super::command())
        .render(&mut page)
        .map_err(anyhow::Error::from)?;
    output::bytes(&page)
}

fn write(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(super::command(), folder)
}
