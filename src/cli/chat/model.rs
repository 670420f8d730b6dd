//! The model of a chat with a coordinator of this machine: downloaded and loaded where it is not served yet.

use std::path::{Path, absolute};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::client::Client;
use crate::cli::models::load_into_worker;
use crate::cli::place::Place;
use crate::cli::question::{Asking, confirm};
use crate::cli::{Exit, Failure, Root, output, quantity};
use crate::config::{Config, is_path};
use crate::daemon::locate::LocateError;

/// A coordinator under load lists a model some time after its worker has registered it.
const LISTED_WITHIN: Duration = Duration::from_secs(10);
const LIST_PAUSE: Duration = Duration::from_millis(100);

/// The name under which a running coordinator serves a model. A model that is not served is loaded into the worker
/// beside the coordinator.
pub async fn served(
    wanted: &str,
    client: &Client,
    config: &Config,
    root: &Root,
) -> Result<String, Failure> {
    let is_file = is_path(wanted) || Path::new(wanted).exists();
    let name = match is_file {
        true => on_disk(wanted, config, root).await?,
        false => wanted.to_owned(),
    };
    let missing = match client.choose(Some(&name)).await {
        Err(failure) if failure.exit() == Some(Exit::NotFound) => failure,
        chosen => return chosen,
    };
    // A word that names no model stays the coordinator's to answer.
    if !is_file
        && Place::open(config)?
            .catalog
            .find_with_quantization(wanted)
            .is_err()
    {
        return Err(missing);
    }
    on_disk(wanted, config, root).await?;
    output::aside(format!("loading {name} into the running worker"));
    // The worker may run in another folder.
    let wanted = match is_file {
        true => absolute(wanted).map_err(anyhow::Error::from)?,
        false => wanted.into(),
    };
    let loaded = load_into_worker(&wanted.to_string_lossy(), config).await?;
    let listed = async {
        loop {
            match client.choose(Some(&loaded.model)).await {
                Err(failure) if failure.exit() == Some(Exit::NotFound) => sleep(LIST_PAUSE).await,
                chosen => return chosen,
            }
        }
    };
    match timeout(LISTED_WITHIN, listed).await {
        Ok(chosen) => chosen,
        Err(_) => client.choose(Some(&loaded.model)).await,
    }
}

/// Sees to it that the files of a model are on disk: a terminal is asked about a download. Returns the model's name.
pub async fn on_disk(wanted: &str, config: &Config, root: &Root) -> Result<String, Failure> {
    let place = Place::open(config)?;
    let missing = match place.locate(wanted) {
        Ok(located) => return Ok(located.name),
        Err(missing) => missing,
    };
    let is_missing = matches!(
        missing,
        LocateError::NotHere { .. } | LocateError::Damaged { .. }
    );
    let asking = Asking::of_terminal(!root.quiet && !config.hub.offline);
    if !is_missing || asking == Asking::Pointless {
        return Err(missing.into());
    }
    let question = format!(
        "{wanted} is not on disk. Download it{} to {}? [y/N] ",
        size(wanted, &place),
        place.hub.settings().cache_dir.display()
    );
    match confirm(question).await? {
        true => Ok(place.pull(wanted).await?.name),
        false => Err(missing.into()),
    }
}

/// ` (about 640.0 MiB)`, where the catalog knows it.
fn size(wanted: &str, place: &Place) -> String {
    let Ok((entry, named)) = place.catalog.find_with_quantization(wanted) else {
        return String::new();
    };
    let quantization = named.unwrap_or(&entry.default_quantization);
    let bytes = entry.weight_bytes(quantization);
    bytes.map_or_else(String::new, |bytes| {
        format!(" (about {})", quantity::bytes(bytes))
    })
}
