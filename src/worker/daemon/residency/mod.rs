//! Which models of a device are in memory. A model without jobs gives its memory back after its keep-alive time, when its
//! owner unloads it, or when another model needs the memory: the least recently used model first. The worker offers it all
//! the time, and its next job loads it again.

use parking_lot::Mutex as SyncMutex;
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex, MutexGuard as DeviceGuard, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{error, info};

use super::locate::Located;
use super::{DaemonError, Device, DeviceModel, Leaving};
use muster_config::show_duration;
use muster_engine::runtime::{LoadError, ModelInfo, Purpose};
use muster_process::tasks::Tasks;
use muster_protocol::job::{KeepAlive, MemoryStay};

/// A device and its models. Clones share them.
#[derive(Clone)]
pub struct Residency {
    device: Arc<Mutex<Device>>,
    /// The device as people call it.
    place: Arc<str>,
    models: Arc<Residents>,
    /// After so long without a job a model is unloaded; never without.
    keep_alive: Option<Duration>,
}

/// The models that are offered, by name.
#[derive(Default)]
struct Residents {
    list: SyncMutex<BTreeMap<String, ResidentModel>>,
    /// Signals the end of a job and changes of keep-alive times.
    changes: watch::Sender<()>,
}

/// A model that is offered.
struct ResidentModel {
    located: Located,
    model: DeviceModel,
    /// Whether the template supports tool calls. Kept because it is known only while the model is in memory.
    calls_tools: bool,
    is_loaded: bool,
    jobs: usize,
    /// The end of its last job, or the begin of one that runs.
    used: Instant,
    /// The same as people count time.
    used_at: SystemTime,
    /// From the last request with a keep-alive time since the model was loaded, else from the configuration.
    keep_alive: Option<Duration>,
    /// Unloads after its running jobs, whatever its keep-alive time.
    is_leaving: bool,
}

/// Keeps a model in memory for a job, and that of an adapter with it.
pub struct ResidencyHold {
    models: Arc<Residents>,
    names: Vec<String>,
}

/// The use of a model on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLoad {
    pub is_loaded: bool,
    pub jobs: usize,
}

/// The outcome of an owner's `load` for a model that is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadOutcome {
    NotOffered,
    AlreadyLoaded,
    Loaded,
}

/// The outcome of an owner's `unload`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnloadOutcome {
    NotOffered,
    NotLoaded,
    Unloaded,
    /// Once these jobs have ended.
    AfterJobs(usize),
}

impl UnloadOutcome {
    /// Combines the outcomes of a model on two devices.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::AfterJobs(some), Self::AfterJobs(more)) => Self::AfterJobs(some + more),
            (Self::AfterJobs(jobs), _) | (_, Self::AfterJobs(jobs)) => Self::AfterJobs(jobs),
            (Self::Unloaded, _) | (_, Self::Unloaded) => Self::Unloaded,
            (Self::NotLoaded, _) | (_, Self::NotLoaded) => Self::NotLoaded,
            (Self::NotOffered, Self::NotOffered) => Self::NotOffered,
        }
    }
}

