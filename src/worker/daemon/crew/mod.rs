//! The models of the daemon and the worker that serves them; both follow changes of the configuration.
//!
//! | file | content |
//! | --- | --- |
//! | `commands` | the owner's commands |
//! | `pause` | the owner's pause |

mod commands;
mod pause;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::DropGuard;
use tracing::{error, info, warn};

use super::devices::NewAdapters;
use super::downloads::{Downloads, can_be_fetched};
use super::owner::{Availability, OwnerPause, OwnerRules, RuleOutcome};
use super::state::WorkerState;
use super::upstreams::upstream_wishes;
use super::{DeviceModel, Devices, LAST_TASKS, Post, Served, Stock, Worker, here_already};
use crate::catalog::Catalog;
use crate::daemon::DaemonError;
use crate::daemon::locate::Located;
use crate::hub::Hub;
use crate::upstream::UpstreamWatch;
use muster_config::{Config, show_duration};
use muster_process::tasks::Tasks;

/// Time for a coordinator to learn of a new model before the owner's command ends.
const RETURN_TIME: Duration = Duration::from_secs(10);

/// The devices, their models under the names of the configuration, and the worker.
pub struct Crew {
    devices: Devices,
    models: Vec<(String, DeviceModel)>,
    choices: OwnerChoices,
    rules: RuleOutcome,
    /// Models that other programs serve.
    upstreams: UpstreamWatch,
    /// The effect of the owner's pause.
    availability: Availability,
    /// Models that left memory for a pause.
    put_away: Vec<String>,
    /// Held while the models are loaded again.
    coming_back: Option<DropGuard>,
    pub worker: Worker,
    posts: Vec<Post>,
    state: WorkerState,
    /// The worker's own.
    tasks: Tasks,
    whole: Tasks,
}

/// The effect of the owner's commands so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerChoices {
    /// Models that the owner loaded in addition to the configuration, with the names in the commands.
    pub loaded: Vec<String>,
    /// Names of models that the owner unloaded, also where a job has loaded them again.
    pub unloaded: Vec<String>,
    pub pause: OwnerPause,
}

/// The owner's instructions: commands, rules, upstream programs.
type OwnerSources = (OwnerChoices, RuleOutcome, UpstreamWatch);

/// Models on disk that are not loaded yet.
pub type Recruits = Vec<(String, Located)>;

impl Crew {
    pub async fn start(
        devices: Devices,
        models: Vec<(String, DeviceModel)>,
        posts: Vec<Post>,
        (rules, upstreams): (&OwnerRules, UpstreamWatch),
        context: (WorkerState, &Catalog),
        whole: &Tasks,
    ) -> Self {
        let owner = (OwnerChoices::default(), rules.outcome.clone(), upstreams);
        Self::start_with(owner, devices, models, posts, context, whole).await
    }

    /// Starts with the choices that the owner made in an earlier process. A model that does not load again is left out.
    pub async fn start_again(
        (choices, rules, upstreams): (OwnerChoices, &OwnerRules, UpstreamWatch),
        devices: Devices,
        mut models: Vec<(String, DeviceModel)>,
        posts: Vec<Post>,
        (state, config, catalog, hub): (WorkerState, &Config, &Catalog, &Hub),
        whole: &Tasks,
    ) -> Self {
        choices.unload(&devices).await;
        for wanted in &choices.loaded {
            let located = match here_already(wanted, config, catalog, hub) {
                Ok(located) => located,
                Err(failure) => {
                    error!("not serving {wanted}, which the owner loaded: {failure}");
                    state.is_refused(wanted, failure);
                    continue;
                }
            };
            let mut names = models.iter().map(|(_, model)| model.name());
            if names.any(|name| name == located.name) {
                continue;
            }
            models.extend(load(&devices, wanted.clone(), located, &state).await);
        }
        choices.unload(&devices).await;
        let owner = (choices, rules.outcome.clone(), upstreams);
        Self::start_with(owner, devices, models, posts, (state, catalog), whole).await
    }

