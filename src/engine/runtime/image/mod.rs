//! Image generation with the Stable Diffusion family: [`ImagePipeline`] is a loaded model of the
//! [`maker`](super::maker).
//!
//! `folder` and `single` read a model's files, `adapters` LoRA files, `plan` fills in and checks a request, `job` runs
//! it one block at a time, `prompt` tokenizes prompts. Samplers, schedules and noise are
//! [`diffusion`](super::diffusion)'s.
//!
//! Conventions follow common programs, so that a seed gives the same image: timesteps are rounded to whole training
//! steps, a strength below 1 runs all requested steps, and images of a batch take their noise from one stream.

mod adapters;
mod file_cache;
mod folder;
mod job;
mod networks;
pub(in crate::runtime) mod pixels;
mod plan;
mod preview;
mod prompt;
mod request;
mod single;
mod tiles;

pub use self::prompt::inversion_words;
pub use self::request::{ImageRequest, Inversion, LoraUse};

use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::folder::DiffusersFolder;
use self::job::draw;
use self::networks::DiffusionNetworks;
use self::plan::DrawingPlan;
pub use self::plan::{MOST_PIXELS, MOST_STEPS};
use self::single::SingleFileModel;
use super::diffusion::{DiffusionSampler, Schedule};
use super::maker::{Cost, MakeRequest, Making, PassJob, Pipeline, Refusal};
use super::{ComponentFolders, DeviceChoice, Failure, LoadError, SharedWeights};
use crate::networks::weights::Quantize;

/// Location, defaults and memory limit of an image model.
#[derive(Debug, Clone, PartialEq)]
pub struct ImageSource {
    /// A folder as diffusers keeps it, or one file with all networks.
    pub path: PathBuf,
    /// Replace components of the folder `path`.
    pub components: ComponentFolders,
    /// Quantize the matrices of linear layers while loading.
    pub quantize: Option<Quantize>,
    /// For settings that a request omits.
    pub defaults: ImageDefaults,
    /// Requests that need more memory besides the weights are refused.
    pub memory_bytes: Option<u64>,
}

/// A model's files, opened.
enum ModelFiles {
    Folder(DiffusersFolder),
    Single(SingleFileModel),
}

/// Settings of a model for requests that leave them open.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ImageDefaults {
    /// Width and height.
    pub size: Option<[u32; 2]>,
    pub steps: Option<u32>,
    pub cfg_scale: Option<f32>,
    pub sampler: Option<DiffusionSampler>,
    pub schedule: Option<Schedule>,
    pub clip_skip: Option<u32>,
}

/// Memory of a model on a device, estimated before loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageFootprint {
    pub weight_bytes: u64,
    /// Memory besides the weights for one image of the model's default size.
    pub drawing_bytes: u64,
    /// Width and height of that drawing.
    pub size: [u32; 2],
}

/// A loaded image model.
pub struct ImagePipeline {
    networks: Arc<DiffusionNetworks>,
    defaults: ImageDefaults,
    memory_bytes: Option<u64>,
}

impl ImageSource {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            components: ComponentFolders::new(),
            quantize: None,
            defaults: ImageDefaults::default(),
            memory_bytes: None,
        }
    }

    /// Whether a folder or a file holds an image model.
    pub fn is_at(path: &Path) -> bool {
        path.join("model_index.json").is_file() || SingleFileModel::is_at(path)
    }

    fn open(&self) -> Result<ModelFiles, LoadError> {
        Ok(match self.path.is_file() {
            true => ModelFiles::Single(SingleFileModel::open(&self.path, &self.components)?),
            false => ModelFiles::Folder(DiffusersFolder::open(&self.path, &self.components)?),
        })
    }

    /// Reads only the headers of the files.
    pub fn footprint(&self) -> Result<ImageFootprint, LoadError> {
        Ok(match self.open()? {
            ModelFiles::Folder(folder) => folder.footprint(&self.defaults),
            ModelFiles::Single(single) => single.footprint(&self.defaults),
        })
    }

    /// The weights that other models in memory may hold, too.
    pub fn shared(&self) -> Result<Vec<SharedWeights>, LoadError> {
        Ok(match self.open()? {
            ModelFiles::Folder(folder) => folder.shared(),
            ModelFiles::Single(single) => single.shared(),
        })
    }

    pub fn load(&self, device: DeviceChoice) -> Result<ImagePipeline, LoadError> {
        let device = device.open_shared()?;
        let networks = match self.open()? {
            ModelFiles::Folder(folder) => folder.load(&device, self.quantize)?,
            ModelFiles::Single(single) => single.load(&device, self.quantize)?,
        };
        Ok(ImagePipeline {
            networks: Arc::new(networks),
            defaults: self.defaults,
            memory_bytes: self.memory_bytes,
        })
    }
}

impl ImagePipeline {
    fn plan(&self, request: ImageRequest) -> Result<DrawingPlan, Refusal> {
        DrawingPlan::new(&self.networks, &self.defaults, request)
    }
}

impl Pipeline for ImagePipeline {
    fn check(&self, request: &MakeRequest) -> Result<Cost, Refusal> {
        let cost = self
            .plan(request.of::<ImageRequest>()?.clone())?
            .cost(&self.networks);
        match self.memory_bytes {
            Some(room) if cost.memory_bytes > room => {
                let mib = |bytes: u64| bytes.div_ceil(1 << 20);
                Err(Refusal::Unsupported(format!(
                    "an image of this size takes {} MiB beside the model, but {} MiB are free; ask for a smaller one",
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
        Ok(Box::new(PassJob::new(|news| draw(networks, plan, news))))
    }
}

#[cfg(test)]
mod tests;
