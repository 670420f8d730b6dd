//! Places of models by the configuration: the catalog, the hub's cache, this machine.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::Failure;
use super::models::bars;
use crate::catalog::{Catalog, Source};
use crate::config::{Config, Quantization};
use crate::daemon::control;
use crate::daemon::locate::{LocateError, Located, Shelves, all_sources_of, locate, sources_of};
use crate::hub::{Hub, HubSettings, Progress};

pub struct Place {
    pub catalog: Catalog,
    pub hub: Hub,
    unpacked: PathBuf,
    preferred: Option<&'static str>,
    users: FileUsers,
}

/// Models whose files are kept when a download needs space.
pub struct FileUsers {
    /// Models named in the configuration.
    serve: Vec<String>,
    /// The data folder of the running worker.
    data_dir: PathBuf,
}

impl FileUsers {
    pub fn of(config: &Config) -> Self {
        Self {
            serve: config.models.serve.0.clone(),
            data_dir: config.worker.data_dir.clone(),
        }
    }

    /// Keeps the files of configured models, of the running worker's models, and of models being pulled.
    pub async fn keep(&self, pulled: &[&str], shelves: Shelves<'_>) {
        let hub = shelves.hub.settings();
        if hub.disk.is_none() {
            return;
        }
        // Without a reply from the worker, its models count as recently used.
        let running = control::status(&self.data_dir).await.ok().flatten();
        for model in running.into_iter().flat_map(|worker| worker.models) {
            let sources = all_sources_of(&model.name, shelves.catalog);
            hub.in_use.insert(&model.name, &model.name, sources);
        }
        let named = self.serve.iter().map(String::as_str);
        for name in named.chain(pulled.iter().copied()) {
            let sources = sources_of(name, shelves);
            hub.in_use.insert(name, name, sources);
        }
    }
}

impl Place {
    pub fn open(config: &Config) -> Result<Self, Failure> {
        Ok(Self {
            catalog: Catalog::open(config.models.dir.as_deref())?,
            hub: Hub::new(hub_settings(config)),
            unpacked: config.worker.data_dir.join("models"),
            preferred: config.models.quantization.map(Quantization::word),
            users: FileUsers::of(config),
        })
    }

    /// Finds the files of a downloaded model.
    pub fn locate(&self, wanted: &str) -> Result<Located, LocateError> {
        locate(wanted, self.shelves())
    }

    fn shelves(&self) -> Shelves<'_> {
        Shelves {
            catalog: &self.catalog,
            hub: &self.hub,
            unpacked: &self.unpacked,
            preferred: self.preferred,
        }
    }

    /// Downloads a model of the catalog, with bars. Being dropped stops it, and the bytes so far stay.
    pub async fn pull(&self, wanted: &str) -> Result<Located, Failure> {
        self.pull_watched(wanted, bars::progress(false).as_ref())
            .await
    }

    /// The same with `progress` in place of bars.
    pub async fn pull_watched(
        &self,
        wanted: &str,
        progress: &dyn Progress,
    ) -> Result<Located, Failure> {
        let (entry, named) = self.catalog.find_with_quantization(wanted)?;
        let preferred = entry.preferred(self.preferred).map(|(name, _)| name);
        let (quantization, _) = entry.source(named.or(preferred))?;
        self.users.keep(&[wanted], self.shelves()).await;
        for it in entry.sources_of(quantization) {
            if let Source::Hub(source) = it.source {
                let never = CancellationToken::new();
                self.hub.pull(source, progress, &never).await?;
            }
        }
        Ok(self.locate(wanted)?)
    }
}

/// The configuration counts; a token that it does not have may be where the hub's own tools keep theirs.
pub fn hub_settings(config: &Config) -> HubSettings {
    let (hub, data_dir) = (&config.hub, &config.worker.data_dir);
    let usual = HubSettings::new(hub.endpoint.0.clone(), hub.cache_dir.clone(), data_dir);
    let token = hub.token.as_ref().map(|token| token.expose().to_owned());
    HubSettings {
        token: token.or(usual.token),
        offline: hub.offline,
        connections: hub.connections,
        bandwidth: hub.bandwidth.map(|size| size.bytes),
        disk: hub.disk.map(|size| size.bytes),
        ..usual
    }
}
