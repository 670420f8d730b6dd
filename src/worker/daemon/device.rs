//! A device with its engine and what room it has left.

use std::path::PathBuf;

use super::fit::{Fit, Needs, Refusal, Room, Wishes, fit, room};
use super::locate::{Located, LocatedSource};
use super::{AdapterFolders, DaemonError, DeviceModel, Engines, MediaModel};
use crate::hardware::Machine;
use muster_config::{Config, KvCacheSetting, SpeculationSetting};
use muster_engine::runtime::grammar::ProverProgram;
use muster_engine::runtime::hearing::HearingSource;
use muster_engine::runtime::image::{self, ImageFootprint, ImageSource};
use muster_engine::runtime::maker::{Maker, MakerLimits, MediaKind, Pipeline, PipelineLoader};
use muster_engine::runtime::music::{self, MusicFootprint, MusicSource};
use muster_engine::runtime::speech::SpeechSource;
use muster_engine::runtime::text::Isolation;
use muster_engine::runtime::video::{self, VideoFootprint, VideoSource};
use muster_engine::runtime::{
    CacheRoom, EngineLimits, Footprint, KvDtype, LoadError, ModelSource, Runtime, Speculation,
};
use muster_protocol::link::ModelLimits;

/// Characters of a text to speak.
pub const SPOKEN_CHARACTERS: u32 = 16_384;

pub struct Device {
    engines: Engines,
    /// Without any model.
    whole: Room,
    /// Beside the models in memory.
    room: Room,
    held: Vec<HeldModel>,
    wishes: Wishes,
    limits: EngineLimits,
    kv: Option<KvDtype>,
}

/// A model's part of the memory, which others may use while the model is not in memory.
struct HeldModel {
    name: String,
    fit: Fit,
    is_loaded: bool,
}

impl Device {
    /// Starts the engine of the device that the configuration wants.
    pub fn start(config: &Config, machine: &Machine) -> Result<Self, DaemonError> {
        let room = room(
            machine,
            config.engine.device,
            &config.owner,
            cfg!(feature = "cuda"),
        )?;
        let limits = limits(config);
        let runtime = Runtime::start(room.device, limits)?;
        runtime.prove_grammars_with(ProverProgram {
            program: PathBuf::from(THIS_PROGRAM),
            arguments: vec![TEXT_PROCESS.to_owned(), PROVES_GRAMMARS.to_owned()],
        });
        Ok(Self {
            engines: Engines {
                folders: AdapterFolders {
                    loras: config.engine.loras.clone(),
                    embeddings: config.engine.embeddings.clone(),
                },
                ..runtime.into()
            },
            whole: room.clone(),
            room,
            held: Vec::new(),
            wishes: Wishes::of(&config.engine),
            limits,
            kv: kv_dtype(config),
        })
    }

