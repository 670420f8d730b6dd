//! The devices of a worker: the placement of models, and the loss of a device.

use tokio::sync::MutexGuard;
use tracing::{error, info, warn};

use super::engines::Fleet;
use super::fit::{Fit, Room};
use super::locate::Located;
use super::residency::{LoadOutcome, Residency, UnloadOutcome};
use super::shares::Shares;
use super::{DaemonError, Device, DeviceModel, Engines};
use crate::hardware::Machine;
use muster_config::Config;
use muster_engine::runtime::{DeviceChoice, LoadError, gpu_faults};
use muster_process::tasks::Tasks;
use muster_protocol::job::MemoryStay;

/// Each device with its models, the one with the most memory first. Clones share them.
#[derive(Clone)]
pub struct Devices {
    list: Vec<Residency>,
    /// The devices of models, and reasons against better ones.
    placement: String,
    refusals: Vec<String>,
    /// Names in the configuration of models that are loaded on each device.
    replicated: Vec<String>,
}

impl Devices {
    /// Opens the configured devices.
    pub fn start(config: &Config, machine: &Machine) -> Result<Self, DaemonError> {
        let (devices, refusals) = Device::start_all(config, machine)?;
        let rooms: Vec<Room> = devices.iter().map(|device| device.room().clone()).collect();
        for name in &config.models.replicate.0 {
            if !config.models.serve.0.contains(name) {
                warn!("models.replicate names {name}, which models.serve does not");
            }
        }
        Ok(Self {
            placement: placement(&rooms, &refusals, machine, cfg!(feature = "cuda")),
            refusals,
            ..Self::of(devices, config)
        })
    }

    fn of(devices: Vec<Device>, config: &Config) -> Self {
        let keep_alive = config.engine.keep_alive;
        let devices = devices.into_iter();
        Self {
            list: devices
                .map(|device| Residency::new(device, keep_alive))
                .collect(),
            placement: String::new(),
            refusals: Vec::new(),
            replicated: config.models.replicate.0.clone(),
        }
    }

    /// Formatted as one line for the owner.
    pub fn placement(&self) -> &str {
        &self.placement
    }

