//! The models of the daemon and the worker that serves them; both change when the configuration does.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{error, info, warn};

use super::{
    Device, DeviceModel, Engines, LAST_TASKS, Post, Residency, Served, Worker, here, limits,
};
use crate::catalog::Catalog;
use crate::daemon::DaemonError;
use crate::daemon::locate::Located;
use crate::hub::Hub;
use muster_config::{Config, show_duration};
use muster_process::tasks::Tasks;

/// A device, its models under the names of the configuration, and the worker.
pub struct Crew {
    residency: Residency,
    models: Vec<(String, DeviceModel)>,
    pub worker: Worker,
    posts: Vec<Post>,
    /// Of the worker.
    tasks: Tasks,
    whole: Tasks,
}

/// A model's name in the configuration, its files, and what they became.
pub type LoadedModel = (String, Located, DeviceModel);

/// Models whose files are here and that are not loaded yet.
pub type Recruits = Vec<(String, Located)>;

impl Crew {
    pub async fn start(
        residency: Residency,
        models: Vec<(String, DeviceModel)>,
        posts: Vec<Post>,
        (config, catalog): (&Config, &Catalog),
        whole: &Tasks,
    ) -> Self {
        let tasks = whole.part();
        let served = served(&models, config, catalog);
        let engines = Engines {
            residency: Some(residency.clone()),
            ..residency.device().await.engines().clone()
        };
        let worker = Worker::start(engines, served, posts.clone(), &tasks);
        // From here on: what a worker can do is asked of models in memory.
        residency.keep(&tasks);
        Self {
            residency,
            models,
            worker,
            posts,
            tasks,
            whole: whole.clone(),
        }
    }

    /// Brings the files of models that the configuration has now, while the worker goes on. A model whose files cannot be
    /// had is left out.
    pub async fn recruits(&self, config: &Config, catalog: &Catalog, hub: &Hub) -> Recruits {
        let mut recruits = Vec::new();
        for wanted in &config.models.serve.0 {
            if self.models.iter().any(|(name, _)| name == wanted) {
                continue;
            }
            let room = self.residency.device().await.room().clone();
            match here(wanted, config, &room, catalog, hub).await {
                Ok(located) => recruits.push((wanted.clone(), located)),
                Err(failure) => error!("not serving {wanted}: {failure}"),
            }
        }
        recruits
    }

    /// Whether the configuration names other models than are loaded.
    pub fn has_left_overs(&self, config: &Config) -> bool {
        let mut loaded = self.models.iter();
        loaded.any(|(name, _)| !config.models.serve.0.contains(name))
    }

    /// Unloads models that the configuration has no more and loads the others. Jobs that run have the grace period to
    /// finish; coordinators hear of the new models when the worker comes back.
    pub async fn change(
        self,
        recruits: Recruits,
        (config, catalog): (&Config, &Catalog),
        grace: Duration,
    ) -> Self {
        let Self {
            residency,
            models,
            worker,
            posts,
            tasks,
            whole,
        } = self;
        info!(
            "changing models: no jobs until it is done, running jobs have {} to finish",
            show_duration(grace)
        );
        if !worker.drain(grace).await {
            warn!("unfinished jobs were handed back");
        }
        tasks.stop(LAST_TASKS).await;
        let mut kept = Vec::new();
        for (name, model) in models {
            if config.models.serve.0.contains(&name) {
                kept.push((name, model));
                continue;
            }
            match residency.remove(&model).await {
                Ok(()) => info!("unloaded {name}"),
                Err(failure) => error!("{failure}"),
            }
        }
        // What a worker can do is asked of models in memory.
        residency.wake_all().await;
        for (name, located) in recruits {
            let loaded = residency
                .device()
                .await
                .load(located.clone(), |_, _| {})
                .await;
            match loaded {
                Ok(model) => {
                    residency.add(located, model.clone());
                    info!("loaded {name}");
                    kept.push((name, model));
                }
                Err(failure) => error!("not serving {name}: {failure}"),
            }
        }
        Self::start(residency, kept, posts, (config, catalog), &whole).await
    }

    /// The models of the configuration, without those that could not be loaded.
    pub fn loaded_of<'c>(&self, config: &'c Config) -> Vec<&'c str> {
        let is_loaded = |name: &&'c String| self.models.iter().any(|(loaded, _)| loaded == *name);
        let wanted = config.models.serve.0.iter().filter(is_loaded);
        wanted.map(String::as_str).collect()
    }

    pub fn into_worker(self) -> (Worker, Tasks) {
        (self.worker, self.tasks)
    }
}

fn served(models: &[(String, DeviceModel)], config: &Config, catalog: &Catalog) -> Served {
    let models: Vec<DeviceModel> = models.iter().map(|(_, model)| model.clone()).collect();
    let other_names = other_names(&models, catalog);
    Served::new(models, limits(config).max_running, other_names)
}

/// What those who poll call the models that are in the catalog.
fn other_names(models: &[DeviceModel], catalog: &Catalog) -> BTreeMap<String, Vec<String>> {
    let names = |model: &DeviceModel| {
        let entry = catalog.find(model.name()).ok()?;
        Some((model.name().to_owned(), entry.names.legacy.clone()))
    };
    models.iter().filter_map(names).collect()
}

/// The same for a device that has just been started.
pub async fn first_models(
    device: &mut Device,
    config: &Config,
    catalog: &Catalog,
    hub: &Hub,
) -> Result<Vec<LoadedModel>, DaemonError> {
    let mut models = Vec::new();
    for wanted in &config.models.serve.0 {
        let located = here(wanted, config, device.room(), catalog, hub).await?;
        info!("loading {}, no jobs until it is loaded", located.name);
        let model = device.load(located.clone(), |_, _| {}).await?;
        match &model {
            DeviceModel::Text(info) => info!(
                model.name = %info.name,
                "loaded {}: KV cache for {} tokens, up to {} per job",
                info.name, info.cache_tokens, info.context
            ),
            DeviceModel::Media(model) => {
                info!(model.name = %model.name, "loaded {}: it makes {}", model.name, model.kind);
            }
        }
        models.push((wanted.clone(), located, model));
    }
    Ok(models)
}
