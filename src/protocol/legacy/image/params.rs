//! The parameters of an image.

use serde_json::{Map, Value};

use crate::job::{Lora, PromptSide, TextualInversion};
use crate::legacy::rules::{Number, Whole, flag, inner, list, number, object, text, whole, word};
use crate::legacy::tables::{body, words};
use crate::legacy::words::{ControlType, PostProcessor, Sampler, Scheduler, SolverType, Workflow};

/// Most steps with a control map.
const MOST_STEPS_WITH_CONTROL: u32 = 40;

fn side() -> Whole {
    whole(64..=3072).in_steps_of(64)
}

fn strength() -> Number {
    number(-5.0..=5.0)
}

body! {
    /// `params` of an image request.
    pub struct ModelGenerationInputImage {
        fills {
            n: u32 = whole(1..=20) => 1,
            image_is_control: bool = flag() => false,
            return_control_map: bool = flag() => false,
            sampler_name: Sampler = word() => Sampler::EulerAncestral,
            cfg_scale: f64 = number(0.0..=100.0) => 5.0,
            height: u32 = side() => 512,
            width: u32 = side() => 512,
            karras: bool = flag() => true,
            tiling: bool = flag() => false,
            hires_fix: bool = flag() => false,
            transparent: bool = flag() => false,
        }
        may {
            /// See [`Self::steps`].
            steps: u32 = whole(1..=500),
            seed: String = text(..=255),
            seed_variation: u32 = whole(1..=1000),
            control_type: ControlType = word(),
            extra_texts: Vec<ExtraText> = list(inner()),
            denoising_strength: f64 = number(0.01..=1.0),
            hires_fix_denoising_strength: f64 = number(0.01..=1.0),
            post_processing: Vec<PostProcessor> = list(word()).unique(),
            clip_skip: u32 = whole(1..=12),
            facefixer_strength: f64 = number(0.0..=1.0),
            loras: Vec<ModelPayloadLorasImage> = list(inner()),
            tis: Vec<ModelPayloadTextualInversionsImage> = list(inner()),
            special: Map<String, Value> = object(),
            workflow: Workflow = word(),
            /// See [`Self::is_karras`] and [`Self::newer_scheduler`].
            scheduler: Scheduler = word(),
            sampler_eta: f64 = number(0.0..),
            sampler_s_noise: f64 = number(0.0..),
            sampler_s_churn: f64 = number(0.0..),
            sampler_s_tmin: f64 = number(0.0..),
            sampler_s_tmax: f64 = number(0.0..),
            sampler_solver_type: SolverType = word(),
            sampler_order: u32 = whole(1..=5),
            flow_shift: f64 = number(0.0..=100.0),
            /// See [`Self::control_strength`].
            control_strength: f64 = number(0.01..=3.0),
        }
    }
}

body! {
    /// `params` of an image style; missing fields get a request's defaults.
    pub struct ModelStyleInputParamsImage {
        may {
            steps: u32 = whole(1..=500),
            sampler_name: Sampler = word(),
            cfg_scale: f64 = number(0.0..=100.0),
            denoising_strength: f64 = number(0.01..=1.0),
            hires_fix_denoising_strength: f64 = number(0.01..=1.0),
            height: u32 = side(),
            width: u32 = side(),
            post_processing: Vec<PostProcessor> = list(word()).unique(),
            karras: bool = flag(),
            tiling: bool = flag(),
            hires_fix: bool = flag(),
            clip_skip: u32 = whole(1..=12),
            facefixer_strength: f64 = number(0.0..=1.0),
            loras: Vec<ModelPayloadLorasImage> = list(inner()),
            tis: Vec<ModelPayloadTextualInversionsImage> = list(inner()),
            special: Map<String, Value> = object(),
            workflow: Workflow = word(),
            transparent: bool = flag(),
            scheduler: Scheduler = word(),
            sampler_eta: f64 = number(0.0..),
            sampler_s_noise: f64 = number(0.0..),
            sampler_s_churn: f64 = number(0.0..),
            sampler_s_tmin: f64 = number(0.0..),
            sampler_s_tmax: f64 = number(0.0..),
            sampler_solver_type: SolverType = word(),
            sampler_order: u32 = whole(1..=5),
            flow_shift: f64 = number(0.0..=100.0),
        }
    }
}

