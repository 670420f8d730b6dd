//! Video jobs: a file each. Settings that the client left out are `None`, or 0 for size, length and frame rate.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::image::SourceImage;
use super::{JobRequest, KindFacts, MediaFile, ModelDefaults, OutputForm, PriceUnit, Rate};
use crate::job::needs::{MediaNeeds, Needs};
use crate::job::{Formats, Limits};

pub(super) const FACTS: KindFacts = KindFacts {
    name: "video",
    word: "video",
    ability: "video generation",
    job_type: "video",
    task: None,
    is_relayed: false,
    modality: Some("video"),
    route: Some("/v1/videos/generations"),
    limits: &["pixels", "frames"],
    rate: Some(Rate {
        name: "per_video_second_usd",
        unit: PriceUnit::Second,
    }),
};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VideoRequest {
    pub prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub negative_prompt: Option<String>,
    /// 0 until the model decides it, as the next three are.
    pub width: u32,
    pub height: u32,
    pub seconds: f64,
    /// Frames a second.
    pub fps: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cfg_scale: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The first frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceImage>,
}

/// Frames of a model whose request leaves them unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clip {
    pub fps: u32,
    pub frames: u32,
}

impl Default for Clip {
    fn default() -> Self {
        Self {
            fps: 24,
            frames: 96,
        }
    }
}

/// The size at models that say no clip.
const USUAL_FRAME: (u32, u32) = (768, 512);

/// The longest video that a client may ask for, in seconds and in frames. No default of a model exceeds either.
pub const LONGEST_VIDEO: f64 = 10.0;
pub const MOST_FRAMES: u32 = 257;

/// The same at public workers, with their most steps.
const MOST_PUBLIC_FRAMES: u32 = 240;
const MOST_PUBLIC_STEPS: u32 = 80;
/// Sides of their videos.
const PUBLIC_SIDES: RangeInclusive<u32> = 256..=1536;
const PUBLIC_SIDE_STEP: u32 = 64;

impl VideoRequest {
    pub fn frames(&self) -> u32 {
        // A cast saturates.
        (self.seconds * f64::from(self.fps)).round() as u32
    }

    /// Size, length and frames a second of the video that this model makes.
    fn settings(&self, model: &ModelDefaults) -> ((u32, u32), f64, u32) {
        let usual = model.clip.unwrap_or_default();
        let usual_fps = usual.fps.max(1);
        let most = f64::from(MOST_FRAMES.min(model.reach.media.frames).max(1));
        let size = match self.width {
            0 => model
                .size
                .filter(|_| model.clip.is_some())
                .unwrap_or(USUAL_FRAME),
            width => (width, self.height),
        };
        let fps = match self.fps {
            // The length that the client wants matters more than the rate.
            0 if self.seconds > 0.0 => usual_fps.min((most / self.seconds) as u32).max(1),
            0 => usual_fps,
            fps => fps,
        };
        let seconds = match self.seconds > 0.0 {
            true => self.seconds,
            false => {
                let seconds = f64::from(usual.frames) / f64::from(usual_fps);
                seconds.min(most / f64::from(fps)).min(LONGEST_VIDEO)
            }
        };
        (size, seconds, fps)
    }

    /// The client's field with a value that public workers do not take.
    pub fn beyond_public(&self) -> Option<&'static str> {
        let is_usual = |side: u32| {
            side == 0 || PUBLIC_SIDES.contains(&side) && side.is_multiple_of(PUBLIC_SIDE_STEP)
        };
        if !is_usual(self.width) || !is_usual(self.height) {
            return Some("size");
        }
        if self.steps.is_some_and(|steps| steps > MOST_PUBLIC_STEPS) {
            return Some("steps");
        }
        (self.frames() > MOST_PUBLIC_FRAMES).then_some("seconds")
    }

    pub fn needs(&self) -> Needs {
        Needs::Media(MediaNeeds {
            pixels: self.width.saturating_mul(self.height),
            frames: self.frames(),
            ..MediaNeeds::default()
        })
    }

    pub fn millis(&self) -> u64 {
        (self.seconds.max(0.0) * 1000.0).ceil() as u64
    }
}

impl JobRequest for VideoRequest {
    fn is_unbound(&self) -> bool {
        self.width == 0 || self.fps == 0 || self.seconds <= 0.0
    }

    fn bind(&mut self, model: &ModelDefaults) {
        ((self.width, self.height), self.seconds, self.fps) = self.settings(model);
    }

    fn seed(&self) -> Option<u64> {
        self.seed
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
    }

    fn output(&self) -> OutputForm {
        OutputForm::File(MediaFile::Video {
            seconds: self.seconds,
            size: (self.width, self.height),
            frames: self.frames(),
        })
    }

    fn picture_size(&self) -> Option<(u32, u32)> {
        Some((self.width, self.height))
    }

    /// Models for videos make eight frames of as many steps at the price of one image, so that 21 frames of 768x512 are a
    /// typical job.
    fn work(&self, _: &Limits) -> u64 {
        const PIXELS: u64 = 8 * 1024 * 1024 / 1000;
        self.size() / PIXELS
    }

