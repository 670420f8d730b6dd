//! `worker models convert`.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::child::THIS_PROGRAM;
use crate::cli::meter::Meter;
use crate::cli::{Failure, output, publish, quantity};
use crate::daemon::TEXT_PROCESS;
use crate::networks::weights::{ConversionError, PickledFile};
use crate::runtime::pickles::open_pickled;

/// Write the tensors of a PyTorch file (.ckpt, .pt, .pth, .bin) as safetensors.
///
/// Such files are programs. Nothing of them is run: only tensors are read, everything else is left out and named.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  worker models convert old-model.ckpt\n  worker models convert pytorch_model.bin -o model.safetensors"
)]
pub struct ConvertArgs {
    /// The file to read.
    file: PathBuf,
    /// The file to write [default: the same name with .safetensors].
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Replace a file of this name.
    #[arg(long)]
    force: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct ConvertedReport {
    file: PathBuf,
    tensors: usize,
    bytes: u64,
    left_out: Vec<String>,
}

pub fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let file = args.output.clone();
    let file = file.unwrap_or_else(|| args.file.with_extension("safetensors"));
    publish::check(&file, args.force)?;
    let arguments = [TEXT_PROCESS, "--pickles"].map(str::to_owned);
    let mut pickled = open_pickled(&args.file, Path::new(THIS_PROGRAM), &arguments)?;
    let draft = draft_of(&file);
    let written = write(&mut pickled, &draft, &file, !args.json);
    let bytes = match written {
        Ok(bytes) => bytes,
        Err(failure) => {
            let _ = std::fs::remove_file(&draft);
            return Err(failure);
        }
    };
    let published = publish::publish(&draft, &file, args.force);
    let _ = std::fs::remove_file(&draft);
    published?;
    let report = ConvertedReport {
        file,
        tensors: pickled.tensors(),
        bytes,
        left_out: pickled.left_out().to_vec(),
    };
    if args.json {
        return output::json(&report);
    }
    output::line(format!(
        "wrote {} to {} ({})",
        quantity::count(report.tensors as u64, "tensor"),
        report.file.display(),
        quantity::bytes(report.bytes)
    ))?;
    match report.left_out.as_slice() {
        [] => Ok(()),
        names => output::line(format!("left out, as no tensors: {}", names.join(", "))),
    }
}

fn write(
    pickled: &mut PickledFile,
    draft: &Path,
    file: &Path,
    is_shown: bool,
) -> Result<u64, Failure> {
    let total = pickled.tensor_bytes();
    let meter = Meter::new(format!("writing {}", file.display()), is_shown);
    let out = File::create(draft).map_err(|error| Failure::writing(file, &error))?;
    let mut out = BufWriter::new(out);
    let written = pickled.write(&mut out, |bytes| meter.set(bytes, total));
    meter.end();
    let written = written.map_err(|error| match error {
        ConversionError::Checkpoint(error) => error.into(),
        ConversionError::Write(error) => Failure::writing(file, &error),
    })?;
    let out = out
        .into_inner()
        .map_err(|error| Failure::writing(file, error.error()))?;
    out.sync_all()
        .map_err(|error| Failure::writing(file, &error))?;
    Ok(written)
}

/// Beside the file, so that it can be renamed.
fn draft_of(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    file.with_file_name(name)
}
