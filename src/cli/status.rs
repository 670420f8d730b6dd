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
use crate::daemon::report::{
    CoordinatorReport, DownloadReport, GpuReport, ModelReport, NoJobsReport, TallyReport,
    WorkerReport,
};

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

/// `None` if no coordinator runs with this data folder.
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
    if !report.rules.is_empty() {
        text += &format!("rules: {}\n", report.rules.join(", "));
    }
    if let Some(url) = &report.page {
        text += &format!("page: {url} (`worker page` prints the link)\n");
    }
    if !report.gpus.is_empty() {
        text += &format!("\n{}", of_gpus(report));
    }
    text += &energy(report);
    if !report.models.is_empty() {
        let mut table = Table::new([
            "MODEL", "KIND", "CONTEXT", "STATE", "DEVICE", "TOKENS/S", "TODAY", "KUDOS",
        ]);
        for model in &report.models {
            let kind = model.kind.clone().unwrap_or_else(|| "-".to_owned());
            let context = model
                .context
                .map_or("-".to_owned(), |tokens| tokens.to_string());
            let devices = model.devices.join(", ");
            let speed = model.tokens_per_second;
            table.row([
                model.name.clone(),
                kind,
                context,
                state(model),
                devices,
                speed.map_or("-".to_owned(), |speed| format!("{speed:.1}")),
                jobs(&model.today),
                kudos(model.today.earned_thousandths),
            ]);
        }
        text += &format!("\n{table}");
    }
    if !report.coordinators.is_empty() {
        let mut table = Table::new(["COORDINATOR", "STATE", "TODAY", "KUDOS", "HELD"]);
        for coordinator in &report.coordinators {
            let reason = coordinator.reason.as_ref();
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            let own = match coordinator.own_jobs {
                true => ", your own jobs alone",
                false => "",
            };
            let state = format!("{}{own}{reason}", coordinator.state);
            table.row([
                coordinator.name.clone(),
                state,
                jobs(&coordinator.today),
                kudos(coordinator.today.earned_thousandths),
                held(coordinator),
            ]);
        }
        text += &format!("\n{table}");
    }
    text += &format!("\n{}", of_jobs(report));
    if !report.no_jobs.is_empty() {
        text += "\nwhy no jobs come:\n";
    }
    for reason in &report.no_jobs {
        text += &format!("  {}\n", of_reason(reason));
    }
    text
}

fn of_jobs(report: &WorkerReport) -> String {
    let jobs = &report.jobs;
    let mut text = format!(
        "jobs: {} running, {} done, {} failed, {} handed back, {} cancelled; {} tokens, {} kudos since the start\n",
        jobs.running,
        jobs.done,
        jobs.failed,
        jobs.handed_back,
        jobs.cancelled,
        jobs.tokens,
        kudos(jobs.earned_thousandths),
    );
    let today = &report.today;
    text += &format!(
        "today: {} done, {} tokens, {} kudos\n",
        today.done,
        today.tokens,
        kudos(today.earned_thousandths)
    );
    text
}

/// A reason why no jobs arrive, as a line.
pub fn of_reason(reason: &NoJobsReport) -> String {
    let mut text = String::new();
    for of in [&reason.coordinator, &reason.model].into_iter().flatten() {
        text += &format!("{of}: ");
    }
    text += &reason.text;
    if let Some(remedy) = &reason.remedy {
        text += &format!("; {remedy}");
    }
    text
}

fn of_gpus(report: &WorkerReport) -> Table {
    let mut table = Table::new(["GPU", "NAME", "LOAD", "MEMORY", "WATTS", "HEAT"]);
    for (at, gpu) in report.gpus.iter().enumerate() {
        table.row([
            at.to_string(),
            gpu.name.clone(),
            percent(gpu.load),
            memory(gpu),
            whole(gpu.watts, ""),
            whole(gpu.celsius.map(f64::from), " °C"),
        ]);
    }
    table
}

pub fn memory(gpu: &GpuReport) -> String {
    format!(
        "{} of {}",
        bytes(gpu.memory_used_bytes),
        bytes(gpu.memory_total_bytes)
    )
}

/// A share from 0 to 1.
pub fn percent(share: Option<f64>) -> String {
    whole(share.map(|share| share * 100.0), " %")
}

/// A number without its fraction; a dash for an unknown one.
pub fn whole(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}{unit}"))
}

/// Power now, and today's energy with its cost.
pub fn energy(report: &WorkerReport) -> String {
    let energy = &report.energy;
    let mut parts = Vec::new();
    if let Some(watts) = energy.processor_watts {
        parts.push(format!("processors {watts:.0} W now"));
    }
    if let Some(watt_hours) = energy.today_watt_hours {
        let cost = energy
            .today_cost
            .map(|cost| format!(", which cost {cost:.2}"));
        parts.push(format!(
            "{watt_hours:.1} Wh today{}",
            cost.unwrap_or_default()
        ));
    }
    if let Some(share) = energy.computing {
        let share = percent(Some(share));
        parts.push(format!(
            "models compute {share} of the time (owner.most_watts)"
        ));
    }
    if let Some(note) = &energy.processor_note {
        parts.push(note.clone());
    }
    match parts.as_slice() {
        [] => String::new(),
        parts => format!("energy: {}\n", parts.join("; ")),
    }
}

fn jobs(tally: &TallyReport) -> String {
    format!("{} jobs", tally.done)
}

pub fn kudos(thousandths: i64) -> String {
    format!("{:.2}", thousandths as f64 / 1000.0)
}

/// Jobs and kudos that a coordinator has not settled.
pub fn held(coordinator: &CoordinatorReport) -> String {
    let jobs = match coordinator.held_jobs {
        0 => None,
        jobs => Some(format!("{jobs} jobs")),
    };
    let kudos = coordinator.held_kudos.filter(|kudos| *kudos > 0.0);
    let kudos = kudos.map(|kudos| format!("{kudos:.2} kudos"));
    let held: Vec<String> = jobs.into_iter().chain(kudos).collect();
    match held.as_slice() {
        [] => "-".to_owned(),
        held => held.join(", "),
    }
}

/// In memory or not, or how far its download is.
pub fn state(model: &ModelReport) -> String {
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