    /// Better devices that could not be opened, and why.
    pub fn refusals(&self) -> &[String] {
        &self.refusals
    }

    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// The device with the most memory at the start.
    pub async fn first(&self) -> MutexGuard<'_, Device> {
        self.list[0].device().await
    }

    /// The memory for another model on the device with the most free memory.
    pub async fn most_room(&self) -> Room {
        let roomiest = self.by_room().await[0];
        self.list[roomiest].device().await.most_room()
    }

    /// The memory of the device with the most memory without models.
    pub async fn most_whole_room(&self) -> Room {
        let mut most = self.first().await.whole_room().clone();
        for residency in &self.list[1..] {
            let device = residency.device().await;
            if device.whole_room().left_bytes() > most.left_bytes() {
                most = device.whole_room().clone();
            }
        }
        most
    }

    /// The memory shares of the loaded models on each device.
    pub async fn shares(&self) -> Vec<Shares> {
        let mut shares = Vec::new();
        for residency in &self.list {
            shares.push(residency.device().await.shares());
        }
        shares
    }

    /// The engines of all devices, as jobs see them.
    pub async fn fleet(&self) -> Fleet {
        let mut fleet = Vec::new();
        for residency in &self.list {
            let device = residency.device().await;
            fleet.push(Engines {
                residency: Some(residency.clone()),
                ..device.engines().clone()
            });
        }
        Fleet::new(fleet)
    }

    /// Loads a model of the configuration on the device with the most free memory, and reserves memory for the
    /// following ones. A replicated model is loaded on each device where it fits.
    pub async fn load_before(
        &self,
        wanted: &str,
        located: Located,
        following: &[WantedModel<'_>],
    ) -> Result<DeviceModel, DaemonError> {
        self.refuse_twice(&located)?;
        let is_replicated = self.is_replicated(wanted, &located);
        let plan = self.plan((wanted, &located), following).await;
        let loaded = on_devices(is_replicated, &plan.order, async |at| {
            let mut device = self.list[at].device().await;
            device.expect(plan.following(at));
            let loaded = device.load(located.clone(), |_, _| {}).await;
            device.expect([].iter());
            let model = loaded?;
            self.list[at].note(&device, located.clone(), model.clone());
            Ok(model)
        });
        let loaded = loaded.await?.into_iter().map(|(_, model)| model);
        // There is one at least.
        let smallest = loaded.reduce(DeviceModel::with_smaller_context);
        smallest.ok_or_else(|| LoadError::Stopped.into())
    }

    /// The same without loading: the device and the parts of its memory that the model would take.
    pub async fn reserve_before(
        &self,
        wanted: &str,
        located: &Located,
        following: &[WantedModel<'_>],
    ) -> Result<Vec<(String, Fit)>, DaemonError> {
        let is_replicated = self.is_replicated(wanted, located);
        let plan = self.plan((wanted, located), following).await;
        let reserved = on_devices(is_replicated, &plan.order, async |at| {
            let mut device = self.list[at].device().await;
            device.expect(plan.following(at));
            let fitted = device.reserve(located);
            device.expect([].iter());
            fitted
        });
        let reserved = reserved.await?.into_iter();
        let named = reserved.map(|(at, fit)| (self.list[at].place().to_owned(), fit));
        Ok(named.collect())
    }

    /// Loads a new model. If no device has enough memory, models without jobs are unloaded; returns their names.
    pub async fn load_new(
        &self,
        wanted: &str,
        located: Located,
    ) -> Result<(DeviceModel, Vec<String>), DaemonError> {
        self.refuse_twice(&located)?;
        let mut order = self.by_room().await;
        let mut has_room = Vec::new();
        for at in &order {
            let device = self.list[*at].device().await;
            has_room.extend(device.fit(&located).is_ok().then_some(*at));
        }
        order.sort_by_key(|at| !has_room.contains(at));
        let is_replicated = self.is_replicated(wanted, &located);
        let loaded = on_devices(is_replicated, &order, async |at| {
            self.list[at].load_new(located.clone()).await
        });
        let loaded = loaded.await?.into_iter().map(|(_, loaded)| loaded);
        let loaded = loaded.reduce(|(first, mut unloaded), (second, more)| {
            unloaded.extend(more);
            (first.with_smaller_context(second), unloaded)
        });
        loaded.ok_or_else(|| LoadError::Stopped.into())
    }

    /// Offers the new adapters in the folder of the models that are offered, on each device of their model.
    pub async fn offer_adapters(&self) -> NewAdapters {
        let mut new = NewAdapters::default();
        for residency in &self.list {
            for located in residency.new_adapters().await {
                let name = located.name.clone();
                match residency.offer_adapter(located).await {
                    Ok(model) => {
                        info!("serving the adapter {name}; its first job loads it");
                        if !new.offered.iter().any(|known| known.name() == name) {
                            new.offered.push(model);
                        }
                    }
                    Err(failure) => {
                        error!("not serving the adapter {name}: {failure}");
                        new.refused.push((name, failure));
                    }
                }
            }
        }
        new
    }

    /// Whether the folder has adapters that are not offered.
    pub async fn has_new_adapters(&self) -> bool {
        for residency in &self.list {
            if !residency.new_adapters().await.is_empty() {
                return true;
            }
        }
        false
    }

    /// Whether the files of an adapter are still there; true of another model.
    pub fn has_files(&self, name: &str) -> bool {
        let located = self.offering(name).flat_map(Residency::located);
        let mut adapters = located.filter(|(known, it)| known == name && it.base().is_some());
        adapters.all(|(_, located)| located.source.path().exists())
    }

    fn is_replicated(&self, wanted: &str, located: &Located) -> bool {
        let mut names = self.replicated.iter();
        names.any(|name| name == wanted || *name == located.name)
    }

    fn refuse_twice(&self, located: &Located) -> Result<(), DaemonError> {
        let name = located.name.clone();
        match self.copies(&name) {
            0 => Ok(()),
            _ => Err(LoadError::AlreadyLoaded { name }.into()),
        }
    }

    /// The devices of a model and of the following ones: each goes to the device with the most memory left by those
    /// before, or to each device.
    async fn plan<'a>(&self, first: WantedModel<'a>, following: &[WantedModel<'a>]) -> Plan<'a> {
        let mut left = Vec::new();
        for residency in &self.list {
            left.push(residency.device().await.room().left_bytes());
        }
        let mut order = self.by_room().await;
        let mut places = Vec::new();
        for (wanted, located) in [first].iter().chain(following) {
            let chosen: Vec<usize> = match self.is_replicated(wanted, located) {
                true => (0..left.len()).collect(),
                false => vec![most(&left)],
            };
            for at in &chosen {
                let least = self.list[*at].device().await.least_bytes(located);
                left[*at] = left[*at].saturating_sub(least);
            }
            places.push(chosen);
        }
        order.sort_by_key(|at| !places[0].contains(at));
        let following = following.iter().map(|(_, located)| *located);
        Plan {
            order,
            following: following.zip(places.into_iter().skip(1)).collect(),
        }
    }

    /// The devices, sorted by free memory, most first.
    async fn by_room(&self) -> Vec<usize> {
        let mut left = Vec::new();
        for (at, residency) in self.list.iter().enumerate() {
            let bytes = residency.device().await.room().left_bytes();
            left.push((std::cmp::Reverse(bytes), at));
        }
        left.sort();
        left.into_iter().map(|(_, at)| at).collect()
    }

    fn offering(&self, name: &str) -> impl Iterator<Item = &Residency> {
        let list = self.list.iter();
        list.filter(move |residency| residency.offers(name))
    }

    /// The devices that have a model, as people call them.
    pub fn places(&self, name: &str) -> Vec<String> {
        let offering = self.offering(name);
        offering
            .map(|residency| residency.place().to_owned())
            .collect()
    }

    /// Copies of each model of more than one device.
    pub fn copies(&self, name: &str) -> usize {
        self.offering(name).count()
    }

    /// Unloads a model for good.
    pub async fn remove(&self, model: &DeviceModel) -> Result<(), DaemonError> {
        for residency in self.offering(model.name()) {
            residency.remove(model).await?;
        }
        Ok(())
    }

    /// Offers an adapter where its model went.
    async fn offer_again(&self, base: &str, located: Located) -> Result<(), DaemonError> {
        for residency in self.offering(base) {
            residency.offer_adapter(located.clone()).await?;
        }
        match self.copies(base) {
            0 => Err(LoadError::NoBase {
                name: located.name,
                base: base.to_owned(),
            }
            .into()),
            _ => Ok(()),
        }
    }

    /// Waits until a model has no jobs.
    pub async fn until_idle(&self, name: &str) {
        for residency in self.offering(name) {
            residency.until_idle(name).await;
        }
    }

    /// Loads a model that is offered, and begins its keep-alive time anew.
    pub async fn load(&self, name: &str) -> Result<LoadOutcome, DaemonError> {
        let mut outcome = LoadOutcome::NotOffered;
        for residency in self.offering(name) {
            match residency.load(name).await? {
                LoadOutcome::Loaded => outcome = LoadOutcome::Loaded,
                LoadOutcome::AlreadyLoaded if outcome == LoadOutcome::NotOffered => {
                    outcome = LoadOutcome::AlreadyLoaded;
                }
                LoadOutcome::AlreadyLoaded | LoadOutcome::NotOffered => {}
            }
        }
        Ok(outcome)
    }

    /// Frees a model's memory, after its running jobs.
    pub async fn unload(&self, name: &str) -> UnloadOutcome {
        let mut outcome = UnloadOutcome::NotOffered;
        for residency in self.offering(name) {
            outcome = outcome.and(residency.unload(name).await);
        }
        outcome
    }

    /// The longest stay of a model in memory.
    pub fn stay(&self, name: &str) -> MemoryStay {
        let stays = self.offering(name).map(|residency| residency.stay(name));
        stays.max().unwrap_or_default()
    }

    /// Unloads models whose keep-alive time has expired, until the tasks stop.
    pub fn keep(&self, tasks: &Tasks) {
        self.list.iter().for_each(|residency| residency.keep(tasks));
    }

    /// Removes a device whose engine has ended, and loads its models on the others. Returns the names of lost models.
    pub async fn lose(&mut self, at: usize) -> Vec<String> {
        let lost = self.list.remove(at);
        error!("{} is lost; jobs go on elsewhere", lost.place());
        let places: Vec<&str> = self.list.iter().map(Residency::place).collect();
        self.placement = format!(
            "models run on {}; {} was lost",
            places.join(", "),
            lost.place()
        );
        let mut gone = Vec::new();
        let mut located = lost.located();
        located.sort_by_key(|(_, located)| located.base().is_some());
        for (name, located) in located {
            if self.copies(&name) > 0 {
                continue;
            }
            let loaded = match located.base().map(str::to_owned) {
                Some(base) => self.offer_again(&base, located).await,
                None => self.load_new(&name, located).await.map(drop),
            };
            match loaded {
                Ok(()) => info!("{name} is on {} now", self.places(&name).join(", ")),
                Err(failure) => {
                    error!("not serving {name} any more: {failure}");
                    gone.push(name);
                }
            }
        }
        gone
    }
}

/// Adapters that were found in the folder.
#[derive(Debug, Default)]
pub struct NewAdapters {
    pub offered: Vec<DeviceModel>,
    /// Adapters with errors, by name.
    pub refused: Vec<(String, DaemonError)>,
}

/// A name of the configuration, and the files of its model.
pub type WantedModel<'a> = (&'a str, &'a Located);

/// The devices for a model in the order of attempts, and the devices of each model that follows.
struct Plan<'a> {
    order: Vec<usize>,
    following: Vec<(&'a Located, Vec<usize>)>,
}

impl<'a> Plan<'a> {
    fn following(&self, at: usize) -> impl Iterator<Item = &'a Located> {
        let following = self.following.iter();
        following.filter_map(move |(located, places)| places.contains(&at).then_some(*located))
    }
}

/// Tries a model's operation on the devices: until the first success, or on each of them. Fails if none succeeds.
async fn on_devices<T>(
    is_replicated: bool,
    order: &[usize],
    attempt: impl AsyncFn(usize) -> Result<T, DaemonError>,
) -> Result<Vec<(usize, T)>, DaemonError> {
    let mut done = Vec::new();
    let mut refused = None;
    for at in order {
        match attempt(*at).await {
            Ok(result) => {
                done.push((*at, result));
                if !is_replicated {
                    break;
                }
            }
            Err(failure @ DaemonError::DoesNotFit { .. }) => {
                if is_replicated {
                    warn!("not on each device: {failure}");
                }
                refused.get_or_insert(failure);
            }
            Err(failure) if !done.is_empty() => error!("not on each device: {failure}"),
            Err(failure) => return Err(failure),
        }
    }
    match (done.is_empty(), refused) {
        (true, Some(failure)) => Err(failure),
        (true, None) => Err(LoadError::Stopped.into()),
        (false, _) => Ok(done),
    }
}

fn most(left: &[u64]) -> usize {
    // Of equal ones the first.
    let places = left.iter().enumerate().rev();
    places
        .max_by_key(|(_, bytes)| **bytes)
        .map_or(0, |(at, _)| at)
}

/// See [`Devices::placement`].
fn placement(rooms: &[Room], refusals: &[String], machine: &Machine, has_cuda: bool) -> String {
    let gpus = rooms.iter().filter(|room| room.device != DeviceChoice::Cpu);
    let gpus: Vec<&str> = gpus.map(|room| room.place.as_str()).collect();
    if !gpus.is_empty() {
        let refused: String = refusals.iter().map(|why| format!("; {why}")).collect();
        let gpus = format!("{}{refused}", gpus.join(", "));
        let faults = gpu_faults();
        return match faults.as_slice() {
            [] => format!("models run on {gpus}"),
            faults => format!(
                "models run on {gpus}; a test of {} fails: a slower way is taken",
                faults.join(", ")
            ),
        };
    }
    let names: Vec<&str> = machine.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    let why = match (has_cuda, names.as_slice()) {
        (false, []) => "this build has no CUDA".to_owned(),
        (false, names) => format!(
            "this build has no CUDA, and {} stays unused: install a release, or build with `./test dist`",
            names.join(", ")
        ),
        (true, _) if !refusals.is_empty() => refusals.join("; "),
        (true, []) => "no NVIDIA GPU was found".to_owned(),
        (true, _) => {
            let obstacles = machine.gpus.iter().filter_map(|gpu| {
                let obstacle = gpu.obstacle.as_ref()?;
                Some(format!("{} cannot run models: {obstacle}", gpu.name))
            });
            let obstacles: Vec<String> = obstacles.collect();
            match obstacles.is_empty() {
                true => "engine.device is cpu".to_owned(),
                false => obstacles.join("; "),
            }
        }
    };
    format!("models run on the CPU: {why}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::daemon::residency::tests::{config, device, located};

    /// Simulates a machine with two GPUs.
    fn two_devices(folder: &Path, replicated: &[&str]) -> Devices {
        Devices {
            replicated: replicated.iter().map(|name| (*name).to_owned()).collect(),
            ..Devices::of(vec![device(folder), device(folder)], &config(folder))
        }
    }

    async fn names(devices: &Devices) -> Vec<Vec<String>> {
        let names = |residency: &Residency| {
            let located = residency.located();
            located.into_iter().map(|(name, _)| name).collect()
        };
        devices.list.iter().map(names).collect()
    }

    async fn load_all(devices: &Devices, folder: &Path, names: &[&str]) {
        let located: Vec<Located> = names.iter().map(|name| located(folder, name)).collect();
        for (at, one) in located.iter().enumerate() {
            let following = names.iter().copied().zip(&located).skip(at + 1);
            let following: Vec<WantedModel<'_>> = following.collect();
            let loaded = devices.load_before(names[at], one.clone(), &following);
            assert_eq!(loaded.await.unwrap().name(), names[at]);
        }
    }

    #[tokio::test]
    async fn models_spread_over_the_devices() {
        let folder = tempfile::tempdir().unwrap();
        let devices = two_devices(folder.path(), &[]);
        load_all(&devices, folder.path(), &["one", "two", "three", "four"]).await;
        let spread: Vec<usize> = names(&devices).await.iter().map(Vec::len).collect();
        assert_eq!(spread, [2, 2]);
        let again = devices.load_new("one", located(folder.path(), "one")).await;
        let twice = again.map(|(model, _)| model.name().to_owned());
        let twice = twice.unwrap_err().to_string();
        assert!(twice.contains("one is already loaded"), "{twice}");
    }

    #[tokio::test]
    async fn jobs_of_a_replicated_model_go_to_the_device_with_the_fewest() {
        let folder = tempfile::tempdir().unwrap();
        let devices = two_devices(folder.path(), &["one"]);
        load_all(&devices, folder.path(), &["one", "two"]).await;
        assert_eq!(devices.copies("one"), 2);
        assert_eq!(devices.copies("two"), 1);
        let fleet = devices.fleet().await;
        let jobs_of = || {
            let of = |residency: &Residency| residency.load_of("one").unwrap().jobs;
            devices.list.iter().map(of).collect::<Vec<usize>>()
        };
        let (first, second) = (fleet.hold("one").await, fleet.hold("one").await);
        assert_eq!(jobs_of(), [1, 1]);
        drop(first);
        assert_eq!(jobs_of(), [0, 1]);
        let third = fleet.hold("one").await;
        assert_eq!(jobs_of(), [1, 1]);
        drop((second, third));
        // An unloaded copy is not loaded again while another one is in memory.
        devices.list[0].unload("one").await;
        let held = fleet.hold("one").await;
        assert_eq!(jobs_of(), [0, 1]);
        drop(held);
        assert_eq!(devices.load("one").await.unwrap(), LoadOutcome::Loaded);
        assert_eq!(devices.unload("one").await, UnloadOutcome::Unloaded);
        assert_eq!(devices.stay("one"), MemoryStay::Unloaded);
    }

    #[tokio::test]
    async fn room_is_left_on_each_device_for_a_replicated_model_that_follows() {
        let folder = tempfile::tempdir().unwrap();
        let devices = two_devices(folder.path(), &["both"]);
        let (alone, both) = (
            located(folder.path(), "alone"),
            located(folder.path(), "both"),
        );
        let plan = devices.plan(("alone", &alone), &[("both", &both)]).await;
        for at in 0..2 {
            let following: Vec<&str> = plan.following(at).map(|one| one.name.as_str()).collect();
            assert_eq!(following, ["both"], "device {at}");
        }
    }

    #[tokio::test]
    async fn a_lost_device_costs_no_other_and_its_models_move() {
        let folder = tempfile::tempdir().unwrap();
        let mut devices = two_devices(folder.path(), &["both"]);
        load_all(&devices, folder.path(), &["both", "one", "two"]).await;
        let before = names(&devices).await;
        assert_eq!(before.iter().map(Vec::len).sum::<usize>(), 4);
        let fleet = devices.fleet().await;
        let broken = located(folder.path(), "broken");
        let mut device = devices.list[0].device().await;
        let failed = device.load(broken, |_, _| panic!("planted: the device fails"));
        assert!(failed.await.is_err());
        drop(device);
        assert_eq!(fleet.ended().await, 0);
        // Jobs go elsewhere from the first moment.
        let (engines, _hold) = fleet.hold("both").await.unwrap();
        assert!(engines.runtime.info("both").is_ok() && !engines.runtime.has_ended());

        assert_eq!(devices.lose(0).await, Vec::<String>::new());
        assert_eq!(names(&devices).await, [["both", "one", "two"]]);
        let placement = devices.placement();
        assert!(placement.ends_with("this machine was lost"), "{placement}");
        let fleet = devices.fleet().await;
        for name in ["both", "one", "two"] {
            let (engines, _hold) = fleet.hold(name).await.unwrap();
            assert!(engines.runtime.info(name).is_ok(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_model_of_a_lost_device_that_fits_nowhere_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut devices = two_devices(folder.path(), &[]);
        load_all(&devices, folder.path(), &["one", "two"]).await;
        let [first, second] = &names(&devices).await[..] else {
            unreachable!("two devices");
        };
        let busy = devices.fleet().await;
        let _job = busy.hold(&second[0]).await.unwrap();
        devices.list[1].device().await.leave_room_for_one();
        assert_eq!(devices.lose(0).await, *first);
    }
}
