//! A model on a device, for commands that use it directly.

use std::future::Future;
use std::sync::Arc;

use super::meter::Meter;
use super::{Exit, Failure};
use crate::config::Config;
use crate::daemon::locate::{Located, LocatedSource};
use crate::daemon::{Device, DeviceModel};
use crate::hardware;
use crate::memory;
use crate::runtime::maker::Maker;
use crate::runtime::{ModelInfo, Runtime};

/// Runs asynchronous waits: generations and signals. Computation has its own threads.
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
    if !matches!(located.source, LocatedSource::Text(_)) {
        return Err(no_text(&located.name));
    }
    let mut config = config.clone();
    // A single job needs no memory for others.
    config.engine.max_running = Some(1);
    let mut device = Device::start(&config, &hardware::probe())?;
    let name = located.name.clone();
    let is_pulled = located.source.path().starts_with(&config.hub.cache_dir);
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
    match info? {
        DeviceModel::Text(info) => Ok((device.into_engines().runtime, info)),
        DeviceModel::Media(model) => Err(no_text(&model.name)),
    }
}

/// Loads a media model, if it fits. The maker knows the model by its name.
pub async fn load_media(config: &Config, located: Located) -> Result<Maker, Failure> {
    let mut device = Device::start(config, &hardware::probe())?;
    device.load(located, |_, _| {}).await?;
    Ok(device.maker()?)
}

pub fn no_text(model: &str) -> Failure {
    let what = format!("{model} writes no text, but this command needs a model that writes text");
    Failure::new(Exit::Usage, what).hint("`worker models list` shows the kind of each model")
}
