//! One model on one device, for commands that use it themselves.

use std::future::Future;
use std::sync::Arc;

use super::meter::Meter;
use super::{Exit, Failure};
use crate::config::Config;
use crate::daemon::Device;
use crate::daemon::locate::Located;
use crate::hardware;
use crate::memory;
use crate::runtime::{ModelInfo, Runtime};

/// Runs what waits: generations and signals. Computing has threads of its own.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .on_thread_park(memory::on_idle)
        .enable_all()
        .build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Failed, format!("starting threads failed: {error}")))?;
    let result = runtime.block_on(future);
    // A model that is still loading after Ctrl-C is not waited for.
    runtime.shutdown_background();
    result
}

/// Loads a model that fits, showing how far it is.
pub async fn load(
    config: &Config,
    located: Located,
    is_shown: bool,
) -> Result<(Runtime, Arc<ModelInfo>), Failure> {
    let mut config = config.clone();
    // One job alone needs no room for others.
    config.engine.max_running = 1;
    let mut device = Device::start(&config, &hardware::probe())?;
    let name = located.name.clone();
    let is_pulled = located.source.path.starts_with(&config.hub.cache_dir);
    let meter = Arc::new(Meter::new(format!("loading {}", located.name), is_shown));
    let watched = Arc::clone(&meter);
    let info = device
        .load(located, move |done, total| watched.set(done, total))
        .await;
    meter.end();
    let info = info.map_err(|error| match (Failure::from(error), is_pulled) {
        (failure, true) if failure.exit() == Some(Exit::BadData) => failure.hint(format!(
            "`worker models verify {name}` checks the files of the model"
        )),
        (failure, _) => failure,
    });
    Ok((device.into_engines().runtime, info?))
}
