//! The worker process: probe, fit, pull, load, serve, drain.
//!
//! It decides what goes where and turns the parts' words into each other's; it computes nothing and speaks to nobody
//! outside. The line to a coordinator is not built yet, so for now a worker holds its models ready and waits.

mod device;
mod error;
mod fetch;
pub mod fit;
pub mod locate;
mod signals;

use std::time::Duration;

use tracing::{info, warn};

use crate::catalog::Catalog;
use crate::config::{Config, show_duration};
use crate::hardware::{self, Machine};
use crate::hub::Hub;
use crate::runtime::Runtime;

pub use device::{Device, limits, needs};
pub use error::DaemonError;
use fit::Wishes;
use locate::{LocateError, Located, Shelves};
pub use signals::Signals;

/// Runs until it is told to stop.
pub async fn run(config: &Config, catalog: &Catalog, hub: &Hub) -> Result<(), DaemonError> {
    let mut signals = Signals::listen()?;
    let started = tokio::select! {
        started = start(config, catalog, hub) => Some(started?),
        () = signals.next() => None,
    };
    let Some(runtime) = started else {
        info!("told to stop while loading");
        return Ok(());
    };
    wait_for_work(config);
    signals.next().await;
    drain(runtime, config.worker.drain, &mut signals).await;
    Ok(())
}

async fn start(config: &Config, catalog: &Catalog, hub: &Hub) -> Result<Runtime, DaemonError> {
    let machine = hardware::probe();
    describe(config, &machine);
    let mut device = Device::start(config, &machine)?;
    if config.models.serve.0.is_empty() {
        warn!("no models are configured: name some under models.serve");
    }
    for wanted in &config.models.serve.0 {
        let located = here(wanted, config, &device, catalog, hub).await?;
        let info = device.load(located, |_, _| {}).await?;
        info!(
            model.name = %info.name,
            "{} is loaded: room for {} tokens of jobs, each up to {}",
            info.name, info.cache_tokens, info.context
        );
    }
    Ok(device.into_runtime())
}

/// The files of a model, brought here first if need be.
async fn here(
    wanted: &str,
    config: &Config,
    device: &Device,
    catalog: &Catalog,
    hub: &Hub,
) -> Result<Located, DaemonError> {
    let preferred = config.models.quantization.as_deref();
    let unpacked = config.worker.data_dir.join("models");
    let shelves = Shelves {
        catalog,
        hub,
        unpacked: &unpacked,
        preferred,
    };
    let locate = || locate::locate(wanted, shelves);
    match locate() {
        Err(LocateError::NotHere { .. }) if !config.hub.offline => {
            let wishes = Wishes::of(&config.engine);
            fetch::fetch(wanted, preferred, wishes, device.room(), catalog, hub).await?;
            Ok(locate()?)
        }
        located => Ok(located?),
    }
}

fn describe(config: &Config, machine: &Machine) {
    let name = config.worker.name();
    info!(worker.name = %name, "worker {name}, version {}", env!("CARGO_PKG_VERSION"));
    info!(
        "processor {} with {} threads to use",
        machine.cpu.model, machine.cpu.threads
    );
    for gpu in &machine.gpus {
        info!("card {}: {}", gpu.index, gpu.name);
    }
    for note in &machine.notes {
        warn!("{note}");
    }
}

fn wait_for_work(config: &Config) {
    match config.coordinators.as_slice() {
        [] => warn!("no coordinator is configured: nobody will send work"),
        some => {
            for coordinator in some {
                let host = coordinator.url.host_str().unwrap_or_default();
                warn!("the link to {host} is not built yet: nobody will send work");
            }
        }
    }
    info!("ready; SIGTERM or Ctrl-C stops");
}

/// Running jobs finish within the grace period; a second signal ends it.
async fn drain(runtime: Runtime, grace: Duration, signals: &mut Signals) {
    let running = runtime.status().running;
    info!(
        "stopping: {running} jobs may finish within {}; a second signal leaves now",
        show_duration(grace)
    );
    tokio::select! {
        drained = tokio::time::timeout(grace, runtime.drain()) => match drained {
            Ok(()) => info!("stopped"),
            Err(_) => warn!("stopped with jobs unfinished after {}", show_duration(grace)),
        },
        () = signals.next() => warn!("left at once"),
    }
}