impl Residency {
    pub fn new(device: Device, keep_alive: Option<Duration>) -> Self {
        Self {
            place: device.room().place.as_str().into(),
            device: Arc::new(Mutex::new(device)),
            models: Arc::default(),
            keep_alive,
        }
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    /// The models that are offered, in memory or not.
    pub fn located(&self) -> Vec<(String, Located)> {
        let models = self.lock();
        let located = models.iter();
        let located = located.map(|(name, resident)| (name.clone(), resident.located.clone()));
        located.collect()
    }

    pub fn offers(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// Whether a model is in memory, and its number of jobs. `None` for an unknown model.
    pub fn load_of(&self, name: &str) -> Option<ModelLoad> {
        let models = self.lock();
        let resident = models.get(name)?;
        Some(ModelLoad {
            is_loaded: resident.is_loaded,
            jobs: resident.jobs,
        })
    }

    pub async fn device(&self) -> DeviceGuard<'_, Device> {
        self.device.lock().await
    }

    /// Takes note of a model that was just loaded.
    pub fn note(&self, device: &Device, located: Located, model: DeviceModel) {
        self.insert(ResidentModel {
            calls_tools: device.calls_tools(&model),
            ..self.resident(located, model)
        });
    }

    fn resident(&self, located: Located, model: DeviceModel) -> ResidentModel {
        ResidentModel {
            calls_tools: false,
            located,
            is_loaded: true,
            jobs: 0,
            used: Instant::now(),
            used_at: SystemTime::now(),
            keep_alive: self.keep_alive,
            is_leaving: false,
            model,
        }
    }

    fn insert(&self, resident: ResidentModel) {
        let name = resident.model.name().to_owned();
        self.lock().insert(name, resident);
        self.models.changes.send_replace(());
    }

    /// New adapters in the folder of offered models.
    pub async fn new_adapters(&self) -> Vec<Located> {
        let device = self.device.lock().await;
        let bases: Vec<Located> = {
            let models = self.lock();
            let bases = models.values().filter(|resident| resident.writes_text());
            bases.map(|resident| resident.located.clone()).collect()
        };
        let adapters = bases.iter().flat_map(|base| device.adapters_of(base));
        adapters.filter(|it| !self.offers(&it.name)).collect()
    }

    /// Offers an adapter of a model that is offered. The first job loads it.
    pub async fn offer_adapter(&self, located: Located) -> Result<DeviceModel, DaemonError> {
        let mut device = self.device.lock().await;
        let base = {
            let models = self.lock();
            let base = located.base().and_then(|base| models.get(base));
            base.map(|base| (base.model.clone(), base.calls_tools))
        };
        let Some((DeviceModel::Text(info), calls_tools)) = base else {
            let base = located.base().unwrap_or_default().to_owned();
            let name = located.name;
            return Err(LoadError::NoBase { name, base }.into());
        };
        let model = device.offer_adapter(&located, &info)?;
        self.insert(ResidentModel {
            calls_tools,
            is_loaded: false,
            ..self.resident(located, model.clone())
        });
        Ok(model)
    }

    /// Loads a new model. Models without jobs are unloaded if that frees enough memory; returns their names.
    pub async fn load_new(
        &self,
        located: Located,
    ) -> Result<(DeviceModel, Vec<String>), DaemonError> {
        let mut device = self.device.lock().await;
        let fits = |device: &Device, leaving: Leaving<'_>| {
            let fitted = device.fit_after(&located, leaving);
            fitted.map(|_| ())
        };
        let missing_bytes = device.missing_bytes(&located)?;
        let newcomer = (located.name.as_str(), missing_bytes);
        let unloaded = self.make_room(&mut device, newcomer, fits).await?;
        let model = device.load(located.clone(), |_, _| {}).await?;
        self.note(&device, located, model.clone());
        self.grow_caches(&mut device).await;
        Ok((model, unloaded))
    }

    /// Unloads a model for good.
    pub async fn remove(&self, model: &DeviceModel) -> Result<(), DaemonError> {
        let mut device = self.device.lock().await;
        let resident = self.lock().remove(model.name());
        match resident.is_none_or(|resident| resident.is_loaded) {
            true => device.unload(model).await?,
            false => device.forget(model.name()),
        }
        self.grow_caches(&mut device).await;
        Ok(())
    }

    /// Waits until a model has no jobs.
    pub async fn until_idle(&self, name: &str) {
        let mut changes = self.models.changes.subscribe();
        let has_jobs = || {
            self.lock()
                .get(name)
                .is_some_and(|resident| resident.jobs > 0)
        };
        while has_jobs() {
            // The sender is a part of this value.
            let _ = changes.changed().await;
        }
    }

    /// Loads a model if necessary and keeps it in memory while the hold exists. `None` for an unknown model.
    pub async fn hold(&self, name: &str) -> Result<Option<ResidencyHold>, DaemonError> {
        let base = self.lock().get(name).and_then(ResidentModel::base);
        let mut hold = ResidencyHold {
            models: Arc::clone(&self.models),
            names: Vec::new(),
        };
        // An adapter is nothing without its model.
        for name in base.into_iter().chain([name.to_owned()]) {
            let is_loaded = match self.lock().get_mut(&name) {
                Some(resident) => {
                    resident.jobs += 1;
                    resident.touch();
                    resident.is_loaded
                }
                None => return Ok(None),
            };
            hold.names.push(name.clone());
            if !is_loaded {
                self.wake(&name).await?;
            }
        }
        Ok(Some(hold))
    }

    /// Loads a model that is offered, and begins its keep-alive time anew.
    pub async fn load(&self, name: &str) -> Result<LoadOutcome, DaemonError> {
        let was_loaded = match self.lock().get_mut(name) {
            Some(resident) => {
                resident.is_leaving = false;
                resident.is_loaded
            }
            None => return Ok(LoadOutcome::NotOffered),
        };
        // The end of the hold is the last use.
        let _hold = self.hold(name).await?;
        Ok(match was_loaded {
            true => LoadOutcome::AlreadyLoaded,
            false => LoadOutcome::Loaded,
        })
    }