    async fn start_with(
        (mut choices, mut rules, upstreams): OwnerSources,
        devices: Devices,
        models: Vec<(String, DeviceModel)>,
        posts: Vec<Post>,
        (state, catalog): (WorkerState, &Catalog),
        whole: &Tasks,
    ) -> Self {
        let mut models = models;
        add_adapters(&devices, &mut models).await;
        let tasks = whole.part();
        let Stock { fleet, served } = stock(&devices, &models, (catalog, &upstreams)).await;
        let worker = Worker::start(fleet, served, posts.clone(), &tasks);
        devices.keep(&tasks);
        state.serves(device_models(&models), &devices, &worker);
        state.watches(&upstreams);
        choices.pause.rules = rules.reasons.borrow_and_update().clone();
        worker.keep_duty(rules.duty.clone(), &tasks);
        state.computes(&rules.duty);
        let mut crew = Self {
            devices,
            models,
            choices,
            rules,
            upstreams: upstreams.clone(),
            availability: Availability::Open,
            put_away: Vec::new(),
            coming_back: None,
            worker,
            posts,
            state,
            tasks,
            whole: whole.clone(),
        };
        crew.settle().await;
        crew
    }

    /// The models on disk that the configuration lists now. Downloads continue with the other ones; a model that cannot
    /// be downloaded is left out.
    pub async fn recruits(
        &self,
        config: &Config,
        catalog: &Catalog,
        hub: &Hub,
        downloads: &mut Downloads,
    ) -> Recruits {
        downloads.retain(config);
        self.keep_files(config, hub);
        self.state.forget_refusals();
        let mut recruits = Vec::new();
        for wanted in &config.models.serve.0 {
            if self.models.iter().any(|(name, _)| name == wanted) {
                continue;
            }
            match here_already(wanted, config, catalog, hub) {
                Ok(located) => recruits.push((wanted.clone(), located)),
                Err(failure) if can_be_fetched(wanted, &failure, config, catalog) => {
                    let room = self.devices.most_room().await;
                    downloads.start(wanted, &room, config, catalog, hub);
                }
                Err(failure) => {
                    error!("not serving {wanted}: {failure}");
                    self.state.is_refused(wanted, failure);
                }
            }
        }
        recruits
    }

    /// Allows the disk budget to remove the files of models that are not wanted.
    fn keep_files(&self, config: &Config, hub: &Hub) {
        let (serve, loaded) = (&config.models.serve.0, &self.choices.loaded);
        let wanted: Vec<&str> = serve.iter().chain(loaded).map(String::as_str).collect();
        hub.settings().in_use.retain(|name| wanted.contains(&name));
    }

    /// Whether the configuration names other models than are loaded.
    pub fn has_left_overs(&self, config: &Config) -> bool {
        let mut loaded = self.models.iter();
        loaded.any(|model| !self.is_wanted(model, config))
    }

    /// Whether the folder of adapters has some that are not served.
    pub async fn has_new_adapters(&self) -> bool {
        self.devices.has_new_adapters().await
    }

    /// An adapter is wanted while it has files and its model is wanted.
    fn is_wanted(&self, (name, model): &(String, DeviceModel), config: &Config) -> bool {
        if let Some(base) = model.parent() {
            let mut models = self.models.iter();
            let base = models.find(|(_, model)| model.name() == base);
            return self.devices.has_files(model.name())
                && base.is_some_and(|base| self.is_wanted(base, config));
        }
        config.models.serve.0.contains(name) || self.choices.loaded.contains(name)
    }

