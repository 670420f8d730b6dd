//! The workers that may take an image request, and how much of them one of its jobs takes.

use std::time::Duration;

use super::reference;
use super::request::GenerationInputImage;
use crate::job::{Capabilities, Formats, Limits, MediaNeeds, Needs};
use crate::legacy::words::{Scheduler, SourceProcessing};
use crate::legacy::work;

impl GenerationInputImage {
    /// Settings without a neutral equivalent need polling workers. The neutral format has more settings than that of
    /// public media workers.
    pub fn formats(&self) -> Formats {
        let params = &self.params;
        let neutral = params.control_type.is_none()
            && params.post_processing().is_empty()
            && !params.tunes_solver()
            && params.sampler_name.is_neutral()
            && params.newer_scheduler().is_none_or(Scheduler::is_neutral)
            // A mask in the opacity of the source image has no neutral form.
            && self.source_mask.is_some() == self.is_painting()
            && params.workflow.is_none()
            && params.special.is_none()
            && !params.transparent
            && self.source_processing != SourceProcessing::Remix
            && (self.nsfw || !self.censor_nsfw);
        let plain = neutral
            && params.tis().is_empty()
            && params.clip_skip.is_none()
            && !(params.tiling || params.hires_fix)
            && !params.sampler_name.is_newer()
            && !params.sets_solver()
            && self.source_mask.is_none()
            && !(self.source_image.is_some() && params.denoising_strength.is_some());
        match (neutral, plain) {
            (true, true) => Formats::LEGACY
                .with(Formats::NEUTRAL)
                .with(Formats::OPENAI_CHAT),
            (true, false) => Formats::LEGACY.with(Formats::NEUTRAL),
            (false, _) => Formats::LEGACY,
        }
    }

    /// The limits of each of its jobs.
    pub fn limits(&self) -> Limits {
        let params = &self.params;
        let families = self.models.iter().map(|model| reference::family(model));
        let patience = work::image_ttl(params, families, false);
        let steps = work::counted_steps(params.sampler_name, params.steps());
        let abilities = self.abilities(reference::family);
        Limits {
            formats: self.formats(),
            requires: abilities
                .with_if(!self.extra_slow_workers, Capabilities::TIMELY)
                .with_if(!self.slow_workers, Capabilities::FAST)
                .with_if(self.wants_many(steps), Capabilities::MANY_STEPS),
            needs: Needs::Media(MediaNeeds {
                pixels: params.width.saturating_mul(params.height),
                steps,
                ..MediaNeeds::default()
            }),
            bulk: match self.disable_batching || params.workflow.is_some() {
                true => u64::MAX,
                false => work::bulk(params),
            },
            patience: Some(Duration::from_secs(patience)),
            ..Limits::default()
        }
    }

    /// Whether the steps are many for one of several models. For a single model, dispatch compares the steps with the
    /// worker's limit.
    fn wants_many(&self, steps: u32) -> bool {
        let is_many = |model: &String| steps > reference::modest_steps(model);
        self.models.len() > 1 && self.models.iter().any(is_many)
    }
}
