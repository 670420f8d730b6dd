//! `worker config`: the settings in force, and all settings.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::json;

use super::table::Table;
use super::{Failure, Root, output};
use crate::config::{Found, Loaded, example};

const EXAMPLES: &str = "\
Examples:
  worker config check worker.toml            check the file, show each value and its source
  MUSTER_ENGINE_THREADS=4 worker config check
  worker config example > worker.toml        write every setting with its default";

const CHECK_EXAMPLES: &str = "\
Examples:
  worker config check worker.toml
  worker config check --json                 show defaults and environment as JSON";

const EXAMPLE_EXAMPLES: &str = "Example:\n  worker config example > worker.toml";

/// Check the configuration, or print an example.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Check(Check),
    Example(Example),
}

/// Check the configuration and show the source of each value.
#[derive(Debug, ClapArgs)]
#[command(after_help = CHECK_EXAMPLES)]
struct Check {
    /// The file to check (default: the file of --config; without one, only defaults and environment).
    file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Print every setting with its default and a reason to change it.
#[derive(Debug, ClapArgs)]
#[command(after_help = EXAMPLE_EXAMPLES)]
struct Example {}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    match args.action {
        Action::Check(check) => run_check(check, root),
        Action::Example(Example {}) => output::text(example()),
    }
}

fn run_check(check: Check, root: &Root) -> Result<(), Failure> {
    let loaded = match check.file {
        Some(file) => root.load_file(file)?,
        None => root.load()?,
    };
    if check.json {
        return output::json(&as_json(&loaded));
    }
    for remark in loaded.remarks() {
        output::line(format!("warning: {remark}"))?;
    }
    output::text(as_table(&loaded.found))
}

fn as_table(found: &[Found]) -> Table {
    let mut table = Table::new(["setting", "value", "from"]);
    for found in found {
        let value = if found.is_set {
            found.value.clone()
        } else {
            format!("({})", found.value)
        };
        table.row([found.name.clone(), value, found.origin.to_string()]);
    }
    table
}

fn as_json(loaded: &Loaded) -> serde_json::Value {
    let settings = loaded.found.iter().map(|found| {
        let value = found.is_set.then_some(&found.value);
        json!({ "name": found.name, "value": value, "from": found.origin.to_string() })
    });
    json!({ "settings": settings.collect::<Vec<_>>(), "warnings": loaded.remarks().collect::<Vec<_>>() })
}