    /// Frees a model's memory, after its running jobs.
    pub async fn unload(&self, name: &str) -> UnloadOutcome {
        match self.lock().get_mut(name) {
            None => return UnloadOutcome::NotOffered,
            Some(resident) if !resident.is_loaded => return UnloadOutcome::NotLoaded,
            Some(resident) => resident.is_leaving = true,
        }
        let mut device = self.device.lock().await;
        if self.put_away(&mut device, name, "on request").await {
            self.grow_caches(&mut device).await;
            return UnloadOutcome::Unloaded;
        }
        match self.lock().get(name) {
            None => UnloadOutcome::NotOffered,
            Some(resident) if resident.is_loaded => UnloadOutcome::AfterJobs(resident.jobs),
            Some(_) => UnloadOutcome::Unloaded,
        }
    }

    /// Applies until a request sets another time or the model is unloaded.
    pub fn set_keep_alive(&self, name: &str, keep_alive: KeepAlive) {
        if let Some(resident) = self.lock().get_mut(name) {
            resident.keep_alive = keep_alive.duration();
        }
        self.models.changes.send_replace(());
    }

    pub fn stay(&self, name: &str) -> MemoryStay {
        let models = self.lock();
        models
            .get(name)
            .map_or(MemoryStay::Always, ResidentModel::stay)
    }

    /// `None` for an unknown model.
    pub fn calls_tools(&self, name: &str) -> Option<bool> {
        self.lock().get(name).map(|resident| resident.calls_tools)
    }

    async fn wake(&self, name: &str) -> Result<(), DaemonError> {
        let mut changes = self.models.changes.subscribe();
        loop {
            changes.mark_unchanged();
            let mut device = self.device.lock().await;
            let located = match self.lock().get(name) {
                Some(resident) if !resident.is_loaded => resident.located.clone(),
                // Another job was faster.
                _ => return Ok(()),
            };
            let others_run = self.others_run(name);
            let began = Instant::now();
            let fits = |device: &Device, leaving: Leaving<'_>| device.fits_again(name, leaving);
            let newcomer = (name, device.missing_again_bytes(name));
            match self.make_room(&mut device, newcomer, fits).await {
                Ok(_) => {}
                Err(DaemonError::DoesNotFit { .. }) if others_run => {
                    drop(device);
                    // The sender is a part of this value.
                    let _ = changes.changed().await;
                    continue;
                }
                Err(failure) => return Err(failure),
            }
            let model = device.load_again(located).await?;
            if let Some(resident) = self.lock().get_mut(name) {
                resident.model = model;
                resident.is_loaded = true;
                resident.touch();
            }
            self.grow_caches(&mut device).await;
            let took = show_duration(Duration::from_millis(began.elapsed().as_millis() as u64));
            info!(model.name = %name, "loaded {name} again in {took}");
            return Ok(());
        }
    }

