//! `worker status`: the coordinator that runs here, its models and workers.

use serde_json::{Value, json};

use super::chat::{Client, running};
use super::load::block_on;
use super::table::Table;
use super::{Failure, Root, output};

const EXAMPLES: &str = "\
Examples:
  worker status          models, workers and jobs of the running `worker up`
  worker ps --json       the same as JSON; `ps` is another name of `status`";

/// Show the running coordinator of this machine: its models, workers and jobs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, visible_alias = "ps")]
pub struct StatusArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &StatusArgs, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    block_on(async {
        let Some(client) = running(&config.worker.data_dir, None).await? else {
            return Err(Failure::unavailable("no coordinator is running here")
                .hint("`worker up` starts one; another --data-dir names another one"));
        };
        let models = client.get("v1/status/models").await?;
        let workers = client.get("v1/workers").await?;
        match args.json {
            true => output::json(
                &json!({"url": client.url().as_str(), "models": models, "workers": workers}),
            ),
            false => show(&client, &models, &workers),
        }
    })
}

fn show(client: &Client, models: &Value, workers: &Value) -> Result<(), Failure> {
    let url = client.url().as_str().trim_end_matches('/').to_owned();
    output::line(format!("running at {url}\n"))?;
    let mut table = Table::new([
        "MODEL",
        "KIND",
        "CONTEXT",
        "WORKERS",
        "JOBS IN 24 H",
        "TOKENS/S",
    ]);
    for model in models.as_array().into_iter().flatten() {
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
    for worker in workers["workers"].as_array().into_iter().flatten() {
        let keys = ["name", "job_types", "models"];
        table.row(keys.map(|key| shown(&worker[key])));
    }
    output::text(format!("\n{table}"))
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