    /// Loads a model if it fits into what is left; refuses before anything is read but its header.
    pub async fn load(
        &mut self,
        located: Located,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<DeviceModel, DaemonError> {
        let fitted = self.fit(&located)?;
        let model = self.load_fitted(located, fitted, progress).await?;
        self.held.push(HeldModel {
            name: model.name().to_owned(),
            fit: fitted,
            is_loaded: true,
        });
        self.room = self.room_without(&[]);
        Ok(model)
    }

    /// Loads a model that [`unload_for_now`](Self::unload_for_now) has unloaded, with the context it had.
    pub async fn load_again(&mut self, located: Located) -> Result<DeviceModel, DaemonError> {
        let name = located.name.clone();
        let Some(fitted) = self.held_fit(&name) else {
            return self.load(located, |_, _| {}).await;
        };
        // The models that are not in memory keep their parts, unless others use them.
        let others = self.held.iter().filter(|held| held.name != name);
        let all = self.beside(others.map(|held| &held.fit));
        let room = match all.left_bytes() >= fitted.total_bytes {
            true => all,
            false => self.room.clone(),
        };
        let before = std::mem::replace(&mut self.room, room);
        let loaded = self.load_fitted(located, fitted, |_, _| {}).await;
        self.room = before;
        if loaded.is_ok() {
            self.mark(&name, true);
        }
        loaded
    }

    /// Whether a model that was unloaded for now fits into this room, with the context it had.
    pub fn fits_again(&self, name: &str, room: &Room) -> Result<(), DaemonError> {
        let Some(fit) = self.held_fit(name) else {
            return Ok(());
        };
        if fit.total_bytes <= room.left_bytes() {
            return Ok(());
        }
        let held_bytes = fit.weight_bytes.saturating_add(fit.kv_bytes);
        let workspace_bytes = fit.total_bytes.saturating_sub(held_bytes);
        let needs = Needs {
            weight_bytes: fit.weight_bytes,
            workspace_bytes,
            context: fit.context,
            ..Needs::default()
        };
        Err(DaemonError::DoesNotFit {
            model: name.to_owned(),
            refusal: Box::new(Refusal {
                needs,
                tokens: fit.kv_tokens,
                kv_bytes: fit.kv_bytes,
                workspace_bytes,
                room: room.clone(),
            }),
        })
    }

    fn held_fit(&self, name: &str) -> Option<Fit> {
        let mut held = self.held.iter();
        held.find(|held| held.name == name).map(|held| held.fit)
    }

    fn mark(&mut self, name: &str, is_loaded: bool) {
        for held in self.held.iter_mut().filter(|held| held.name == name) {
            held.is_loaded = is_loaded;
        }
        self.room = self.room_without(&[]);
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
            LocatedSource::Image(source) => self.load_image(name, source, &fitted).await?,
            LocatedSource::Hearing(source) => self.load_hearing(name, source).await?,
            LocatedSource::Video(source) => self.load_video(name, source, &fitted).await?,
            LocatedSource::Speech(source) => self.load_speech(name, source).await?,
            LocatedSource::Music(source) => self.load_music(name, source, &fitted).await?,
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
        self.mark(model.name(), false);
        Ok(())
    }

    /// Gives the room of a model that is not in memory to others.
    pub fn forget(&mut self, model: &str) {
        self.held.retain(|held| held.name != model);
        self.engines.drawing.remove(model);
        self.room = self.room_without(&[]);
    }

    /// The room beside the models in memory, without these.
    pub fn room_without(&self, names: &[String]) -> Room {
        let loaded = self.held.iter().filter(|held| held.is_loaded);
        let loaded = loaded.filter(|held| !names.contains(&held.name));
        self.beside(loaded.map(|held| &held.fit))
    }

    fn beside<'a>(&self, fits: impl Iterator<Item = &'a Fit>) -> Room {
        fits.fold(self.whole.clone(), |room, fit| room.after(fit))
    }

    /// Whether the template of a model in memory has a form for calls of tools.
    pub fn calls_tools(&self, model: &DeviceModel) -> bool {
        match model {
            DeviceModel::Text(info) => self.engines.calls_tools(&info.name),
            DeviceModel::Media(_) => false,
        }
    }

    async fn load_image(
        &mut self,
        name: String,
        mut source: ImageSource,
        fitted: &Fit,
    ) -> Result<DeviceModel, DaemonError> {
        let footprint = source.footprint()?;
        let [width, height] = footprint.size;
        let device = self.room.device;
        let left_bytes = self.room.left_bytes();
        source.memory_bytes = Some(left_bytes.saturating_sub(fitted.weight_bytes));
        let model = MediaModel {
            size: Some((width, height)),
            limits: ModelLimits {
                pixels: Some(most_pixels(&footprint, source.memory_bytes)),
                steps: Some(image::MOST_STEPS),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, MediaKind::Image)
        };
        let (name, defaults) = (model.name.clone(), source.defaults);
        let load = move || Ok(Box::new(source.load(device)?) as Box<dyn Pipeline>);
        let loaded = self.load_media(model, Box::new(load)).await?;
        self.engines.drawing.insert(name, defaults);
        Ok(loaded)
    }

