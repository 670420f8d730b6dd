//! A device with its engine and its free memory.

mod caches;

use std::path::PathBuf;
use std::sync::Arc;

use super::adapters::adapters_of;
use super::fit::{Fit, Needs, Room, Wishes, fit, max_running, prefill_chunk, rooms};
use super::locate::{LocateError, Located, LocatedSource};
use super::media::MediaSource;
use super::safety::CheckerFiles;
use super::shares::Shares;
use tracing::warn;

use super::engines::DeviceHealth;
use super::{AdapterFolders, DaemonError, DeviceModel, Engines};
use crate::hardware::Machine;
pub use caches::Leaving;
use caches::{HeldModel, SPARE_PAGES};
use muster_config::{Config, KvCacheSetting, SpeculationSetting};
use muster_engine::runtime::grammar::ProverProgram;
use muster_engine::runtime::maker::{Maker, MakerLimits, PipelineLoader};
use muster_engine::runtime::text::Isolation;
use muster_engine::runtime::{
    CacheRoom, DeviceChoice, EngineLimits, Footprint, KvDtype, LoadError, ModelInfo, ModelSource,
    Runtime, SharedWeights, Speculation, adapter_bytes, gpu_faults, keep_gpu_trials,
};
use muster_process::child::THIS_PROGRAM;

pub struct Device {
    engines: Engines,
    /// Without any model.
    whole: Room,
    /// Free memory besides the models in memory.
    room: Room,
    held: Vec<HeldModel>,
    wishes: Wishes,
    /// The least needs of the models that are loaded next.
    next: NextModels,
    limits: EngineLimits,
    kv: Option<KvDtype>,
    /// The folder of adapters of text models.
    adapters: Option<PathBuf>,
}

/// Models to come.
#[derive(Clone, Copy, Default)]
struct NextModels {
    /// Weights and work, and the keys and values of a short job each.
    bytes: u64,
    /// The number of models with keys and values.
    sharers: usize,
}

impl Device {
    /// Starts the engine of the first configured device that can be opened.
    pub fn start(config: &Config, machine: &Machine) -> Result<Self, DaemonError> {
        let (mut devices, _) = Self::start_up_to(1, config, machine)?;
        Ok(devices.swap_remove(0))
    }

    /// Starts an engine for each configured device that can be opened: GPUs, the one with the most free memory first,
    /// or the CPU. Also returns the reasons against other devices.
    pub fn start_all(
        config: &Config,
        machine: &Machine,
    ) -> Result<(Vec<Self>, Vec<String>), DaemonError> {
        Self::start_up_to(usize::MAX, config, machine)
    }

    fn start_up_to(
        most: usize,
        config: &Config,
        machine: &Machine,
    ) -> Result<(Vec<Self>, Vec<String>), DaemonError> {
        let rooms = rooms(
            machine,
            config.engine.device,
            &config.owner,
            cfg!(feature = "cuda"),
        )?;
        let driver = machine.driver.as_ref().map(|driver| &*driver.version);
        keep_gpu_trials(&config.worker.data_dir, driver.unwrap_or("unknown"));
        let checker = CheckerFiles::of(config).map_err(LocateError::from)?;
        let safety = checker.open()?;
        let (mut refusals, mut last) = (Vec::new(), None);
        let mut devices: Vec<Self> = Vec::new();
        for room in rooms {
            // The CPU is used only without a usable GPU.
            let is_spare = room.device == DeviceChoice::Cpu && !devices.is_empty();
            if devices.len() == most || is_spare {
                break;
            }
            let place = room.place.clone();
            match Self::open(checker.leave(room), config) {
                Ok(mut device) => {
                    device.engines.safety = safety.clone();
                    devices.push(device);
                }
                Err(error) => {
                    refusals.push(format!("{place} cannot be used: {error}"));
                    last = Some(error);
                }
            }
        }
        for refusal in &refusals {
            warn!("{refusal}");
        }
        for fault in gpu_faults() {
            warn!(
                "a GPU fails the test of {fault}: a slower way is taken; report it with `worker probe`"
            );
        }
        match (devices.is_empty(), last) {
            (false, _) => Ok((devices, refusals)),
            // There is a device at least.
            (true, last) => Err(last.unwrap_or(LoadError::Stopped.into())),
        }
    }