    /// Makes room for a newcomer that lacks so many bytes: KV caches shrink, then models without jobs are unloaded, least
    /// recently used first, until the newcomer fits. Changes nothing where all that is not enough.
    async fn make_room(
        &self,
        device: &mut Device,
        (newcomer, missing_bytes): (&str, u64),
        fits: impl Fn(&Device, Leaving<'_>) -> Result<(), DaemonError>,
    ) -> Result<Vec<String>, DaemonError> {
        let mut unloaded = Vec::new();
        let idle = self.idle();
        let all = Leaving {
            models: &idle,
            spare_pages: true,
        };
        fits(device, all)?;
        let lost = device.shrink_caches(missing_bytes, newcomer).await;
        self.lose(&lost);
        for name in idle {
            if fits(device, Leaving::default()).is_ok() {
                break;
            }
            let why = format!("to make room for {newcomer}");
            if self.put_away(device, &name, &why).await {
                unloaded.push(name);
            }
        }
        fits(device, Leaving::default()).map(|()| unloaded)
    }

    /// Takes note of models that the device had to unload. Their next jobs load them again.
    fn lose(&self, names: &[String]) {
        let mut models = self.lock();
        for name in names {
            if let Some(resident) = models.get_mut(name) {
                resident.put_away(self.keep_alive);
            }
        }
    }

    /// Gives the memory of models that have left to the KV caches of the others.
    async fn grow_caches(&self, device: &mut Device) {
        let lost = device.grow_caches().await;
        self.lose(&lost);
    }

    /// Models in memory without jobs, least recently used first.
    fn idle(&self) -> Vec<String> {
        let models = self.lock();
        let idle = models.iter().filter(|(_, resident)| resident.is_idle());
        let mut idle: Vec<(Instant, String)> = idle
            .map(|(name, resident)| (resident.used, name.clone()))
            .collect();
        idle.sort();
        idle.into_iter().map(|(_, name)| name).collect()
    }

    fn others_run(&self, name: &str) -> bool {
        let models = self.lock();
        // The model of an adapter stays while the adapter is wanted.
        let base = models.get(name).and_then(ResidentModel::base);
        let others = models.iter().filter(|(other, _)| *other != name);
        let mut others = others.filter(|(other, _)| Some(*other) != base.as_ref());
        others.any(|(_, other)| other.is_loaded && other.jobs > 0)
    }

    /// Unloads a model that is in memory and has no jobs; false for any other.
    async fn put_away(&self, device: &mut Device, name: &str, why: &str) -> bool {
        let model = {
            let mut models = self.lock();
            let model = match models.get_mut(name) {
                Some(resident) if resident.is_idle() => {
                    resident.put_away(self.keep_alive);
                    resident.model.clone()
                }
                _ => return false,
            };
            // A model without jobs has no adapter with jobs.
            let adapters = models.values_mut();
            let adapters = adapters.filter(|it| it.located.base() == Some(name));
            adapters.for_each(|adapter| adapter.put_away(self.keep_alive));
            model
        };
        match device.unload_for_now(&model).await {
            Ok(()) => info!(
                model.name = %name,
                "unloaded {name} {why}; the next job loads it again"
            ),
            Err(failure) => error!("{failure}"),
        }
        true
    }

    /// Unloads models whose keep-alive time has expired, until the tasks stop.
    pub fn keep(&self, tasks: &Tasks) {
        let residency = self.clone();
        let stopping = tasks.stopping();
        tasks.start(async move {
            let mut changes = residency.models.changes.subscribe();
            loop {
                changes.mark_unchanged();
                let due = residency.next_due();
                let rest = async {
                    match due {
                        Some(due) => sleep_until(due).await,
                        None => pending().await,
                    }
                };
                tokio::select! {
                    () = stopping.cancelled() => return,
                    _ = changes.changed() => {}
                    () = rest => residency.unload_due().await,
                }
            }
        });
    }

    fn next_due(&self) -> Option<Instant> {
        self.lock().values().filter_map(ResidentModel::due).min()
    }

    async fn unload_due(&self) {
        let is_due = |resident: &ResidentModel| resident.due() <= Some(Instant::now());
        let due: Vec<(String, String)> = {
            let models = self.lock();
            let due = models
                .iter()
                .filter(|(_, resident)| resident.due().is_some() && is_due(resident));
            due.map(|(name, resident)| (name.clone(), resident.reason()))
                .collect()
        };
        for (name, why) in due {
            let mut device = self.device.lock().await;
            // A job may have started and ended meanwhile.
            let is_still_due = match self.lock().get(&name) {
                Some(resident) => resident.due().is_some() && is_due(resident),
                None => false,
            };
            if is_still_due && self.put_away(&mut device, &name, &why).await {
                self.grow_caches(&mut device).await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ResidentModel>> {
        self.models.lock()
    }
}

impl Residents {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ResidentModel>> {
        self.list.lock()
    }
}

impl ResidentModel {
    fn touch(&mut self) {
        self.used = Instant::now();
        self.used_at = SystemTime::now();
    }

    fn stay(&self) -> MemoryStay {
        if !self.is_loaded {
            return MemoryStay::Unloaded;
        }
        let end = match (self.is_leaving, self.keep_alive) {
            (true, _) => Some(self.used_at),
            (false, Some(keep_alive)) => self.used_at.checked_add(keep_alive),
            (false, None) => None,
        };
        let end = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok());
        let end = end.and_then(|end| i64::try_from(end.as_secs()).ok());
        end.map_or(MemoryStay::Always, MemoryStay::Until)
    }

    /// The name of the model of an adapter.
    fn base(&self) -> Option<String> {
        self.located.base().map(str::to_owned)
    }

    fn writes_text(&self) -> bool {
        let writes = |info: &ModelInfo| info.purpose == Purpose::Generate && info.parent.is_none();
        matches!(&self.model, DeviceModel::Text(info) if writes(info))
    }

    /// A job that comes from here on waits for the device.
    fn put_away(&mut self, keep_alive: Option<Duration>) {
        self.is_loaded = false;
        self.is_leaving = false;
        self.keep_alive = keep_alive;
    }

    fn is_idle(&self) -> bool {
        self.is_loaded && self.jobs == 0
    }

    /// When its memory is to be freed.
    fn due(&self) -> Option<Instant> {
        match (self.is_idle(), self.is_leaving) {
            (false, _) => None,
            (true, true) => Some(self.used),
            (true, false) => self.used.checked_add(self.keep_alive?),
        }
    }

    fn reason(&self) -> String {
        match (self.is_leaving, self.keep_alive) {
            (false, Some(keep_alive)) => {
                format!("after {} without a job", show_duration(keep_alive))
            }
            _ => "on request".to_owned(),
        }
    }
}

impl Drop for ResidencyHold {
    fn drop(&mut self) {
        for name in &self.names {
            if let Some(resident) = self.models.lock().get_mut(name) {
                resident.jobs -= 1;
                resident.touch();
            }
        }
        self.models.changes.send_replace(());
    }
}

#[cfg(test)]
pub mod tests;
