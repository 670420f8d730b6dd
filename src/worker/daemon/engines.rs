//! The two threads of a device, for text and for media, and those of all devices of a worker.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::DaemonError;
use super::media::SOUND_TOKENS;
use super::residency::{Residency, ResidencyHold};
use super::throttle::Throttle;
use muster_engine::runtime::image::ImageDefaults;
use muster_engine::runtime::maker::Maker;
use muster_engine::runtime::safety::SafetyChecker;
use muster_engine::runtime::speech::MOST_SPOKEN;
use muster_engine::runtime::{DeviceChoice, Failure, ModelInfo, Runtime};
use muster_protocol::job::{Kind, Kinds};
use muster_protocol::link::ModelLimits;
use muster_reader::Reader;

/// Clones share the threads, which end with the last of them.
#[derive(Clone)]
pub struct Engines {
    pub runtime: Runtime,
    /// Started with the first media model.
    pub maker: Option<Maker>,
    pub folders: AdapterFolders,
    /// Looks at images for public coordinators.
    pub safety: Option<SafetyChecker>,
    /// Default settings of image models, by name.
    pub drawing: BTreeMap<String, ImageDefaults>,
    /// If models may be unloaded while they are offered.
    pub residency: Option<Residency>,
    /// Decodes the sounds of jobs.
    pub reader: Reader,
    pub health: DeviceHealth,
    pub throttle: Throttle,
}

/// Whether a device still works. Clones are the same.
#[derive(Clone)]
pub struct DeviceHealth {
    device: DeviceChoice,
    lost: watch::Sender<bool>,
}

/// The engines of each device of a worker. Clones are the same.
#[derive(Clone)]
pub struct Fleet(Arc<[Engines]>);

/// The folders of files that requests may name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterFolders {
    pub loras: Option<PathBuf>,
    /// The folder of textual inversions.
    pub embeddings: Option<PathBuf>,
}

/// A model that is loaded in the maker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaModel {
    pub name: String,
    /// The kind of its output.
    pub kind: Kind,
    /// Jobs at once.
    pub jobs: u32,
    /// Width and height of its images where a request names none.
    pub size: Option<(u32, u32)>,
    /// Frames a second and frames of its videos where a request names none.
    pub clip: Option<(u32, u32)>,
    /// The voices of a model that speaks; a model for other sounds has none.
    pub voices: Vec<String>,
    pub limits: ModelLimits,
}

/// A model that is loaded in either thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceModel {
    Text(Arc<ModelInfo>),
    Media(MediaModel),
}

impl MediaModel {
    /// A model with default limits.
    pub fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
            jobs: 1,
            size: None,
            clip: None,
            voices: Vec::new(),
            limits: ModelLimits::default(),
        }
    }

    /// For coordinators of earlier versions, which measure all texts and recordings in tokens.
    pub fn context(&self) -> Option<u32> {
        match self.kind {
            Kind::Transcription => Some(SOUND_TOKENS),
            Kind::Speech => Some(self.limits.characters.unwrap_or(MOST_SPOKEN)),
            _ => None,
        }
    }

    /// The kinds of its jobs. Asynchronous speech synthesis is requested as music.
    pub fn kinds(&self) -> Kinds {
        match self.kind {
            Kind::Speech => Kinds::from(Kind::Music).with(Kind::Speech),
            kind => kind.into(),
        }
    }
}

impl DeviceModel {
    pub fn name(&self) -> &str {
        match self {
            Self::Text(info) => &info.name,
            Self::Media(model) => &model.name,
        }
    }

    /// The model that an adapter changes.
    pub fn parent(&self) -> Option<&str> {
        match self {
            Self::Text(info) => info.parent.as_deref(),
            Self::Media(_) => None,
        }
    }

    /// For a model on two devices, the one with the smaller context.
    #[must_use]
    pub fn with_smaller_context(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Text(one), Self::Text(two)) if two.context < one.context => other,
            _ => self,
        }
    }
}

impl DeviceHealth {
    pub fn of(device: DeviceChoice) -> Self {
        let (lost, _) = watch::channel(false);
        Self { device, lost }
    }

    /// Asks the device after a failed job.
    pub async fn check(&self) {
        let device = self.device;
        // A driver that hangs is found by the limits of jobs.
        if let Ok(false) = spawn_blocking(move || device.answers()).await {
            self.lost.send_replace(true);
        }
    }

    fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    async fn lost(&self) {
        // The sender is a part of this value.
        let _ = self.lost.subscribe().wait_for(|is_lost| *is_lost).await;
    }
}