    fn size(&self) -> u64 {
        let ((width, height), seconds, fps) = self.settings(&ModelDefaults::default());
        let frames = (seconds * f64::from(fps)).round() as u64;
        (u64::from(width) * u64::from(height)).saturating_mul(frames)
    }

    fn limits(&self) -> Limits {
        Limits {
            formats: match self.beyond_public() {
                None => Formats::NEUTRAL.with(Formats::OPENAI_CHAT),
                Some(_) => Formats::NEUTRAL,
            },
            needs: self.needs(),
            ..Limits::default()
        }
    }

    fn steps(&self) -> Option<u32> {
        self.steps
    }

    fn texts(&self) -> Vec<&str> {
        let unseen = self.negative_prompt.as_deref();
        std::iter::once(&*self.prompt).chain(unseen).collect()
    }

    fn source(&self) -> Option<&SourceImage> {
        self.source.as_ref()
    }

    fn source_mut(&mut self) -> Option<&mut SourceImage> {
        self.source.as_mut()
    }

    fn paid_millis(&self) -> u64 {
        match self.seconds > 0.0 {
            true => self.millis(),
            false => (LONGEST_VIDEO * 1000.0) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Clip, VideoRequest};
    use crate::job::needs::{MediaNeeds, Reach};
    use crate::job::{AccountId, Formats, Job, JobPrice, JobRequest, MicroUsd, ModelDefaults};

    #[test]
    fn what_public_workers_do_not_make_is_named() {
        let usual = VideoRequest {
            width: 768,
            height: 512,
            seconds: 10.0,
            fps: 24,
            ..VideoRequest::default()
        };
        let check = |request: VideoRequest, field: Option<&str>| {
            assert_eq!(request.beyond_public(), field, "{request:?}");
            let is_public = request.limits().formats.meets(Formats::OPENAI_CHAT);
            assert_eq!(is_public, field.is_none(), "{request:?}");
        };
        check(usual.clone(), None);
        check(VideoRequest::default(), None);
        let small = VideoRequest {
            width: 64,
            height: 64,
            ..usual.clone()
        };
        check(small, Some("size"));
        let many = VideoRequest {
            steps: Some(81),
            ..usual.clone()
        };
        check(many, Some("steps"));
        let long = VideoRequest { fps: 25, ..usual };
        check(long, Some("seconds"));
    }

    fn small() -> ModelDefaults {
        ModelDefaults {
            size: Some((64, 64)),
            clip: Some(Clip { fps: 8, frames: 16 }),
            ..ModelDefaults::default()
        }
    }

    fn bound(video: VideoRequest, model: &ModelDefaults) -> (u32, u32, f64, u32) {
        let mut video = video;
        video.bind(model);
        assert!(!video.is_unbound());
        (video.width, video.height, video.seconds, video.fps)
    }

    #[test]
    fn unset_settings_are_those_of_the_model_and_set_ones_stay() {
        let unset = VideoRequest::default();
        assert_eq!(bound(unset.clone(), &small()), (64, 64, 2.0, 8));
        let fallback = ModelDefaults::default();
        assert_eq!(bound(unset.clone(), &fallback), (768, 512, 4.0, 24));
        let set = VideoRequest {
            width: 320,
            height: 256,
            seconds: 3.0,
            fps: 12,
            ..VideoRequest::default()
        };
        assert_eq!(bound(set, &small()), (320, 256, 3.0, 12));
    }

    #[test]
    fn defaults_exceed_no_limit() {
        let check = |seconds, fps, most, expected| {
            let video = VideoRequest {
                seconds,
                fps,
                ..VideoRequest::default()
            };
            let reach = Reach {
                media: MediaNeeds {
                    frames: most,
                    ..MediaNeeds::ENDLESS
                },
                ..Reach::ENDLESS
            };
            let model = ModelDefaults {
                reach,
                ..ModelDefaults::default()
            };
            let (_, _, seconds, fps) = bound(video, &model);
            assert_eq!((seconds, fps), expected);
        };
        check(0.0, 0, 48, (2.0, 24));
        check(8.0, 0, 80, (8.0, 10));
        check(10.0, 0, u32::MAX, (10.0, 24));
        check(0.0, 30, u32::MAX, (4.0, 30));
        let slow = ModelDefaults {
            size: Some((64, 64)),
            clip: Some(Clip {
                fps: 1,
                frames: 240,
            }),
            ..ModelDefaults::default()
        };
        assert_eq!(bound(VideoRequest::default(), &slow), (64, 64, 10.0, 1));
    }

    #[test]
    fn the_longest_video_is_held_and_the_one_that_is_made_is_paid() {
        let price = |fixed| JobPrice {
            fixed: MicroUsd(fixed),
            held: MicroUsd(70),
            ..JobPrice::default()
        };
        let unbound = Job {
            price: Some(price(70)),
            ..Job::plain(AccountId(1), "films", VideoRequest::default().into())
        };
        assert_eq!(unbound.body.paid_millis(), 10_000);
        let bound = unbound.bound(&small()).unwrap();
        assert_eq!(bound.price, Some(price(14)));
        assert_eq!(bound.bound(&small()), None);
    }
}
