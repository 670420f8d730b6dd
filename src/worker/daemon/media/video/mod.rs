//! Videos.

mod components;
mod file;

use std::path::{Path, PathBuf};

use super::image::fetch;
use super::{CatalogSource, MediaFiles};
use crate::catalog::{FilmingDefaults, VideoFacts};
use crate::daemon::MediaModel;
use crate::daemon::fit::Needs;
use crate::daemon::locate::{LocateError, Shelves};
use crate::link::{Said, Transfers};
use muster_engine::networks::weights::Quantize;
use muster_engine::runtime::maker::Pipeline;
use muster_engine::runtime::text::Isolation;
use muster_engine::runtime::video::{
    self, VideoDefaults, VideoFootprint, VideoRequest, VideoSource,
};
use muster_engine::runtime::{ComponentFolders, DeviceChoice, LoadError, SharedWeights};
use muster_protocol::job::{self, Failure, FailureKind, Kind};
use muster_protocol::link::ModelLimits;

use components::complete;
pub use file::{FilmType, VideoFile};

impl MediaFiles for VideoSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn needs(&self) -> Result<Needs, LoadError> {
        let VideoFootprint {
            weight_bytes,
            video_bytes,
            ..
        } = self.footprint()?;
        Ok(Needs::beside(weight_bytes, video_bytes))
    }

    fn describe(&mut self, name: &str, room_bytes: u64) -> Result<MediaModel, LoadError> {
        let footprint = self.footprint()?;
        self.memory_bytes = Some(room_bytes);
        Ok(MediaModel {
            size: Some(footprint.size.into()),
            clip: Some((footprint.rate.round() as u32, footprint.frames)),
            limits: ModelLimits {
                pixels: Some(video::MOST_PIXELS),
                frames: Some(video::MOST_FRAMES),
                ..ModelLimits::default()
            },
            ..MediaModel::new(name, Kind::Video)
        })
    }

    fn load(&self, device: DeviceChoice) -> Result<Box<dyn Pipeline>, LoadError> {
        Ok(Box::new(Self::load(self, device)?))
    }

    fn shared(&self) -> Result<Vec<SharedWeights>, LoadError> {
        Self::shared(self)
    }

    fn isolate(&mut self, isolation: Isolation) {
        self.isolation = Some(Box::new(isolation));
    }

    fn quantize(&mut self, quantize: Option<Quantize>) {
        self.quantize = quantize;
    }

    fn complete(&mut self, shelves: Shelves<'_>) -> Result<(), LocateError> {
        complete(self, shelves)
    }
}

impl CatalogSource for VideoSource {
    type Facts = VideoFacts;

    fn of_entry(
        facts: &VideoFacts,
        path: PathBuf,
        components: ComponentFolders,
    ) -> Result<Self, String> {
        Ok(Self {
            defaults: defaults(facts.defaults),
            components,
            ..Self::new(path)
        })
    }
}

fn defaults(defaults: FilmingDefaults) -> VideoDefaults {
    VideoDefaults {
        size: defaults.size,
        frames: defaults.frames,
        rate: defaults.rate,
        steps: defaults.steps,
        cfg_scale: defaults.cfg_scale,
    }
}

/// Reads the settings and fetches the first frame.
pub async fn read(request: job::VideoRequest, transfers: &Transfers) -> Result<VideoRequest, Said> {
    let mut video = settings(&request).map_err(Said::Failed)?;
    if let Some(source) = request.source {
        video.source = Some(fetch("first frame", &source.image, transfers).await?);
    }
    Ok(video)
}

fn settings(request: &job::VideoRequest) -> Result<VideoRequest, Failure> {
    if let Some(sampler) = &request.sampler {
        let message = format!(
            "sampler {sampler:?} is not supported by this worker: its video models have one of their own"
        );
        return Err(Failure::new(FailureKind::UnsupportedValue, message));
    }
    Ok(VideoRequest {
        prompt: request.prompt.clone(),
        negative_prompt: request.negative_prompt.clone(),
        width: Some(request.width).filter(|side| *side > 0),
        height: Some(request.height).filter(|side| *side > 0),
        frames: Some(request.frames()).filter(|frames| *frames > 0),
        rate: Some(request.fps as f32).filter(|rate| *rate > 0.0),
        steps: request.steps,
        cfg_scale: request.cfg_scale.map(|scale| scale as f32),
        seed: request.seed,
        ..VideoRequest::default()
    })
}

#[cfg(test)]
mod tests {
    use super::settings;
    use muster_protocol::job::{Blame, VideoRequest};

    #[test]
    fn settings_are_those_of_the_request() {
        let video = VideoRequest {
            width: 320,
            height: 256,
            seconds: 2.0,
            fps: 16,
            seed: Some(7),
            ..VideoRequest::default()
        };
        let read = settings(&video).unwrap();
        assert_eq!((read.width, read.height), (Some(320), Some(256)));
        assert_eq!((read.frames, read.rate), (Some(32), Some(16.0)));
        let refused = settings(&VideoRequest {
            sampler: Some("k_euler".to_owned()),
            ..video
        });
        assert_eq!(refused.unwrap_err().blame, Blame::Client);
    }
}