body! {
    /// A LoRA.
    pub struct ModelPayloadLorasImage {
        needs {
            /// Name, or number at CivitAI.
            name: String = text(1..=255),
        }
        fills {
            model: f64 = strength() => 1.0,
            clip: f64 = strength() => 1.0,
            is_version: bool = flag() => false,
        }
        may { inject_trigger: String = text(1..=30), }
    }
}

words! {
    /// The prompt to which a textual inversion is added automatically.
    pub enum InjectInto {
        Prompt = "prompt",
        NegativePrompt = "negprompt",
    }
}

body! {
    /// A textual inversion.
    pub struct ModelPayloadTextualInversionsImage {
        needs { name: String = text(1..=255), }
        fills { strength: f64 = strength() => 1.0, }
        may { inject_ti: InjectInto = word(), }
    }
}

body! {
    /// A text for a workflow.
    pub struct ExtraText {
        may {
            reference: String = text(3..=255),
            /// No QR code holds more.
            text: String = text(1..=7089),
        }
    }
}

impl From<&ModelPayloadLorasImage> for Lora {
    fn from(lora: &ModelPayloadLorasImage) -> Self {
        Self {
            name: lora.name.clone(),
            model: lora.model,
            clip: lora.clip,
            is_version: lora.is_version,
            inject_trigger: lora.inject_trigger.clone(),
        }
    }
}

impl From<&ModelPayloadTextualInversionsImage> for TextualInversion {
    fn from(inversion: &ModelPayloadTextualInversionsImage) -> Self {
        Self {
            name: inversion.name.clone(),
            strength: inversion.strength,
            prompt: inversion.inject_ti.map(|place| match place {
                InjectInto::Prompt => PromptSide::Shown,
                InjectInto::NegativePrompt => PromptSide::Excluded,
            }),
        }
    }
}

impl ModelGenerationInputImage {
    /// Steps to run: fewer by default with a control map, and capped then.
    pub fn steps(&self) -> u32 {
        match self.control_type {
            None => self.steps.unwrap_or(30),
            Some(_) => self.steps.unwrap_or(20).min(MOST_STEPS_WITH_CONTROL),
        }
    }

    /// `scheduler` takes precedence over the flag.
    pub fn is_karras(&self) -> bool {
        match self.scheduler {
            Some(Scheduler::Karras) => true,
            Some(Scheduler::Normal) => false,
            _ => self.karras,
        }
    }

    /// A schedule that the flag cannot express.
    pub fn newer_scheduler(&self) -> Option<Scheduler> {
        self.scheduler.filter(|one| one.is_newer())
    }

    /// Without a control map it means nothing.
    pub fn control_strength(&self) -> Option<f64> {
        self.control_strength
            .filter(|_| self.control_type.is_some())
    }

    /// Whether it sets the solver or the schedule beyond the options that every worker supports.
    pub fn sets_solver(&self) -> bool {
        self.newer_scheduler().is_some() || self.tunes_solver()
    }

    /// Whether it sets options of a solver besides its name and its noise schedule.
    pub fn tunes_solver(&self) -> bool {
        self.sampler_eta.is_some()
            || self.sampler_s_noise.is_some()
            || self.sampler_s_churn.is_some()
            || self.sampler_s_tmin.is_some()
            || self.sampler_s_tmax.is_some()
            || self.sampler_solver_type.is_some()
            || self.sampler_order.is_some()
            || self.flow_shift.is_some()
    }

    pub fn post_processing(&self) -> &[PostProcessor] {
        self.post_processing.as_deref().unwrap_or_default()
    }

    pub fn loras(&self) -> &[ModelPayloadLorasImage] {
        self.loras.as_deref().unwrap_or_default()
    }

    pub fn tis(&self) -> &[ModelPayloadTextualInversionsImage] {
        self.tis.as_deref().unwrap_or_default()
    }

    pub fn extra_texts(&self) -> &[ExtraText] {
        self.extra_texts.as_deref().unwrap_or_default()
    }
}