    /// Loads new models of the configuration and unloads removed ones, while jobs continue. Running jobs of a removed
    /// model have the grace period to finish.
    pub async fn change(
        mut self,
        recruits: Recruits,
        context: (&Config, &Catalog),
        grace: Duration,
    ) -> Self {
        let began = Instant::now();
        let all = self.models.clone().into_iter();
        let (kept, mut leaving): (Vec<_>, Vec<_>) =
            all.partition(|model| self.is_wanted(model, context.0));
        // An adapter leaves before its model.
        leaving.sort_by_key(|(_, model)| model.parent().is_none());
        self.models = kept;
        let state = self.state.clone();
        let change = async |devices: &Devices, mut models: Vec<(String, DeviceModel)>| {
            for (name, model) in &leaving {
                match devices.remove(model).await {
                    Ok(()) => info!("unloaded {name}"),
                    Err(failure) => error!("{failure}"),
                }
            }
            for (name, located) in recruits {
                models.extend(load(devices, name, located, &state).await);
            }
            add_adapters(devices, &mut models).await;
            models
        };
        if !self.leave_out(&leaving, context, grace).await {
            let left = grace.saturating_sub(began.elapsed());
            return self.restart(change, context, left).await;
        }
        let kept = std::mem::take(&mut self.models);
        self.models = change(&self.devices, kept).await;
        self.offer(context, grace).await
    }

    /// Offers these models no more, and waits until their jobs have ended. False where that takes a new start of the
    /// worker, or longer than jobs have.
    async fn leave_out(
        &self,
        leaving: &[(String, DeviceModel)],
        (_, catalog): (&Config, &Catalog),
        grace: Duration,
    ) -> bool {
        if leaving.is_empty() {
            return true;
        }
        let others = (catalog, &self.upstreams);
        let stock = stock(&self.devices, &self.models, others).await;
        match self.worker.offer(stock).await {
            Ok(true) => {}
            Ok(false) => return false,
            Err(failure) => {
                error!("{failure}");
                return false;
            }
        }
        // A job that a coordinator sends before its update is refused and goes to another worker.
        let _ = timeout(RETURN_TIME, self.worker.until_all_up_to_date()).await;
        let idle = async {
            for (_, model) in leaving {
                self.devices.until_idle(model.name()).await;
            }
        };
        timeout(grace, idle).await.is_ok()
    }

    /// Serves further models. Jobs continue, unless the worker has to restart for these models.
    async fn add(
        mut self,
        models: Vec<(String, DeviceModel)>,
        context: (&Config, &Catalog),
        grace: Duration,
    ) -> Self {
        self.models.extend(models);
        self.offer(context, grace).await
    }

    async fn offer(self, (config, catalog): (&Config, &Catalog), grace: Duration) -> Self {
        let others = (catalog, &self.upstreams);
        let stock = stock(&self.devices, &self.models, others).await;
        match self.worker.offer(stock).await {
            Ok(true) => {
                let models = device_models(&self.models);
                self.state.serves(models, &self.devices, &self.worker);
                return self;
            }
            Ok(false) => {}
            Err(failure) => error!("{failure}"),
        }
        let same = async |_: &Devices, models: Vec<(String, DeviceModel)>| models;
        self.restart(same, (config, catalog), grace).await
    }

    /// Ends the worker, changes its models and starts it with them.
    async fn restart(
        self,
        change: impl AsyncFnOnce(&Devices, Vec<(String, DeviceModel)>) -> Vec<(String, DeviceModel)>,
        context: (&Config, &Catalog),
        grace: Duration,
    ) -> Self {
        let Self {
            devices,
            models,
            choices,
            rules,
            upstreams,
            worker,
            posts,
            state,
            tasks,
            whole,
            ..
        } = self;
        info!(
            "changing models: no jobs until it is done, running jobs have {} to finish",
            show_duration(grace)
        );
        if !worker.drain(grace).await {
            warn!("unfinished jobs were handed back");
        }
        tasks.stop(LAST_TASKS).await;
        let models = change(&devices, models).await;
        let owner = (choices, rules, upstreams);
        Self::start_with(owner, devices, models, posts, (state, context.1), &whole).await
    }

    /// The number of devices.
    pub fn devices(&self) -> usize {
        self.devices.count()
    }

    /// Continues without a device whose engine has ended. The other devices load the models that fit.
    pub async fn lose(mut self, at: usize, context: (&Config, &Catalog), grace: Duration) -> Self {
        let gone = self.devices.lose(at).await;
        self.models
            .retain(|(_, model)| !gone.iter().any(|name| name == model.name()));
        self.offer(context, grace).await
    }

