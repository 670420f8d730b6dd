//! Models of the worker of `worker up`.

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::cli::models::{self, load_into_worker, removable, remove_files, withdraw_from_worker};
use crate::cli::place::Place;
use crate::cli::{Exit, Failure};
use crate::config::Config;
use crate::coordinator::local_models::{DeleteError, LocalModels, PullError, PullProgress};
use crate::daemon::control;
use crate::daemon::page::PageToken;
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

    fn delete(&self, name: String) -> BoxFuture<'static, Result<(), DeleteError>> {
        let config = self.config.clone();
        Box::pin(async move { delete(&name, &config).await })
    }

    fn worker_page(&self) -> BoxFuture<'static, Option<String>> {
        let data_dir = self.config.worker.data_dir.clone();
        Box::pin(async move {
            let report = control::status(&data_dir).await.ok()??;
            let token = PageToken::read(&data_dir).ok()??;
            Some(token.link(&report.page?))
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

async fn delete(name: &str, config: &Config) -> Result<(), DeleteError> {
    let failed = |failure: Failure| DeleteError::Failed(failure.to_string());
    let place = Place::open(config).map_err(failed)?;
    let name = listed(name, &place);
    let place = models::Place::of(config).map_err(failed)?;
    let present = removable(&name, &place).map_err(|failure| match failure.exit() {
        Some(Exit::NotFound) => DeleteError::Unknown(failure.to_string()),
        // A part of this program.
        _ => DeleteError::Kept(failure.to_string()),
    })?;
    let is_withdrawn = match withdraw_from_worker(&name, config).await {
        Ok(_) => true,
        Err(failure) => match failure.exit() {
            Some(Exit::NotFound) => false,
            Some(Exit::Usage) => return Err(DeleteError::Kept(failure.to_string())),
            _ => return Err(failed(failure)),
        },
    };
    let report = remove_files(&present, false, &place).map_err(failed)?;
    if report.removed.is_empty() && !is_withdrawn {
        let kept = report.kept.join(", ");
        return Err(DeleteError::Kept(format!(
            "nothing of {name} was removed, since another program downloaded {kept}; \
             `worker models rm {name} --shared` removes it, too"
        )));
    }
    Ok(())
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

/// Tracks the progress of a download.
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
