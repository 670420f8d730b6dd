//! Downloads for the worker of `worker up`.

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::cli::models::load_into_worker;
use crate::cli::place::Place;
use crate::cli::{Exit, Failure};
use crate::config::Config;
use crate::coordinator::local_models::{LocalModels, PullError, PullProgress};
use crate::hub::{Event, Progress};

#[derive(Debug)]
pub struct ModelsOfThisMachine {
    config: Config,
}

impl ModelsOfThisMachine {
    pub fn new(config: Config) -> Self {
        Self { config }
    }
}

impl LocalModels for ModelsOfThisMachine {
    fn pull(
        &self,
        name: String,
        progress: watch::Sender<PullProgress>,
    ) -> BoxFuture<'static, Result<(), PullError>> {
        let config = self.config.clone();
        Box::pin(async move {
            let pulled = pull(&name, &config, progress).await;
            pulled.map_err(|failure| match failure.exit() {
                Some(Exit::NotFound) => PullError::Unknown(failure.to_string()),
                _ => PullError::Failed(failure.to_string()),
            })
        })
    }
}

async fn pull(
    name: &str,
    config: &Config,
    progress: watch::Sender<PullProgress>,
) -> Result<(), Failure> {
    let place = Place::open(config)?;
    let name = listed(name, &place);
    let watcher = Watcher(progress);
    place.pull_watched(&name, &watcher).await?;
    watcher.tell(|told| told.is_loading = true);
    load_into_worker(&name, config).await.map(drop)
}

/// The catalog's name of a model that Ollama writes with a colon: `qwen3:0.6b` is `qwen3-0.6b`.
fn listed(name: &str, place: &Place) -> String {
    let is_known = |name: &str| place.catalog.find_with_quantization(name).is_ok();
    let dashed = name.replacen(':', "-", 1);
    match !is_known(name) && is_known(&dashed) {
        true => dashed,
        false => name.to_owned(),
    }
}

/// Adds up what a download reports.
struct Watcher(watch::Sender<PullProgress>);

impl Watcher {
    fn tell(&self, change: impl FnOnce(&mut PullProgress)) {
        self.0.send_modify(change);
    }
}

impl Progress for Watcher {
    fn report(&self, event: Event<'_>) {
        match event {
            Event::Planned {
                wanted_bytes,
                present_bytes,
                ..
            } => self.tell(|told| {
                told.total += wanted_bytes + present_bytes;
                told.completed += present_bytes;
            }),
            Event::Received { bytes, .. } => self.tell(|told| told.completed += bytes),
            _ => {}
        }
    }
}
