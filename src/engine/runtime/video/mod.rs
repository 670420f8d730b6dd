//! Video generation with the Wan family: [`VideoPipeline`] is a loaded model of the [`maker`](super::maker).
//!
//! `files` opens a model's files, `beside` finds the components of a single-file transformer, `plan` fills in and
//! checks a request, `job` runs it one block at a time. Noise levels, samplers and noise are
//! [`diffusion`](super::diffusion)'s.
//!
//! Conventions are those of the reference implementation, so that a seed gives the same video.

mod beside;
mod files;
mod job;
mod networks;
mod plan;
mod request;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::beside::label as component_label;
use self::files::VideoFiles;
use self::job::film;
use self::networks::VideoNetworks;
use self::plan::VideoPlan;
pub use self::plan::{MOST_FRAMES, MOST_PIXELS};
pub use self::request::VideoRequest;
use super::maker::{Cost, MakeRequest, Making, PassJob, Pipeline, Refusal};
use super::text::Isolation;
use super::{ComponentFolders, DeviceChoice, Failure, LoadError, SharedWeights};
use crate::networks::video::WanFacts;
use crate::networks::weights::Quantize;

/// Location, defaults and memory limit of a video model.
#[derive(Debug, Clone, PartialEq)]
pub struct VideoSource {
    /// A folder as diffusers keeps it, or the file of a transformer.
    pub path: PathBuf,
    /// Replace components of `path`.
    pub components: ComponentFolders,
    /// Quantize the matrices of linear layers while loading.
    pub quantize: Option<Quantize>,
    /// For settings that a request omits.
    pub defaults: VideoDefaults,
    /// Requests that need more memory besides the weights are refused.
    pub memory_bytes: Option<u64>,
    /// Parses the tokenizer in a separate process, because the files are untrusted.
    pub isolation: Option<Box<Isolation>>,
}

/// Settings of a model for requests that leave them open.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct VideoDefaults {
    /// Width and height.
    pub size: Option<[u32; 2]>,
    pub frames: Option<u32>,
    /// Frames per second.
    pub rate: Option<f32>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
}

/// Memory of a model on a device, estimated before loading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VideoFootprint {
    pub weight_bytes: u64,
    /// Memory besides the weights for one video of the model's default size.
    pub video_bytes: u64,
    /// Width and height of that video.
    pub size: [u32; 2],
    pub frames: u32,
    pub rate: f32,
}

/// Components that a single-file transformer needs and that were not found around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingComponents {
    /// Tells the families apart.
    pub latent_channels: usize,
    /// Folder names of diffusers.
    pub names: Vec<&'static str>,
}

/// A model that makes videos.
pub struct VideoPipeline {
    networks: Arc<VideoNetworks>,
    defaults: VideoDefaults,
    memory_bytes: Option<u64>,
}

/// Wan's own settings.
impl VideoDefaults {
    pub fn size(&self) -> [u32; 2] {
        self.size.unwrap_or([832, 480])
    }

    pub fn frames(&self) -> u32 {
        self.frames.unwrap_or(81)
    }

    pub fn rate(&self) -> f32 {
        self.rate.unwrap_or(16.0)
    }

    pub fn steps(&self) -> u32 {
        self.steps.unwrap_or(50)
    }

    pub fn cfg_scale(&self) -> f32 {
        self.cfg_scale.unwrap_or(5.0)
    }
}

impl VideoSource {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            components: ComponentFolders::new(),
            quantize: None,
            defaults: VideoDefaults::default(),
            memory_bytes: None,
            isolation: None,
        }
    }

    /// Whether a folder holds a video model, or a file its transformer.
    pub fn is_at(path: &Path) -> bool {
        files::is_at(path)
    }

    fn open(&self) -> Result<VideoFiles, LoadError> {
        Ok(VideoFiles::open(&self.path, &self.components)?)
    }

    /// Components that a single-file transformer lacks; `None` for a folder.
    pub fn missing(&self) -> Result<Option<MissingComponents>, LoadError> {
        if !self.path.is_file() {
            return Ok(None);
        }
        let (spec, names) = VideoFiles::missing(&self.path, &self.components, WanFacts::of)?;
        Ok(Some(MissingComponents {
            latent_channels: spec.inputs,
            names,
        }))
    }

    /// The weights that other models in memory may hold, too.
    pub fn shared(&self) -> Result<Vec<SharedWeights>, LoadError> {
        Ok(self.open()?.shared())
    }

    /// Reads only the headers of the files.
    pub fn footprint(&self) -> Result<VideoFootprint, LoadError> {
        Ok(self.open()?.footprint(&self.defaults))
    }

    /// Bytes of the weights, from the headers of the files.
    pub fn weight_bytes(&self) -> Result<u64, LoadError> {
        Ok(self.footprint()?.weight_bytes)
    }

    pub fn load(&self, device: DeviceChoice) -> Result<VideoPipeline, LoadError> {
        let device = device.open_shared()?;
        let files = self.open()?;
        let networks = files.load(&device, self.quantize, self.isolation.as_deref())?;
        Ok(VideoPipeline {
            networks: Arc::new(networks),
            defaults: self.defaults,
            memory_bytes: self.memory_bytes,
        })
    }
}

impl VideoPipeline {
    fn plan(&self, request: VideoRequest) -> Result<VideoPlan, Refusal> {
        VideoPlan::new(&self.networks, &self.defaults, request)
    }
}

impl Pipeline for VideoPipeline {
    fn check(&self, request: &MakeRequest) -> Result<Cost, Refusal> {
        let cost = self
            .plan(request.of::<VideoRequest>()?.clone())?
            .cost(&self.networks);
        match self.memory_bytes {
            Some(room) if cost.memory_bytes > room => {
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                Err(Refusal::Unsupported(format!(
                    "a video of this size and length takes {} MiB beside the model, but {} MiB are free; ask for a \
                     smaller or shorter one",
                    mib(cost.memory_bytes),
                    mib(room),
                )))
            }
            _ => Ok(cost),
        }
    }

    fn begin(&self, request: MakeRequest) -> Result<Box<dyn Making>, Failure> {
        let plan = self.plan(request.take()?)?;
        let networks = Arc::clone(&self.networks);
        Ok(Box::new(PassJob::new(|news| film(networks, plan, news))))
    }
}

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
