//! `worker bench`: the speed of this machine, relative to its limits.

mod audio;
mod figures;
mod image;
mod limits;
mod memory;
mod parts;
mod place;
mod text;
mod video;

use super::{Failure, Root, threads};

/// Measure the speed of this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  worker bench text --synthetic llama-3.2-1b --quant q4_k_m")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Text(text::Args),
    Image(image::DrawingBenchArgs),
    Audio(audio::AudioBenchArgs),
    Video(video::FilmingBenchArgs),
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    threads::settle(&config)?;
    match args.what {
        What::Text(args) => text::run(&args, &config, !root.quiet),
        What::Image(args) => image::run(&args, !root.quiet),
        What::Audio(args) => audio::run(&args, !root.quiet),
        What::Video(args) => video::run(&args, !root.quiet),
    }
}
