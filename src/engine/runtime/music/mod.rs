//! Music by ACE-Step 1.5: [`MusicPipeline`] is a loaded model of the [`maker`](super::maker).
//!
//! `folder` reads a model's files, `texts` formats a request for the text encoder, `plan` fills in and checks a
//! request, `job` runs it one block at a time, with `guidance` if the model needs it. Noise is
//! [`diffusion`](super::diffusion)'s.
//!
//! Conventions are those of the reference implementation, so that a seed gives the same song.

mod folder;
mod guidance;
mod job;
mod networks;
mod plan;
mod texts;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::folder::MusicFolder;
use self::job::compose;
use self::networks::MusicNetworks;
pub use self::plan::MOST_SECONDS;
use self::plan::MusicPlan;
use super::maker::{Cost, MakeRequest, Making, PassJob, Pipeline, Refusal, SoundRequest};
use super::text::Isolation;
use super::{ComponentFolders, DeviceChoice, Failure, LoadError};
use crate::networks::weights::Quantize;

/// Location, defaults and memory limit of a music model.
#[derive(Debug, Clone, PartialEq)]
pub struct MusicSource {
    /// A folder as diffusers keeps it.
    pub path: PathBuf,
    /// Replace components of the folder `path`.
    pub components: ComponentFolders,
    /// Quantize the matrices of linear layers while loading.
    pub quantize: Option<Quantize>,
    /// For settings that a request omits.
    pub defaults: MusicDefaults,
    /// Requests that need more memory besides the weights are refused.
    pub memory_bytes: Option<u64>,
    /// Parses the tokenizer in a separate process, because the files are untrusted.
    pub isolation: Option<Box<Isolation>>,
}

/// Settings of a model for requests that leave them open.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct MusicDefaults {
    pub seconds: Option<f32>,
    pub steps: Option<u32>,
    /// For models with guidance.
    pub cfg_scale: Option<f32>,
}

/// Memory of a model on a device, estimated before loading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MusicFootprint {
    pub weight_bytes: u64,
    /// Memory besides the weights for one song of the model's default length.
    pub song_bytes: u64,
    /// The length of that song.
    pub seconds: f32,
}

/// A model that makes music.
pub struct MusicPipeline {
    networks: Arc<MusicNetworks>,
    defaults: MusicDefaults,
    memory_bytes: Option<u64>,
}

/// Recommendations of the models' authors.
const TURBO_STEPS: u32 = 8;
const BASE_STEPS: u32 = 50;

impl MusicDefaults {
    pub fn seconds(&self) -> f32 {
        self.seconds.unwrap_or(60.0)
    }

    /// Turbo models were trained to need few.
    pub fn steps(&self, is_turbo: bool) -> u32 {
        let usual = if is_turbo { TURBO_STEPS } else { BASE_STEPS };
        self.steps.unwrap_or(usual)
    }

    pub fn cfg_scale(&self) -> f32 {
        self.cfg_scale.unwrap_or(7.0)
    }
}

impl MusicSource {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            components: ComponentFolders::new(),
            quantize: None,
            defaults: MusicDefaults::default(),
            memory_bytes: None,
            isolation: None,
        }
    }

    /// Whether a folder holds a model that makes music.
    pub fn is_at(path: &Path) -> bool {
        folder::is_at(path)
    }

    fn open(&self) -> Result<MusicFolder, LoadError> {
        Ok(MusicFolder::open(&self.path, &self.components)?)
    }

    /// Reads only the headers of the files.
    pub fn footprint(&self) -> Result<MusicFootprint, LoadError> {
        Ok(self.open()?.footprint(&self.defaults))
    }

    pub fn load(&self, device: DeviceChoice) -> Result<MusicPipeline, LoadError> {
        let device = device.open()?;
        let folder = self.open()?;
        let networks = folder.load(&device, self.quantize, self.isolation.as_deref())?;
        Ok(MusicPipeline {
            networks: Arc::new(networks),
            defaults: self.defaults,
            memory_bytes: self.memory_bytes,
        })
    }
}

impl MusicPipeline {
    fn plan(&self, request: &SoundRequest) -> Result<MusicPlan, Refusal> {
        MusicPlan::new(&self.networks, &self.defaults, request)
    }
}

impl Pipeline for MusicPipeline {
    fn check(&self, request: &MakeRequest) -> Result<Cost, Refusal> {
        let cost = self.plan(request.of()?)?.cost(&self.networks);
        match self.memory_bytes {
            Some(room) if cost.memory_bytes > room => {
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                Err(Refusal::Unsupported(format!(
                    "a song of this length takes {} MiB beside the model, but {} MiB are free; ask for a shorter one",
                    mib(cost.memory_bytes),
                    mib(room),
                )))
            }
            _ => Ok(cost),
        }
    }

    fn begin(&self, request: MakeRequest) -> Result<Box<dyn Making>, Failure> {
        let plan = self.plan(request.of()?)?;
        let networks = Arc::clone(&self.networks);
        Ok(Box::new(PassJob::new(|news| compose(networks, plan, news))))
    }
}

#[cfg(test)]
mod tests;
