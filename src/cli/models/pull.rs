//! `worker models pull`.

use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    catalog::Source,
    cli::{Failure, load::block_on, output, quantity},
    hub::{Hub, HubError, Progress},
};

use super::{bars, place::Place, target::Target};

/// Download models, or their missing files.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Catalog models (NAME or NAME:QUANTIZATION) or repositories (org/name or org/name:FILE).
    #[arg(required = true)]
    names: Vec<String>,
    /// Print the downloaded files as JSON.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  worker models pull qwen3-0.6b
  worker models pull llama-3.2-1b:q8_0
  worker models pull bartowski/Llama-3.2-1B-Instruct-GGUF:q6_k_l
  HF_TOKEN=... worker models pull llama-3.2-1b:bf16     a model with a licence to accept";

#[derive(Serialize)]
struct PulledReport {
    name: String,
    revision: Option<String>,
    bytes: u64,
    files: Vec<std::path::PathBuf>,
}

pub fn run(args: &Args, place: &Place) -> Result<(), Failure> {
    let targets = args
        .names
        .iter()
        .map(|name| Ok((name, Target::parse(name, place)?)));
    let targets: Vec<_> = targets.collect::<Result<_, Failure>>()?;
    let pulled: Vec<&str> = args.names.iter().map(String::as_str).collect();
    block_on(async {
        place.keep_used(&pulled).await;
        Ok(())
    })?;
    let mut reports = Vec::with_capacity(targets.len());
    for (name, target) in &targets {
        let report = pull(name, target, place)?;
        if !args.json {
            output::line(format!(
                "{} is on disk, {}:",
                report.name,
                quantity::bytes(report.bytes)
            ))?;
            for file in &report.files {
                output::line(format!("  {}", file.display()))?;
            }
        }
        reports.push(report);
    }
    match args.json {
        true => output::json(&reports),
        false => Ok(()),
    }
}

fn pull(name: &str, target: &Target<'_>, place: &Place) -> Result<PulledReport, Failure> {
    let progress = bars::progress(place.quiet);
    let stop = CancellationToken::new();
    let (name, revision, files) = match target {
        Target::Entry(entry, quantization) => {
            let (quantization, _) = place.source(entry, *quantization)?;
            let name = format!("{}:{quantization}", entry.id);
            let (mut revision, mut files) = (None, Vec::new());
            for it in entry.sources_of(quantization) {
                match it.source {
                    Source::Path(path) => files.push(path.clone()),
                    Source::Embedded(model) => files.extend(model.unpack_files(&place.unpacked)?),
                    Source::Hub(source) => {
                        let work = place.hub.pull(source, progress.as_ref(), &stop);
                        let pulled = wait_for(work, &stop)?;
                        // The revision is that of the model's own files, which come first.
                        revision = revision.or(Some(pulled.revision));
                        files.extend(pulled.files);
                    }
                }
            }
            (name, revision, files)
        }
        Target::Repository(repository, file) => {
            let work = pull_chosen(&place.hub, repository, *file, progress.as_ref(), &stop);
            let pulled = wait_for(work, &stop)?;
            (name.to_owned(), Some(pulled.revision), pulled.files)
        }
    };
    let size = |path: &std::path::PathBuf| path.metadata().map_or(0, |metadata| metadata.len());
    Ok(PulledReport {
        name,
        revision: revision.map(|revision| revision.to_string()),
        bytes: files.iter().map(size).sum(),
        files,
    })
}

async fn pull_chosen(
    hub: &Hub,
    repository: &crate::hub::Repository,
    file: Option<&str>,
    progress: &dyn Progress,
    stop: &CancellationToken,
) -> Result<crate::hub::Pulled, HubError> {
    let source = hub.choose(repository, file, progress, stop).await?;
    hub.pull(&source, progress, stop).await
}

fn wait_for<T>(
    work: impl Future<Output = Result<T, HubError>>,
    stop: &CancellationToken,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?;
    let result = runtime.block_on(until_interrupted(work, stop));
    // A thread that reads a large file for its hash is not waited for.
    runtime.shutdown_background();
    Ok(result?)
}

/// Ctrl-C and SIGTERM stop the work, which first saves its progress.
async fn until_interrupted<T>(
    work: impl Future<Output = Result<T, HubError>>,
    stop: &CancellationToken,
) -> Result<T, HubError> {
    let terminated = async {
        let kind = tokio::signal::unix::SignalKind::terminate();
        match tokio::signal::unix::signal(kind) {
            Ok(mut signal) => signal.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    let interrupted = async {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated => {}
        }
        stop.cancel();
        std::future::pending().await
    };
    tokio::select! {
        result = work => result,
        never = interrupted => never,
    }
}
