//! `worker page`: the link to the owner's page of the running worker.
//!
//! | file | content |
//! | --- | --- |
//! | `tools` | settings and checks for the page |

mod tools;

use serde_json::json;

use super::load::block_on;
use super::{Failure, Root, output};
use crate::daemon::control;
use crate::daemon::page::PageToken;
pub use tools::PageTools;

const EXAMPLES: &str = "\
Examples:
  worker page                        of the worker of `worker up`
  worker page --config worker.toml   of the worker with this configuration";

/// Print the link to the running worker's page: state, plots, rules, models and log in a browser of this machine.
///
/// The link holds a token that opens the page. The address is that of owner.page.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct PageArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: &PageArgs, root: &Root) -> Result<(), Failure> {
    root.start_log()?;
    let config = root.load()?.config;
    let data_dir = &config.worker.data_dir;
    let folder = data_dir.display();
    let status = block_on(async {
        let status = control::status(data_dir).await;
        status.map_err(|error| Failure::unavailable(format!("asking the worker failed: {error}")))
    })?;
    let Some(report) = status else {
        return Err(
            Failure::unavailable(format!("no worker runs with the data folder {folder}")).hint(
                "`worker up` or `worker --config FILE` starts one; --data-dir names another folder",
            ),
        );
    };
    let Some(url) = report.page else {
        return Err(
            Failure::unavailable("the running worker serves no page").hint(
                "its log says why, unless owner.page is false; owner.page names another address",
            ),
        );
    };
    let token = PageToken::read(data_dir).map_err(anyhow::Error::from)?;
    let Some(token) = token else {
        return Err(Failure::unavailable(format!(
            "the token of the page in {folder} is gone, or others could read it"
        ))
        .hint("start the worker again: it writes a new one"));
    };
    let link = token.link(&url);
    match args.json {
        true => output::json(&json!({"url": url, "link": link})),
        false => output::line(link),
    }
}