impl Fleet {
    /// Needs at least one device.
    pub fn new(engines: Vec<Engines>) -> Self {
        Self(engines.into())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Engines> {
        self.0.iter()
    }

    /// The folders are the same for each device.
    pub fn folders(&self) -> &AdapterFolders {
        &self.0[0].folders
    }

    /// Whether images can be judged: by the same checker for each device.
    pub fn can_judge(&self) -> bool {
        self.0[0].safety.is_some()
    }

    /// Frees a model's memory on each device, after its running jobs. False where models stay in memory.
    pub async fn unload(&self, model: &str) -> bool {
        let mut unloads = false;
        for residency in self.iter().filter_map(|engines| engines.residency.as_ref()) {
            residency.unload(model).await;
            unloads = true;
        }
        unloads
    }

    /// The engines for a job, with its model in memory until the hold is dropped.
    pub async fn hold(
        &self,
        model: &str,
    ) -> Result<(&Engines, Option<ResidencyHold>), DaemonError> {
        let engines = self.shortest_queue(model);
        let hold = match &engines.residency {
            Some(residency) => residency.hold(model).await?,
            None => None,
        };
        Ok((engines, hold))
    }

    /// A device that has the model in memory before one that has to load it, then the one with the fewest jobs.
    fn shortest_queue(&self, model: &str) -> &Engines {
        let offering = self.iter().filter(|engines| engines.works());
        let loads = offering.filter_map(|engines| {
            let load = engines.residency.as_ref()?.load_of(model)?;
            Some(((!load.is_loaded, load.jobs), engines))
        });
        let shortest = loads.min_by_key(|(load, _)| *load);
        shortest.map_or(&self.0[0], |(_, engines)| engines)
    }

    /// Returns once no thread computes.
    pub async fn pause(&self) -> Result<(), Failure> {
        for engines in self.iter().filter(|engines| engines.works()) {
            engines.pause().await?;
        }
        Ok(())
    }

    pub async fn resume(&self) -> Result<(), Failure> {
        for engines in self.iter().filter(|engines| engines.works()) {
            engines.resume().await?;
        }
        Ok(())
    }

    /// Whether a text model has a form for calls of tools in its template.
    pub fn calls_tools(&self, name: &str) -> bool {
        let residencies = self.iter().filter_map(|engines| engines.residency.as_ref());
        let mut known = residencies.filter_map(|residency| residency.calls_tools(name));
        known.next().unwrap_or_else(|| self.0[0].calls_tools(name))
    }

    /// Waits until a thread of one of the devices has ended, and returns its index.
    pub async fn ended(&self) -> usize {
        let waits = self.iter().map(|engines| Box::pin(engines.ended()));
        let (_, at, _) = futures_util::future::select_all(waits).await;
        at
    }
}

impl Engines {
    /// The owner's pause: returns once neither thread computes.
    pub async fn pause(&self) -> Result<(), Failure> {
        let mut is_paused = self.throttle.owner_pause().await;
        *is_paused = true;
        self.stop_threads().await
    }

    pub async fn resume(&self) -> Result<(), Failure> {
        let mut is_paused = self.throttle.owner_pause().await;
        *is_paused = false;
        self.start_threads().await
    }

    /// Returns once neither thread computes.
    pub async fn stop_threads(&self) -> Result<(), Failure> {
        let media = async {
            match &self.maker {
                Some(maker) => maker.pause().await,
                None => Ok(()),
            }
        };
        tokio::try_join!(self.runtime.pause(), media).map(|_| ())
    }

    pub async fn start_threads(&self) -> Result<(), Failure> {
        self.runtime.resume().await?;
        match &self.maker {
            Some(maker) => maker.resume().await,
            None => Ok(()),
        }
    }

    /// Whether a text model has a form for calls of tools in its template.
    pub fn calls_tools(&self, name: &str) -> bool {
        let of_resident = self.residency.as_ref();
        let of_resident = of_resident.and_then(|residency| residency.calls_tools(name));
        of_resident.unwrap_or_else(|| {
            let language = self.runtime.language(name);
            language.is_ok_and(|language| language.markup.calls_tools())
        })
    }

    /// Waits until one of the threads has panicked or the device has failed.
    pub async fn ended(&self) {
        let media = async {
            match &self.maker {
                Some(maker) => maker.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.runtime.ended() => {}
            () = media => {}
            () = self.health.lost() => {}
        }
    }

    fn works(&self) -> bool {
        !self.runtime.has_ended() && !self.health.is_lost()
    }
}

impl From<Engines> for Fleet {
    fn from(engines: Engines) -> Self {
        Self::new(vec![engines])
    }
}

impl From<Runtime> for Fleet {
    fn from(runtime: Runtime) -> Self {
        Engines::from(runtime).into()
    }
}

impl From<Runtime> for Engines {
    fn from(runtime: Runtime) -> Self {
        Self {
            runtime,
            maker: None,
            folders: AdapterFolders::default(),
            safety: None,
            drawing: BTreeMap::new(),
            residency: None,
            reader: Reader::default(),
            health: DeviceHealth::of(DeviceChoice::Cpu),
            throttle: Throttle::default(),
        }
    }
}
