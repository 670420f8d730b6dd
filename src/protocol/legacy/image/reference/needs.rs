//! Requirements of an image model.

use std::cmp::Ordering;
use std::fmt::Display;

use serde::Deserialize;

use crate::legacy::image::params::ModelGenerationInputImage;
use crate::legacy::requests::{RequestSingleWarning, Warning};
use crate::legacy::words::{Sampler, Scheduler, Word};

/// `None` for values without a requirement.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelNeeds {
    /// Fewest and most.
    pub steps: Option<(u32, u32)>,
    /// Least and most.
    cfg_scale: Option<(f64, f64)>,
    clip_skip: Option<u32>,
    samplers: Vec<Sampler>,
    scheduler: Option<Scheduler>,
}

/// Settings that suit a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    pub steps: u32,
    pub cfg_scale: f64,
    pub sampler: Sampler,
    pub karras: bool,
}

impl Default for Defaults {
    fn default() -> Self {
        let params = ModelGenerationInputImage::default();
        Self {
            steps: params.steps(),
            cfg_scale: params.cfg_scale,
            sampler: params.sampler_name,
            karras: params.is_karras(),
        }
    }
}

impl ModelNeeds {
    /// The usual settings, changed where the model is made for others.
    pub fn defaults(&self) -> Defaults {
        let usual = Defaults::default();
        let within = |(least, most): (f64, f64)| usual.cfg_scale.clamp(least, most);
        let is_usual = self.samplers.is_empty() || self.samplers.contains(&usual.sampler);
        let first = self.samplers.first().copied();
        Defaults {
            steps: self.steps.map_or(usual.steps, |(fewest, most)| {
                usual.steps.clamp(fewest, most)
            }),
            cfg_scale: self.cfg_scale.map_or(usual.cfg_scale, within),
            sampler: first.filter(|_| !is_usual).unwrap_or(usual.sampler),
            karras: self.scheduler.is_none_or(|one| one == Scheduler::Karras),
        }
    }

    /// Mismatches of these parameters with the model.
    pub fn warnings(&self, params: &ModelGenerationInputImage) -> Vec<RequestSingleWarning> {
        let found = [
            self.about_clip_skip(params.clip_skip.unwrap_or(1)),
            self.about_steps(params.steps()),
            self.about_scale(params.cfg_scale),
            self.about_sampler(params.sampler_name),
            self.about_scheduler(scheduler(params)),
        ];
        found.into_iter().flatten().collect()
    }

    /// Whether anything can be as it wants.
    pub fn is_possible(&self) -> bool {
        self.steps.is_none_or(|(fewest, most)| fewest <= most)
            && self.cfg_scale.is_none_or(|(least, most)| least <= most)
    }

    fn about_clip_skip(&self, found: u32) -> Option<RequestSingleWarning> {
        let wanted = self.clip_skip.filter(|wanted| *wanted != found)?;
        let what = format!("clip_skip is {found}; a requested model expects {wanted}");
        Some(warning(Warning::ClipSkipMismatch, what))
    }

    fn about_steps(&self, found: u32) -> Option<RequestSingleWarning> {
        let (fewest, most) = self.steps?;
        let code = match outside(found, fewest, most)? {
            Ordering::Less => Warning::StepsTooFew,
            _ => Warning::StepsTooMany,
        };
        Some(warning(code, range("steps", found, fewest, most)))
    }

    fn about_scale(&self, found: f64) -> Option<RequestSingleWarning> {
        let (least, most) = self.cfg_scale?;
        let code = match outside(found, least, most)? {
            _ if least == most => Warning::CfgScaleMismatch,
            Ordering::Less => Warning::CfgScaleTooSmall,
            _ => Warning::CfgScaleTooLarge,
        };
        Some(warning(code, range("cfg_scale", found, least, most)))
    }

    fn about_sampler(&self, found: Sampler) -> Option<RequestSingleWarning> {
        if self.samplers.is_empty() || self.samplers.contains(&found) {
            return None;
        }
        let wanted: Vec<&str> = self.samplers.iter().map(|one| one.word()).collect();
        let what = format!(
            "the sampler is {}; a requested model expects {}",
            found.word(),
            wanted.join(" or ")
        );
        Some(warning(Warning::SamplerMismatch, what))
    }

    fn about_scheduler(&self, found: Scheduler) -> Option<RequestSingleWarning> {
        let wanted = self.scheduler.filter(|wanted| *wanted != found)?;
        let (found, wanted) = (found.word(), wanted.word());
        let what = format!("the scheduler is {found}; a requested model expects {wanted}");
        Some(warning(Warning::SchedulerMismatch, what))
    }
}

/// A request without `karras` has always meant the simple scheduler.
fn scheduler(params: &ModelGenerationInputImage) -> Scheduler {
    params
        .newer_scheduler()
        .unwrap_or(match params.is_karras() {
            true => Scheduler::Karras,
            false => Scheduler::Simple,
        })
}

/// On which side of both it is, if it is not between them.
fn outside<N: PartialOrd>(found: N, least: N, most: N) -> Option<Ordering> {
    match found {
        found if found < least => Some(Ordering::Less),
        found if found > most => Some(Ordering::Greater),
        _ => None,
    }
}

fn range(what: &str, found: impl Display, least: impl Display, most: impl Display) -> String {
    format!("{what} is {found}; a requested model expects {least} to {most}")
}

fn warning(code: Warning, message: String) -> RequestSingleWarning {
    RequestSingleWarning { code, message }
}
