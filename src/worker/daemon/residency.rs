//! Which models of a device are in memory. A model without jobs gives its memory back after its keep-alive time, when its
//! owner unloads it, or when another model needs the memory: the least recently used model first. The worker offers it all
//! the time, and its next job loads it again.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex, MutexGuard as DeviceGuard, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{error, info};

use super::locate::Located;
use super::{DaemonError, Device, DeviceModel};
use muster_config::show_duration;
use muster_process::tasks::Tasks;
use muster_protocol::job::{KeepAlive, MemoryStay};

/// A device and its models. Clones share them.
#[derive(Clone)]
pub struct Residency {
    device: Arc<Mutex<Device>>,
    models: Arc<Residents>,
    /// After so long without a job a model is unloaded; never without.
    keep_alive: Option<Duration>,
}

/// The models that are offered, by name.
#[derive(Default)]
struct Residents {
    list: StdMutex<BTreeMap<String, ResidentModel>>,
    /// Told when a job ends and when a keep-alive time changes.
    changes: watch::Sender<()>,
}

/// A model that is offered.
struct ResidentModel {
    located: Located,
    model: DeviceModel,
    /// The template has a form for calls of tools. Known only while the model is in memory, so it is kept.
    calls_tools: bool,
    is_loaded: bool,
    jobs: usize,
    /// The end of its last job, or the begin of one that runs.
    used: Instant,
    /// The same as people count time.
    used_at: SystemTime,
    /// Of the last request that named one since the model was loaded, else of the configuration.
    keep_alive: Option<Duration>,
    /// Unloads after its running jobs, whatever its keep-alive time.
    is_leaving: bool,
}

/// Keeps a model in memory for a job.
pub struct ResidencyHold {
    models: Arc<Residents>,
    name: String,
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

impl Residency {
    pub fn new(device: Device, keep_alive: Option<Duration>) -> Self {
        Self {
            device: Arc::new(Mutex::new(device)),
            models: Arc::default(),
            keep_alive,
        }
    }

    pub async fn device(&self) -> DeviceGuard<'_, Device> {
        self.device.lock().await
    }

    /// Takes note of a model that was just loaded.
    pub async fn add(&self, located: Located, model: DeviceModel) {
        let device = self.device.lock().await;
        self.note(&device, located, model);
    }

    fn note(&self, device: &Device, located: Located, model: DeviceModel) {
        let resident = ResidentModel {
            calls_tools: device.calls_tools(&model),
            located,
            is_loaded: true,
            jobs: 0,
            used: Instant::now(),
            used_at: SystemTime::now(),
            keep_alive: self.keep_alive,
            is_leaving: false,
            model,
        };
        let name = resident.model.name().to_owned();
        self.lock().insert(name, resident);
        self.models.changes.send_replace(());
    }

    /// Loads a model that is not offered yet. Models without jobs make room for it where that is enough; gives their names.
    pub async fn load_new(
        &self,
        located: Located,
    ) -> Result<(DeviceModel, Vec<String>), DaemonError> {
        let mut device = self.device.lock().await;
        let fits = |device: &Device, without: &[String]| {
            let fitted = device.fit_without(&located, without);
            fitted.map(|_| ())
        };
        let unloaded = self.make_room(&mut device, &located.name, fits).await?;
        let model = device.load(located.clone(), |_, _| {}).await?;
        self.note(&device, located, model.clone());
        Ok((model, unloaded))
    }

    /// Unloads a model for good.
    pub async fn remove(&self, model: &DeviceModel) -> Result<(), DaemonError> {
        let mut device = self.device.lock().await;
        let resident = self.lock().remove(model.name());
        match resident.is_none_or(|resident| resident.is_loaded) {
            true => device.unload(model).await,
            false => {
                device.forget(model.name());
                Ok(())
            }
        }
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

    /// Sees to it that a model is in memory and stays there as long as the hold is kept. None for a model that is not
    /// one of these.
    pub async fn hold(&self, name: &str) -> Result<Option<ResidencyHold>, DaemonError> {
        let is_loaded = match self.lock().get_mut(name) {
            Some(resident) => {
                resident.jobs += 1;
                resident.touch();
                resident.is_loaded
            }
            None => return Ok(None),
        };
        let hold = ResidencyHold {
            models: Arc::clone(&self.models),
            name: name.to_owned(),
        };
        if !is_loaded {
            self.wake(name).await?;
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
            return UnloadOutcome::Unloaded;
        }
        match self.lock().get(name) {
            None => UnloadOutcome::NotOffered,
            Some(resident) if resident.is_loaded => UnloadOutcome::AfterJobs(resident.jobs),
            Some(_) => UnloadOutcome::Unloaded,
        }
    }

    /// From now on, until a request names another time or the model leaves memory.
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

    /// None for a model that is not one of these.
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
            let fits = |device: &Device, without: &[String]| device.fits_again(name, without);
            match self.make_room(&mut device, name, fits).await {
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
            let took = show_duration(Duration::from_millis(began.elapsed().as_millis() as u64));
            info!(model.name = %name, "loaded {name} again in {took}");
            return Ok(());
        }
    }