    async fn load_hearing(
        &mut self,
        name: String,
        source: HearingSource,
    ) -> Result<DeviceModel, DaemonError> {
        let device = self.room.device;
        let model = MediaModel::new(name, MediaKind::Transcript);
        let load = move || Ok(Box::new(source.load(device)?) as Box<dyn Pipeline>);
        self.load_media(model, Box::new(load)).await
    }

    async fn load_video(
        &mut self,
        name: String,
        mut source: VideoSource,
        fitted: &Fit,
    ) -> Result<DeviceModel, DaemonError> {
        let footprint = source.footprint()?;
        let device = self.room.device;
        let left_bytes = self.room.left_bytes();
        source.memory_bytes = Some(left_bytes.saturating_sub(fitted.weight_bytes));
        let model = MediaModel {
            size: Some(footprint.size.into()),
            clip: Some((footprint.rate.round() as u32, footprint.frames)),
            limits: ModelLimits {
                pixels: Some(video::MOST_PIXELS),
                frames: Some(video::MOST_FRAMES),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, MediaKind::Video)
        };
        let load = move || Ok(Box::new(source.load(device)?) as Box<dyn Pipeline>);
        self.load_media(model, Box::new(load)).await
    }

    async fn load_speech(
        &mut self,
        name: String,
        source: SpeechSource,
    ) -> Result<DeviceModel, DaemonError> {
        let device = self.room.device;
        let model = MediaModel {
            voices: source.voices()?,
            limits: ModelLimits {
                characters: Some(SPOKEN_CHARACTERS),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, MediaKind::Sound)
        };
        let load = move || Ok(Box::new(source.load(device)?) as Box<dyn Pipeline>);
        self.load_media(model, Box::new(load)).await
    }

    async fn load_music(
        &mut self,
        name: String,
        mut source: MusicSource,
        fitted: &Fit,
    ) -> Result<DeviceModel, DaemonError> {
        let device = self.room.device;
        let left_bytes = self.room.left_bytes();
        source.memory_bytes = Some(left_bytes.saturating_sub(fitted.weight_bytes));
        let model = MediaModel {
            limits: ModelLimits {
                seconds: Some(music::MOST_SECONDS),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, MediaKind::Sound)
        };
        let load = move || Ok(Box::new(source.load(device)?) as Box<dyn Pipeline>);
        self.load_media(model, Box::new(load)).await
    }

    async fn load_media(
        &mut self,
        model: MediaModel,
        loader: PipelineLoader,
    ) -> Result<DeviceModel, DaemonError> {
        if self.engines.runtime.info(&model.name).is_ok() {
            let name = model.name;
            return Err(LoadError::AlreadyLoaded { name }.into());
        }
        self.maker()?.load(&model.name, loader).await?;
        Ok(DeviceModel::Media(model))
    }

    /// Whether a model fits into what is left, by its header.
    pub fn fit(&self, located: &Located) -> Result<Fit, DaemonError> {
        self.fit_into(located, &self.room)
    }

    /// The same for another room of this device.
    pub fn fit_into(&self, located: &Located, room: &Room) -> Result<Fit, DaemonError> {
        let needs = match &located.source {
            LocatedSource::Text(source) => {
                let source = ModelSource {
                    kv: self.kv,
                    ..(**source).clone()
                };
                needs(&source, room, &self.limits)?
            }
            LocatedSource::Image(source) => source.footprint()?.into(),
            LocatedSource::Hearing(source) => hearing_needs(source)?,
            LocatedSource::Video(source) => source.footprint()?.into(),
            LocatedSource::Speech(source) => speech_needs(source)?,
            LocatedSource::Music(source) => source.footprint()?.into(),
        };
        let fitted = fit(needs, self.wishes, room);
        fitted.map_err(|refusal| DaemonError::DoesNotFit {
            model: located.name.clone(),
            refusal: Box::new(refusal),
        })
    }

