//! Images.

mod flat;
mod infotext;
mod inversions;
mod request;

use std::path::{Path, PathBuf};

use super::{CatalogSource, MediaDesk, MediaFiles};
use crate::catalog::{DrawingDefaults, ImageFacts};
use crate::daemon::MediaModel;
use crate::daemon::fit::Needs;
use crate::link::Said;
use muster_engine::networks::weights::Quantize;
use muster_engine::runtime::diffusion::{DiffusionSampler, Schedule};
use muster_engine::runtime::image::{
    self, ImageDefaults, ImageFootprint, ImageRequest, ImageSource,
};
use muster_engine::runtime::maker::Pipeline;
use muster_engine::runtime::{ComponentFolders, DeviceChoice, LoadError, SharedWeights};
use muster_protocol::job::{self, Kind};
use muster_protocol::link::ModelLimits;

pub use flat::images;
pub use infotext::{Infotext, infotext};
pub use request::{decoded, fetch, fetch_file};

/// The settings of a request with the model's defaults, and its source images.
pub async fn read(
    model: &str,
    request: job::ImageRequest,
    desk: &MediaDesk<'_>,
) -> Result<ImageRequest, Said> {
    let request = request::read(request, &desk.engines.folders, desk.transfers).await?;
    Ok(match desk.engines.drawing.get(model) {
        Some(defaults) => defaults.fill(request),
        None => request,
    })
}

impl MediaFiles for ImageSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        let footprint = self.footprint()?;
        Ok(Needs::beside(
            footprint.weight_bytes,
            footprint.drawing_bytes,
        ))
    }

    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError> {
        let footprint = self.footprint()?;
        let [width, height] = footprint.size;
        self.memory_bytes = Some(room_bytes);
        Ok(MediaModel {
            size: Some((width, height)),
            limits: ModelLimits {
                pixels: Some(most_pixels(&footprint, room_bytes)),
                steps: Some(image::MOST_STEPS),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, Kind::Image)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }

    fn shared(&self) -> Result<Vec<SharedWeights>, LoadError> {
        Self::shared(self)
    }

    fn drawing(&self) -> Option<ImageDefaults> {
        Some(self.defaults)
    }

    fn quantize(&mut self, quantize: Option<Quantize>) {
        self.quantize = quantize;
    }
}

impl CatalogSource for ImageSource {
    type Facts = ImageFacts;

    fn of_entry(
        facts: &ImageFacts,
        path: PathBuf,
        components: ComponentFolders,
    ) -> Result<Self, String> {
        Ok(Self {
            defaults: defaults(&facts.defaults)?,
            components,
            ..Self::new(path)
        })
    }
}

fn defaults(defaults: &DrawingDefaults) -> Result<ImageDefaults, String> {
    let named = |what: &str, found: &str, known: Vec<&str>| {
        format!("unknown {what} {found}; known: {}", known.join(", "))
    };
    let sampler = defaults.sampler.as_deref().map(|name| {
        let known = || DiffusionSampler::names().collect();
        DiffusionSampler::named(name).ok_or_else(|| named("sampler", name, known()))
    });
    let schedule = defaults.schedule.as_deref().map(|name| {
        let known = || Schedule::names().collect();
        Schedule::named(name).ok_or_else(|| named("schedule", name, known()))
    });
    Ok(ImageDefaults {
        size: defaults.size,
        steps: defaults.steps,
        cfg_scale: defaults.cfg_scale,
        sampler: sampler.transpose()?,
        schedule: schedule.transpose()?,
        clip_skip: defaults.clip_skip,
    })
}

/// The largest image that fits besides the weights: its memory is proportional to its pixels, and half without
/// guidance.
fn most_pixels(footprint: &ImageFootprint, room_bytes: u64) -> u32 {
    let [width, height] = footprint.size.map(u64::from);
    let pixels = 2 * u128::from(room_bytes) * u128::from(width * height);
    let fitting = pixels.checked_div(u128::from(footprint.drawing_bytes));
    let fitting = fitting.and_then(|pixels| u32::try_from(pixels).ok());
    fitting.map_or(image::MOST_PIXELS, |pixels| pixels.min(image::MOST_PIXELS))
}
