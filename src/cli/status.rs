//! `worker status`: the coordinator and the worker that run here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::chat::{Client, running};
use super::load::block_on;
use super::quantity::bytes;
use super::table::Table;
use super::{Failure, Root, output};
use crate::config::{Config, show_duration};
use crate::daemon::control;
use crate::daemon::report::{DownloadReport, ModelReport, WorkerReport};

const EXAMPLES: &str = "\
Examples:
  worker status                        models, workers and jobs of what runs here
  worker status --config worker.toml   of the worker with this configuration
  worker ps --json                     the same as JSON; `ps` is another name of `status`";

/// Show what runs on this machine: the coordinator, and the worker with its models, downloads and jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, visible_alias = "ps")]
pub struct StatusArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The running coordinator, as it answers.
struct CoordinatorStatus {
    url: String,
    models: Value,
    workers: Value,
}

pub fn run(args: &StatusArgs, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    block_on(async {
        let coordinator = coordinator(&config).await?;
        let worker = control::status(&config.worker.data_dir).await;
        let worker = worker
            .map_err(|error| Failure::unavailable(format!("asking the worker failed: {error}")))?;
        match (coordinator, worker) {
            (None, None) => {
                let folder = config.worker.data_dir.display();
                Err(Failure::unavailable(format!(
                    "neither a coordinator nor a worker runs with the data folder {folder}"
                ))
                .hint("`worker up` starts both; --config or --data-dir names another one"))
            }
            (coordinator, worker) if args.json => {
                let url = coordinator.as_ref().map(|running| &running.url);
                let models = coordinator.as_ref().map(|running| &running.models);
                let workers = coordinator.as_ref().map(|running| &running.workers);
                output::json(
                    &json!({"url": url, "models": models, "workers": workers, "worker": worker}),
                )
            }
            (coordinator, worker) => {
                if let Some(running) = &coordinator {
                    show_coordinator(running)?;
                }
                if let Some(report) = &worker {
                    let gap = if coordinator.is_some() { "\n" } else { "" };
                    output::text(format!("{gap}{}", of_worker(report)))?;
                }
                Ok(())
            }
        }
    })
}

/// None where no coordinator runs with this data folder.
async fn coordinator(config: &Config) -> Result<Option<CoordinatorStatus>, Failure> {
    let Some(client) = running(&config.worker.data_dir, None).await? else {
        return Ok(None);
    };
    Ok(Some(CoordinatorStatus {
        models: client.get("v1/status/models").await?,
        workers: client.get("v1/workers").await?,
        url: url(&client),
    }))
}

fn url(client: &Client) -> String {
    client.url().as_str().trim_end_matches('/').to_owned()
}

fn show_coordinator(running: &CoordinatorStatus) -> Result<(), Failure> {
    output::line(format!("coordinator at {}\n", running.url))?;
    let mut table = Table::new([
        "MODEL",
        "KIND",
        "CONTEXT",
        "WORKERS",
        "JOBS IN 24 H",
        "TOKENS/S",
    ]);
    for model in running.models.as_array().into_iter().flatten() {
        let keys = [
            "name",
            "type",
            "max_context_length",
            "count",
            "samples",
            "tokens_per_s",
        ];
        table.row(keys.map(|key| shown(&model[key])));
    }
    output::text(&table)?;
    let mut table = Table::new(["WORKER", "KINDS", "MODELS"]);
    for worker in running.workers["workers"].as_array().into_iter().flatten() {
        let keys = ["name", "job_types", "models"];
        table.row(keys.map(|key| shown(&worker[key])));
    }
    output::text(format!("\n{table}"))
}

fn of_worker(report: &WorkerReport) -> String {
    let mut text = format!("worker {}, version {}\n", report.name, report.version);
    if !report.placement.is_empty() {
        text += &format!("{}\n", report.placement);
    }
    if let Some(what) = &report.starting {
        text += &format!("{what}; no jobs until it is done\n");
    }
    if let Some(pause) = &report.pause {
        let reasons = pause.reasons.join("; ");
        text += &match pause.state.as_str() {
            "closing" => format!(
                "takes no new jobs, and pauses once the running ones have ended: {reasons}\n"
            ),
            _ => format!("paused {reasons}\n"),
        };
    }
    if !report.models.is_empty() {
        let mut table = Table::new(["MODEL", "KIND", "CONTEXT", "STATE", "DEVICE"]);
        for model in &report.models {
            let kind = model.kind.clone().unwrap_or_else(|| "-".to_owned());
            let context = model
                .context
                .map_or("-".to_owned(), |tokens| tokens.to_string());
            let devices = model.devices.join(", ");
            table.row([model.name.clone(), kind, context, state(model), devices]);
        }
        text += &format!("\n{table}");
    }
    if !report.coordinators.is_empty() {
        let mut table = Table::new(["COORDINATOR", "STATE"]);
        for coordinator in &report.coordinators {
            let reason = coordinator.reason.as_ref();
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            let state = format!("{}{reason}", coordinator.state);
            table.row([coordinator.name.clone(), state]);
        }
        text += &format!("\n{table}");
    }
    let jobs = &report.jobs;
    text + &format!(
        "\njobs: {} running, {} done, {} failed, {} handed back, {} cancelled; {} tokens, {:.2} kudos since the start\n",
        jobs.running,
        jobs.done,
        jobs.failed,
        jobs.handed_back,
        jobs.cancelled,
        jobs.tokens,
        jobs.earned_thousandths as f64 / 1000.0,
    )
}

fn state(model: &ModelReport) -> String {
    if let Some(download) = &model.download {
        return downloading(download);
    }
    let Some(seconds) = model.unloads_at else {
        return model.state.clone();
    };
    let end = UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    match end.duration_since(SystemTime::now()) {
        Ok(left) => format!(
            "{}, unloads in {} if unused",
            model.state,
            show_duration(Duration::from_secs(left.as_secs()))
        ),
        Err(_) => model.state.clone(),
    }
}

fn downloading(download: &DownloadReport) -> String {
    let DownloadReport {
        received_bytes,
        total_bytes,
        failure,
    } = download;
    match (failure, total_bytes) {
        (Some(failure), _) => format!("download failed, trying again: {failure}"),
        (None, 0) => "waits for its download".to_owned(),
        (None, total) => format!(
            "downloading, {} % of {}",
            u128::from(*received_bytes) * 100 / u128::from(*total),
            bytes(*total)
        ),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Array(list) => list.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Number(number) if number.is_f64() => {
            format!("{:.1}", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}