    /// What it has left.
    pub fn room(&self) -> &Room {
        &self.room
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
        self.room = self.room_without(&[]);
    }

    pub fn engines(&self) -> &Engines {
        &self.engines
    }

    pub fn into_engines(self) -> Engines {
        self.engines
    }
}

/// Beside the weights, for one window of the largest network.
const HEARING_BYTES: u64 = 256 << 20;

/// Beside the weights, for the longest sentence.
const SPEECH_BYTES: u64 = 512 << 20;

/// This program once more, as the text process of a model.
fn isolation(model: &str) -> Isolation {
    Isolation {
        program: PathBuf::from(THIS_PROGRAM),
        arguments: vec![TEXT_PROCESS.to_owned()],
        model: model.to_owned(),
        limits: Default::default(),
    }
}

/// The running program, also after an update has replaced its file: both processes speak the same frames.
pub const THIS_PROGRAM: &str = "/proc/self/exe";
/// The command that serves as a text process.
pub const TEXT_PROCESS: &str = "text-process";

/// The argument with which it proves grammars instead.
const PROVES_GRAMMARS: &str = "--grammars";

/// How much an engine takes on.
pub fn limits(config: &Config) -> EngineLimits {
    EngineLimits {
        max_running: config.engine.max_running,
        max_waiting: config.engine.max_waiting,
        prefill_chunk: config.engine.prefill_chunk,
        speculation: match config.engine.speculation {
            SpeculationSetting::Auto => Speculation::Auto,
            SpeculationSetting::Off => Speculation::Off,
        },
    }
}

/// How keys and values are stored, where the configuration says so.
pub fn kv_dtype(config: &Config) -> Option<KvDtype> {
    match config.engine.kv_cache {
        KvCacheSetting::Auto => None,
        KvCacheSetting::F16 => Some(KvDtype::F16),
        KvCacheSetting::Q8_0 => Some(KvDtype::Q8_0),
    }
}

/// What a model that hears takes on a device.
pub fn hearing_needs(source: &HearingSource) -> Result<Needs, DaemonError> {
    Ok(Needs {
        weight_bytes: source.weight_bytes()?,
        workspace_bytes: HEARING_BYTES,
        ..Needs::default()
    })
}

/// What a model that speaks takes on a device.
pub fn speech_needs(source: &SpeechSource) -> Result<Needs, DaemonError> {
    Ok(Needs {
        weight_bytes: source.weight_bytes()?,
        workspace_bytes: SPEECH_BYTES,
        ..Needs::default()
    })
}

/// What a model takes on a device, from its files' headers.
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
        }
    }
}

impl From<VideoFootprint> for Needs {
    fn from(footprint: VideoFootprint) -> Self {
        Self {
            weight_bytes: footprint.weight_bytes,
            workspace_bytes: footprint.video_bytes,
            ..Self::default()
        }
    }
}

impl From<MusicFootprint> for Needs {
    fn from(footprint: MusicFootprint) -> Self {
        Self {
            weight_bytes: footprint.weight_bytes,
            workspace_bytes: footprint.song_bytes,
            ..Self::default()
        }
    }
}

/// The largest image that fits beside the weights: its memory grows with its pixels. Where nothing is guided it is half.
fn most_pixels(footprint: &ImageFootprint, room_bytes: Option<u64>) -> u32 {
    let [width, height] = footprint.size.map(u64::from);
    let fitting = room_bytes.and_then(|room| {
        let pixels = 2 * u128::from(room) * u128::from(width * height);
        pixels.checked_div(u128::from(footprint.drawing_bytes))
    });
    let fitting = fitting.and_then(|pixels| u32::try_from(pixels).ok());
    fitting.map_or(image::MOST_PIXELS, |pixels| pixels.min(image::MOST_PIXELS))
}

impl From<ImageFootprint> for Needs {
    fn from(footprint: ImageFootprint) -> Self {
        Self {
            weight_bytes: footprint.weight_bytes,
            workspace_bytes: footprint.drawing_bytes,
            ..Self::default()
        }
    }
}
