//! Which models of a device are in memory. A model without jobs gives its memory back after a while, and is loaded again
//! when its next job comes; its worker offers it all the time, and its part of the memory stays reserved for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard as DeviceGuard};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{error, info};

use super::locate::Located;
use super::{DaemonError, Device, DeviceModel};
use muster_config::show_duration;
use muster_process::tasks::Tasks;

/// Looks for models that rest, in each time after which they are unloaded.
const LOOKS: u32 = 4;
const RAREST_LOOK: Duration = Duration::from_secs(5);
const MOST_FREQUENT_LOOK: Duration = Duration::from_millis(50);

/// A device and its models. Clones share them.
#[derive(Clone)]
pub struct Residency {
    device: Arc<Mutex<Device>>,
    models: Arc<StdMutex<BTreeMap<String, ResidentModel>>>,
    /// After so long without a job a model is unloaded; never without.
    keep_alive: Option<Duration>,
}

/// A model that is offered.
struct ResidentModel {
    located: Located,
    model: DeviceModel,
    is_loaded: bool,
    jobs: usize,
    /// The end of its last job.
    used: Instant,
}

/// Keeps a model in memory for a job.
pub struct ResidencyHold {
    models: Arc<StdMutex<BTreeMap<String, ResidentModel>>>,
    name: String,
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
    pub fn add(&self, located: Located, model: DeviceModel) {
        let resident = ResidentModel {
            located,
            is_loaded: true,
            jobs: 0,
            used: Instant::now(),
            model,
        };
        let name = resident.model.name().to_owned();
        self.lock().insert(name, resident);
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

    /// Sees to it that a model is in memory and stays there as long as the hold is kept. None for a model that is not
    /// one of these.
    pub async fn hold(&self, name: &str) -> Result<Option<ResidencyHold>, DaemonError> {
        let is_loaded = match self.lock().get_mut(name) {
            Some(resident) => {
                resident.jobs += 1;
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

    /// Loads every model that is not in memory.
    pub async fn wake_all(&self) {
        let names: Vec<String> = self.lock().keys().cloned().collect();
        for name in names {
            if let Err(failure) = self.wake(&name).await {
                error!("loading {name} again failed: {failure}");
            }
        }
    }

    async fn wake(&self, name: &str) -> Result<(), DaemonError> {
        let mut device = self.device.lock().await;
        let located = match self.lock().get(name) {
            Some(resident) if !resident.is_loaded => resident.located.clone(),
            // Another job was faster.
            _ => return Ok(()),
        };
        let began = Instant::now();
        let model = device.load_again(located).await?;
        if let Some(resident) = self.lock().get_mut(name) {
            resident.model = model;
            resident.is_loaded = true;
        }
        let took = show_duration(Duration::from_millis(began.elapsed().as_millis() as u64));
        info!(model.name = %name, "loaded {name} again for a job in {took}");
        Ok(())
    }

    /// Unloads models that rest, until the tasks stop.
    pub fn keep(&self, tasks: &Tasks) {
        let Some(keep_alive) = self.keep_alive else {
            return;
        };
        let residency = self.clone();
        let stopping = tasks.stopping();
        tasks.start(async move {
            let pause = (keep_alive / LOOKS).clamp(MOST_FREQUENT_LOOK, RAREST_LOOK);
            let mut looks = interval(pause);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stopping.cancelled() => return,
                    _ = looks.tick() => residency.unload_resting(keep_alive).await,
                }
            }
        });
    }

    async fn unload_resting(&self, keep_alive: Duration) {
        let resting = |resident: &ResidentModel| {
            resident.is_loaded && resident.jobs == 0 && resident.used.elapsed() >= keep_alive
        };
        let names: Vec<String> = {
            let models = self.lock();
            let found = models.iter().filter(|(_, resident)| resting(resident));
            found.map(|(name, _)| name.clone()).collect()
        };
        for name in names {
            let mut device = self.device.lock().await;
            let model = match self.lock().get_mut(&name) {
                Some(resident) if resting(resident) => {
                    // A job that comes from here on waits for the device.
                    resident.is_loaded = false;
                    resident.model.clone()
                }
                _ => continue,
            };
            match device.unload_for_now(&model).await {
                Ok(()) => info!(
                    model.name = %name,
                    "unloaded {name} after {} without a job; the next job loads it again",
                    show_duration(keep_alive)
                ),
                Err(failure) => error!("{failure}"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ResidentModel>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ResidencyHold {
    fn drop(&mut self) {
        let mut models = self.models.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(resident) = models.get_mut(&self.name) {
            resident.jobs -= 1;
            resident.used = Instant::now();
        }
    }
}
