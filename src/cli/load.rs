//! One model on one device, for commands that use it themselves.

use std::future::Future;
use std::io::{self, IsTerminal};
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Exit, Failure};
use crate::config::Config;
use crate::daemon::Device;
use crate::daemon::locate::Located;
use crate::hardware;
use crate::runtime::{ModelInfo, Runtime};

/// Runs what waits: generations and signals. Computing has threads of its own.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Failed, format!("no threads to run on: {error}")))?;
    let result = runtime.block_on(future);
    // A model that is still loading after Ctrl-C is not waited for.
    runtime.shutdown_background();
    result
}

/// Loads a model that fits, showing how far it is where somebody watches.
pub async fn load(
    config: &Config,
    located: Located,
    is_shown: bool,
) -> Result<(Runtime, Arc<ModelInfo>), Failure> {
    let mut config = config.clone();
    // One job alone needs no room for others.
    config.engine.max_running = 1;
    let mut device = Device::start(&config, &hardware::probe())?;
    let bar = bar(&located.name, is_shown);
    let watched = bar.clone();
    let info = device
        .load(located, move |done, total| {
            watched.set_length(total);
            watched.set_position(done);
        })
        .await;
    bar.finish_and_clear();
    Ok((device.into_runtime(), info?))
}

fn bar(name: &str, is_shown: bool) -> ProgressBar {
    let target = match is_shown && io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("loading {msg} [{bar:30}] {bytes} of {total_bytes}");
    ProgressBar::with_draw_target(Some(0), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(name.to_owned())
}