    /// Unloads models without jobs, least recently used first, until the newcomer fits. Unloads none where all of them
    /// together are not enough.
    async fn make_room(
        &self,
        device: &mut Device,
        newcomer: &str,
        fits: impl Fn(&Device, &[String]) -> Result<(), DaemonError>,
    ) -> Result<Vec<String>, DaemonError> {
        let mut unloaded = Vec::new();
        if fits(device, &[]).is_ok() {
            return Ok(unloaded);
        }
        let idle = self.idle();
        fits(device, &idle)?;
        for name in idle {
            if fits(device, &[]).is_ok() {
                break;
            }
            let why = format!("to make room for {newcomer}");
            if self.put_away(device, &name, &why).await {
                unloaded.push(name);
            }
        }
        fits(device, &[]).map(|()| unloaded)
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
        let mut others = models.iter().filter(|(other, _)| *other != name);
        others.any(|(_, other)| other.is_loaded && other.jobs > 0)
    }

    /// Unloads a model that is in memory and has no jobs; false for any other.
    async fn put_away(&self, device: &mut Device, name: &str, why: &str) -> bool {
        let model = match self.lock().get_mut(name) {
            Some(resident) if resident.is_idle() => {
                // A job that comes from here on waits for the device.
                resident.is_loaded = false;
                resident.is_leaving = false;
                resident.keep_alive = self.keep_alive;
                resident.model.clone()
            }
            _ => return false,
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

    /// Unloads models whose keep-alive time is over, until the tasks stop.
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
            // A job may have come and gone meanwhile.
            let is_still_due = match self.lock().get(&name) {
                Some(resident) => resident.due().is_some() && is_due(resident),
                None => false,
            };
            if is_still_due {
                self.put_away(&mut device, &name, &why).await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ResidentModel>> {
        self.models.lock()
    }
}

impl Residents {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ResidentModel>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Some(resident) = self.models.lock().get_mut(&self.name) {
            resident.jobs -= 1;
            resident.touch();
        }
        self.models.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::catalog::Catalog;
    use crate::daemon::locate::{Shelves, locate};
    use crate::hardware;
    use crate::hub::{Hub, HubSettings};
    use muster_config::{Config, Sources};

    /// The text model of the program, served under this name.
    fn located(folder: &Path, name: &str) -> Located {
        located_as(folder, "demo-text", name)
    }

    fn located_as(folder: &Path, model: &str, name: &str) -> Located {
        let endpoint = "http://127.0.0.1:9".parse().unwrap();
        let shelves = Shelves {
            catalog: &Catalog::builtin().unwrap(),
            hub: &Hub::new(HubSettings::new(endpoint, folder.join("hub"), folder)),
            unpacked: folder,
            preferred: None,
        };
        Located {
            name: name.to_owned(),
            ..locate(model, shelves).unwrap()
        }
    }

    fn device(folder: &Path) -> Device {
        let (file, place) = (folder.join("worker.toml"), folder.display());
        let text = format!(
            "[engine]\nkv_memory = \"16MiB\"\ndevice = \"cpu\"\n\
             [worker]\ndata_dir = \"{place}\"\n[hub]\ncache_dir = \"{place}/hub\"\n"
        );
        fs::write(&file, text).unwrap();
        let sources = Sources {
            file: Some(file),
            ..Sources::default()
        };
        let config = Config::load(&sources).unwrap().config;
        Device::start(&config, &hardware::probe()).unwrap()
    }

    /// With the model `one` in memory, and room for no second one beside it.
    async fn with_room_for_one(folder: &Path) -> Residency {
        let mut device = device(folder);
        let one = located(folder, "one");
        let model = device.load(one.clone(), |_, _| {}).await.unwrap();
        device.leave_room_for_one();
        let residency = Residency::new(device, None);
        residency.add(one, model).await;
        residency
    }

    fn in_memory(residency: &Residency) -> Vec<String> {
        let models = residency.lock();
        let loaded = models.iter().filter(|(_, resident)| resident.is_loaded);
        loaded.map(|(name, _)| name.clone()).collect()
    }

    #[tokio::test]
    async fn weights_that_two_models_hold_together_take_memory_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut device = device(folder.path());
        let model = |name: &str| located_as(folder.path(), "demo-image", name);
        let shared = crate::daemon::shared(&model("one")).unwrap();
        let shared: u64 = shared.iter().map(|weights| weights.bytes).sum();
        assert!(shared > 1 << 20, "text encoder and autoencoder: {shared}");
        let mut left = vec![device.room().left_bytes()];
        let mut loaded = Vec::new();
        for name in ["one", "two"] {
            loaded.push(device.load(model(name), |_, _| {}).await.unwrap());
            left.push(device.room().left_bytes());
        }
        let (first, second) = (left[0] - left[1], left[1] - left[2]);
        assert_eq!(first - second, shared);
        // The second one holds them alone now.
        device.unload(&loaded[0]).await.unwrap();
        assert_eq!(left[0] - device.room().left_bytes(), first);
        device.unload(&loaded[1]).await.unwrap();
        assert_eq!(left[0], device.room().left_bytes());
    }

    #[tokio::test]
    async fn models_without_jobs_make_room_and_come_back_for_their_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let residency = with_room_for_one(folder.path()).await;
        let (_, unloaded) = residency
            .load_new(located(folder.path(), "two"))
            .await
            .unwrap();
        assert_eq!(unloaded, ["one"]);
        assert_eq!(in_memory(&residency), ["two"]);

        let job = residency.hold("one").await.unwrap();
        assert!(job.is_some());
        assert_eq!(in_memory(&residency), ["one"]);
        // A running job keeps its memory: the next model waits for its end, and a new one is refused.
        let waiting = timeout(Duration::from_millis(100), residency.hold("two"));
        assert!(waiting.await.is_err());
        let refused = residency.load_new(located(folder.path(), "three")).await;
        assert!(matches!(refused, Err(DaemonError::DoesNotFit { .. })));
        assert_eq!(in_memory(&residency), ["one"]);
        let (second, ()) = tokio::join!(residency.hold("two"), async {
            sleep(Duration::from_millis(50)).await;
            drop(job);
        });
        assert!(second.unwrap().is_some());
        assert_eq!(in_memory(&residency), ["two"]);
    }

    #[tokio::test]
    async fn an_unloaded_model_leaves_after_its_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let residency = with_room_for_one(folder.path()).await;
        let tasks = Tasks::default();
        residency.keep(&tasks);
        assert_eq!(residency.unload("two").await, UnloadOutcome::NotOffered);
        assert_eq!(residency.unload("one").await, UnloadOutcome::Unloaded);
        assert_eq!(residency.unload("one").await, UnloadOutcome::NotLoaded);
        assert_eq!(
            residency.load("two").await.unwrap(),
            LoadOutcome::NotOffered
        );
        assert_eq!(residency.load("one").await.unwrap(), LoadOutcome::Loaded);
        let again = residency.load("one").await.unwrap();
        assert_eq!(again, LoadOutcome::AlreadyLoaded);

        let job = residency.hold("one").await.unwrap();
        assert_eq!(residency.unload("one").await, UnloadOutcome::AfterJobs(1));
        assert_eq!(in_memory(&residency), ["one"]);
        drop(job);
        let gone = async {
            while !in_memory(&residency).is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), gone).await.unwrap();
        assert_eq!(residency.calls_tools("one"), Some(true));

        // A time that a request names holds until another one names its own.
        let job = residency.hold("one").await.unwrap();
        residency.set_keep_alive("one", KeepAlive::For(Duration::from_millis(20)));
        assert!(matches!(residency.stay("one"), MemoryStay::Until(_)));
        drop(job);
        let gone = async {
            while residency.stay("one") != MemoryStay::Unloaded {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(60), gone).await.unwrap();
        residency.load("one").await.unwrap();
        assert_eq!(residency.stay("one"), MemoryStay::Always);
        tasks.stop(Duration::from_secs(1)).await;
    }
}