    /// Waits until other programs serve other models.
    pub async fn upstreams_changed(&self) {
        // A clone, so that a cancelled wait misses no change: this receiver stays as it is.
        self.upstreams.clone().changed().await;
    }

    /// Offers the current models of upstream programs.
    pub async fn follow_upstreams(mut self, context: (&Config, &Catalog), grace: Duration) -> Self {
        self.upstreams.mark_seen();
        self.offer(context, grace).await
    }

    pub fn change_upstreams(&self, config: &Config) {
        self.upstreams.change(upstream_wishes(config));
    }

    pub fn choices(&self) -> &OwnerChoices {
        &self.choices
    }

    /// The models of the configuration, except for those that failed to load.
    pub fn loaded_of<'c>(&self, config: &'c Config) -> Vec<&'c str> {
        let is_loaded = |name: &&'c String| self.models.iter().any(|(loaded, _)| loaded == *name);
        let wanted = config.models.serve.0.iter().filter(is_loaded);
        wanted.map(String::as_str).collect()
    }

    pub fn into_worker(self) -> (Worker, Tasks) {
        (self.worker, self.tasks)
    }
}

/// Adds new adapters in the folder for offered models; returns those with errors.
async fn add_adapters(
    devices: &Devices,
    models: &mut Vec<(String, DeviceModel)>,
) -> Vec<(String, DaemonError)> {
    let NewAdapters { offered, refused } = devices.offer_adapters().await;
    let offered = offered.into_iter();
    models.extend(offered.map(|model| (model.name().to_owned(), model)));
    refused
}

/// Loads a model; None, and a line in the log, where that fails.
async fn load(
    devices: &Devices,
    name: String,
    located: Located,
    state: &WorkerState,
) -> Option<(String, DeviceModel)> {
    match devices.load_new(&name, located).await {
        Ok((model, _)) => {
            info!("loaded {name}");
            state.is_not_refused(&name);
            Some((name, model))
        }
        Err(failure) => {
            error!("not serving {name}: {failure}");
            state.is_refused(&name, failure);
            None
        }
    }
}

/// The models and the engine that has them now.
async fn stock(
    devices: &Devices,
    models: &[(String, DeviceModel)],
    (catalog, upstreams): (&Catalog, &UpstreamWatch),
) -> Stock {
    let max_running = devices.first().await.max_running();
    // A model of this worker's own has its name.
    let is_free = |name: &str| !models.iter().any(|(_, model)| model.name() == name);
    let mut upstreams = upstreams.models();
    upstreams.retain(|model| is_free(&model.name));
    Stock {
        fleet: devices.fleet().await,
        served: Served {
            upstreams,
            ..served(models, max_running, devices, catalog)
        },
    }
}

impl OwnerChoices {
    /// Frees the memory of the models that are loaded by now; their next jobs load them again.
    async fn unload(&self, devices: &Devices) {
        for name in &self.unloaded {
            devices.unload(name).await;
        }
    }
}

fn device_models(models: &[(String, DeviceModel)]) -> Vec<DeviceModel> {
    models.iter().map(|(_, model)| model.clone()).collect()
}

fn served(
    models: &[(String, DeviceModel)],
    max_running: usize,
    devices: &Devices,
    catalog: &Catalog,
) -> Served {
    let models = device_models(models);
    let copies = models.iter().map(|model| {
        let name = model.name();
        (name.to_owned(), devices.copies(name))
    });
    let copies = copies.filter(|(_, copies)| *copies > 1).collect();
    let other_names = other_names(&models, catalog);
    Served::new(models, max_running, copies, other_names)
}

/// The AI Horde names of models in the catalog.
fn other_names(models: &[DeviceModel], catalog: &Catalog) -> BTreeMap<String, Vec<String>> {
    let names = |model: &DeviceModel| {
        let entry = catalog.find(model.name()).ok()?;
        Some((model.name().to_owned(), entry.names.legacy.clone()))
    };
    models.iter().filter_map(names).collect()
}