    /// A GPU's free memory is counted once its context holds its part.
    fn open(mut room: Room, config: &Config) -> Result<Self, DaemonError> {
        let runtime = Runtime::start(room.device, limits(config, room.device))?;
        if let Some(free_bytes) = room.device.free_bytes() {
            room.free_bytes = room.free_bytes.min(free_bytes);
        }
        let limits = limits(config, room.device);
        runtime.prove_grammars_with(ProverProgram {
            program: PathBuf::from(THIS_PROGRAM),
            arguments: vec![TEXT_PROCESS.to_owned(), PROVES_GRAMMARS.to_owned()],
        });
        Ok(Self {
            engines: Engines {
                health: DeviceHealth::of(room.device),
                folders: AdapterFolders {
                    loras: config.engine.loras.clone(),
                    embeddings: config.engine.embeddings.clone(),
                },
                ..runtime.into()
            },
            wishes: Wishes::of(&config.engine, room.device),
            whole: room.clone(),
            room,
            held: Vec::new(),
            next: NextModels::default(),
            limits,
            kv: kv_dtype(config),
            adapters: config.engine.adapters.clone(),
        })
    }

    /// Loads a model if it fits into the free memory; refuses after reading only its header.
    pub async fn load(
        &mut self,
        located: Located,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<DeviceModel, DaemonError> {
        let fitted = self.fit_beside_next(&located)?;
        let held = self.hold(&located, fitted)?;
        self.room = self.room_for(&held.shared, Leaving::default());
        let loaded = self.load_fitted(located, fitted, progress).await;
        if loaded.is_ok() {
            self.held.push(held);
        }
        self.room = self.room_for(&[], Leaving::default());
        loaded
    }

    /// The adapters in the folder for a model.
    pub fn adapters_of(&self, base: &Located) -> Vec<Located> {
        let folder = self.adapters.as_deref();
        folder.map_or_else(Vec::new, |folder| adapters_of(folder, base))
    }

    /// Takes an adapter of a text model in without loading it, if its headers fit the model and its memory the device.
    pub fn offer_adapter(
        &mut self,
        located: &Located,
        base: &ModelInfo,
    ) -> Result<DeviceModel, DaemonError> {
        let needs = self.needs(located, &self.whole)?;
        let fitted = fit(needs, self.wishes, &self.whole);
        let fitted = fitted.map_err(|refusal| DaemonError::DoesNotFit {
            model: located.name.clone(),
            refusal: Box::new(refusal),
        })?;
        self.held.push(HeldModel {
            base: Some(base.name.clone()),
            is_loaded: false,
            ..self.hold(located, fitted)?
        });
        Ok(DeviceModel::Text(Arc::new(ModelInfo {
            name: located.name.clone(),
            parent: Some(base.name.clone()),
            weight_bytes: needs.weight_bytes,
            cache_bytes: 0,
            ..base.clone()
        })))
    }

    /// Keeps a model's part of the memory without loading it.
    pub fn reserve(&mut self, located: &Located) -> Result<Fit, DaemonError> {
        let fitted = self.fit_beside_next(located)?;
        self.held.push(self.hold(located, fitted)?);
        self.room = self.room_for(&[], Leaving::default());
        Ok(fitted)
    }

    /// Loads a model that [`unload_for_now`](Self::unload_for_now) has unloaded, with the context it had and the KV cache
    /// that fits.
    pub async fn load_again(&mut self, located: Located) -> Result<DeviceModel, DaemonError> {
        let name = located.name.clone();
        let Some(held) = self.held(&name) else {
            return self.load(located, |_, _| {}).await;
        };
        let most = held.most();
        // The models that are not in memory keep their parts, unless others use them.
        let others = self.held.iter().filter(|held| held.name != name);
        let others = others.map(|held| (held.fit, held.shared.as_slice()));
        let all = self.whole.beside(others, &held.shared);
        let room = match all.left_bytes() >= most.total_bytes {
            true => all,
            false => self.room_for(&held.shared, Leaving::default()),
        };
        let fitted = held.within(room.left_bytes());
        let before = std::mem::replace(&mut self.room, room);
        let loaded = self.load_fitted(located, fitted, |_, _| {}).await;
        self.room = before;
        if loaded.is_ok() {
            self.take_note(&name, fitted);
            self.mark(&name, true);
        }
        loaded
    }

    fn mark(&mut self, name: &str, is_loaded: bool) {
        for held in self.held.iter_mut().filter(|held| held.name == name) {
            held.is_loaded = is_loaded;
        }
        let is_its = |held: &&mut HeldModel| held.base.as_deref() == Some(name);
        for adapter in self.held.iter_mut().filter(is_its) {
            adapter.is_loaded &= is_loaded;
        }
        self.room = self.room_for(&[], Leaving::default());
    }

    async fn load_fitted(
        &mut self,
        located: Located,
        fitted: Fit,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<DeviceModel, DaemonError> {
        let name = located.name;
        let model = match located.source {
            LocatedSource::Text(mut source) => {
                source.isolation = (!located.is_vouched).then(|| isolation(&name));
                source.kv = self.kv;
                source.context = Some(fitted.context);
                source.cache = CacheRoom::Tokens(fitted.kv_tokens);
                let info = self.engines.runtime.load(&name, *source, progress).await?;
                DeviceModel::Text(info)
            }
            LocatedSource::Media(mut source) => {
                if !located.is_vouched {
                    source.isolate(isolation(&name));
                }
                self.load_media(name, source, &fitted).await?
            }
            LocatedSource::Adapter(source) => {
                let runtime = &self.engines.runtime;
                let loaded = runtime.load_adapter(&name, &source.base, source.path);
                DeviceModel::Text(loaded.await?)
            }
        };
        Ok(model)
    }

    /// Gives a model's memory back. Jobs that still run on it fail.
    pub async fn unload(&mut self, model: &DeviceModel) -> Result<(), DaemonError> {
        self.unload_for_now(model).await?;
        self.forget(model.name());
        Ok(())
    }

    /// The same for a model that will be loaded again.
    pub async fn unload_for_now(&mut self, model: &DeviceModel) -> Result<(), DaemonError> {
        match (model, &self.engines.maker) {
            (DeviceModel::Media(media), Some(maker)) => maker.unload(&media.name).await,
            (model, _) => self.engines.runtime.unload(model.name()).await,
        }
        .map_err(|failure| DaemonError::Unload {
            model: model.name().to_owned(),
            why: failure.to_string(),
        })?;
        self.room.device.give_back()?;
        self.mark(model.name(), false);
        Ok(())
    }

    /// Frees the memory reserved for an unloaded model.
    pub fn forget(&mut self, model: &str) {
        self.held.retain(|held| held.name != model);
        self.engines.drawing.remove(model);
        self.room = self.room_for(&[], Leaving::default());
    }

    /// The free memory once these have left, for a model with such weights.
    fn room_for(&self, shared: &[SharedWeights], leaving: Leaving<'_>) -> Room {
        let loaded = self.held.iter().filter(|held| held.is_loaded);
        let loaded = loaded.filter(|held| !leaving.models.contains(&held.name));
        let fits = loaded.map(|held| match leaving.spare_pages {
            true => (held.least(), held.shared.as_slice()),
            false => (held.fit, held.shared.as_slice()),
        });
        self.whole.beside(fits, shared)
    }

    /// Whether the template of a model in memory has a form for calls of tools.
    pub fn calls_tools(&self, model: &DeviceModel) -> bool {
        match model {
            DeviceModel::Text(info) => self.engines.calls_tools(&info.name),
            DeviceModel::Media(_) => false,
        }
    }

    async fn load_media(
        &mut self,
        name: String,
        mut source: MediaSource,
        fitted: &Fit,
    ) -> Result<DeviceModel, DaemonError> {
        if self.engines.runtime.info(&name).is_ok() {
            return Err(LoadError::AlreadyLoaded { name }.into());
        }
        let lowered_bytes = source.needs()?.lowered_bytes(self.room.device);
        let held_bytes = fitted.weight_bytes.saturating_add(lowered_bytes);
        let left_bytes = self.room.left_bytes().saturating_sub(held_bytes);
        let model = source.describe(&name, left_bytes)?;
        let (device, drawing) = (self.room.device, source.drawing());
        let load: PipelineLoader = Box::new(move || source.load(device));
        self.maker()?.load(&name, load).await?;
        if let Some(defaults) = drawing {
            self.engines.drawing.insert(name, defaults);
        }
        Ok(DeviceModel::Media(model))
    }

    /// Reserves memory for models that are loaded after the next one. Without any, that one may use all memory.
    pub fn expect<'a>(&mut self, models: impl Iterator<Item = &'a Located>) {
        self.next = NextModels::default();
        for located in models {
            // Errors in the files of these models are reported when they are loaded.
            let Ok(needs) = self.needs(located, &self.whole) else {
                continue;
            };
            let least = Fit::least_bytes(&needs, &self.wishes, self.whole.device);
            self.next.bytes = self.next.bytes.saturating_add(least);
            self.next.sharers += usize::from(needs.kv_bytes_per_token > 0);
        }
    }

    /// Fits a model besides the models that are loaded next, or else besides the models in memory.
    fn fit_beside_next(&self, located: &Located) -> Result<Fit, DaemonError> {
        let all = self.room_for(&shared(located)?, Leaving::default());
        let needs = self.needs(located, &all)?;
        let adapters = self.adapters_of(located);
        let adapters = adapters.iter().map(|adapter| self.least_bytes(adapter));
        let next = adapters.fold(self.next.bytes, u64::saturating_add);
        let beside = Room {
            free_bytes: all.free_bytes.saturating_sub(next),
            ..all
        };
        let wishes = Wishes {
            sharers: self.next.sharers + 1,
            ..self.wishes
        };
        match fit(needs, wishes, &beside) {
            Ok(fitted) => Ok(fitted),
            Err(_) => self.fit(located),
        }
    }

    /// Whether a model fits into the free memory, by its header.
    pub fn fit(&self, located: &Located) -> Result<Fit, DaemonError> {
        self.fit_after(located, Leaving::default())
    }

    /// The same once these have left.
    pub fn fit_after(&self, located: &Located, leaving: Leaving<'_>) -> Result<Fit, DaemonError> {
        let room = &self.room_for(&shared(located)?, leaving);
        let needs = self.needs(located, room)?;
        let fitted = fit(needs, self.wishes, room);
        fitted.map_err(|refusal| DaemonError::DoesNotFit {
            model: located.name.clone(),
            refusal: Box::new(refusal),
        })
    }

    fn needs(&self, located: &Located, room: &Room) -> Result<Needs, DaemonError> {
        Ok(match &located.source {
            LocatedSource::Text(source) => {
                let source = ModelSource {
                    kv: self.kv,
                    ..(**source).clone()
                };
                needs(&source, room, &self.limits)?
            }
            LocatedSource::Media(source) => source.needs()?,
            LocatedSource::Adapter(source) => {
                let bytes = adapter_bytes(&source.model.path, &source.path)?;
                Needs::beside(bytes, 0)
            }
        })
    }

    /// Jobs of one model that run at the same time.
    pub fn max_running(&self) -> usize {
        self.limits.max_running
    }

    /// The least memory of a model, by its header; 0 where its files have errors, which its load reports.
    pub fn least_bytes(&self, located: &Located) -> u64 {
        let needs = self.needs(located, &self.whole);
        needs.map_or(0, |needs| {
            Fit::least_bytes(&needs, &self.wishes, self.whole.device)
        })
    }

    /// The memory shares of the loaded models.
    pub fn shares(&self) -> Shares {
        let loaded = self.held.iter().filter(|held| held.is_loaded);
        let loaded = loaded.map(|held| (&held.fit, held.shared.as_slice()));
        Shares::of(&self.whole, loaded)
    }

    /// The device's free memory.
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// The same with the memory that KV caches would give to another model.
    pub fn most_room(&self) -> Room {
        self.room_for(&[], SPARE_PAGES)
    }

    /// The device's memory without any model.
    pub fn whole_room(&self) -> &Room {
        &self.whole
    }

    /// The thread of models that make media, started the first time.
    pub fn maker(&mut self) -> Result<Maker, DaemonError> {
        if let Some(maker) = &self.engines.maker {
            return Ok(maker.clone());
        }
        let maker = Maker::start(MakerLimits::default())?;
        Ok(self.engines.maker.insert(maker).clone())
    }

    #[cfg(test)]
    pub fn leave_room_for_one(&mut self) {
        let most = self.held.iter().map(|held| held.fit.total_bytes).max();
        self.whole.free_bytes = self.whole.kept_bytes + most.unwrap_or(0) * 3 / 2;
        self.room = self.room_for(&[], Leaving::default());
    }

    #[cfg(test)]
    pub fn leave_no_room(&mut self) {
        self.take_room(self.room.left_bytes());
    }

    #[cfg(test)]
    pub fn give_room(&mut self, bytes: u64) {
        self.whole.free_bytes += bytes;
        self.room = self.room_for(&[], Leaving::default());
    }

    #[cfg(test)]
    pub fn take_room(&mut self, bytes: u64) {
        self.whole.free_bytes -= bytes;
        self.room = self.room_for(&[], Leaving::default());
    }

    pub fn engines(&self) -> &Engines {
        &self.engines
    }

    pub fn into_engines(self) -> Engines {
        self.engines
    }
}

/// Weights of a model that others in memory may hold, too.
pub fn shared(located: &Located) -> Result<Vec<SharedWeights>, DaemonError> {
    Ok(match &located.source {
        LocatedSource::Text(_) | LocatedSource::Adapter(_) => Vec::new(),
        LocatedSource::Media(source) => source.shared()?,
    })
}

/// The text process of a model, which is a child of this program.
fn isolation(model: &str) -> Isolation {
    Isolation {
        program: PathBuf::from(THIS_PROGRAM),
        arguments: vec![TEXT_PROCESS.to_owned()],
        model: model.to_owned(),
        limits: Default::default(),
    }
}

/// The command that serves as a text process.
pub const TEXT_PROCESS: &str = "text-process";

/// The argument with which it proves grammars instead.
const PROVES_GRAMMARS: &str = "--grammars";

/// How much an engine takes on.
pub fn limits(config: &Config, device: DeviceChoice) -> EngineLimits {
    EngineLimits {
        max_running: max_running(&config.engine, device),
        max_waiting: config.engine.max_waiting,
        prefill_chunk: prefill_chunk(&config.engine, device),
        speculation: match config.engine.speculation {
            SpeculationSetting::Auto => Speculation::Auto,
            SpeculationSetting::Off => Speculation::Off,
        },
    }
}

/// The configured storage type of the KV cache.
pub fn kv_dtype(config: &Config) -> Option<KvDtype> {
    match config.engine.kv_cache {
        KvCacheSetting::Auto => None,
        KvCacheSetting::F16 => Some(KvDtype::F16),
        KvCacheSetting::Q8_0 => Some(KvDtype::Q8_0),
    }
}

/// A model's memory on a device, from its files' headers.
pub fn needs(
    source: &ModelSource,
    room: &Room,
    limits: &EngineLimits,
) -> Result<Needs, DaemonError> {
    Ok(Footprint::measure(source, room.device, limits)?.into())
}

impl From<Footprint> for Needs {
    fn from(footprint: Footprint) -> Self {
        Self {
            weight_bytes: footprint.weight_bytes,
            kv_bytes_per_token: footprint.kv_bytes_per_token,
            workspace_bytes: footprint.workspace_bytes,
            scratch_bytes_per_token: footprint.scratch_bytes_per_token,
            context: footprint.context,
            runs_one_job: footprint.runs_one_job,
        }
    }
}
