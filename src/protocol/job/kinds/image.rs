//! The request of an image job: one image. Settings that the client left out are `None`.
//!
//! The request has every setting of any API, also those that few workers support. Samplers, schedules and processors
//! have the names of [`samplers`](crate::job::samplers) and of the AI Horde API.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{JobRequest, KindFacts, MediaFile, ModelDefaults, OutputForm, PriceUnit, Rate};
use crate::job::Limits;
use crate::job::needs::Needs;

pub(super) const FACTS: KindFacts = KindFacts {
    name: "image",
    word: "image",
    ability: "image generation",
    job_type: "image",
    task: None,
    is_relayed: false,
    modality: Some("image"),
    route: Some("/v1/images/generations"),
    limits: &["pixels", "steps"],
    rate: Some(Rate {
        name: "per_image_usd",
        unit: PriceUnit::Output,
    }),
};

/// In a prompt as one text, before the part that should not be seen.
pub const NEGATIVE: &str = "###";

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageRequest {
    pub prompt: String,
    /// The negative prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub negative_prompt: Option<String>,
    /// 0 until the model decides it, as the height is.
    pub width: u32,
    pub height: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u32>,
    /// How closely it follows the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cfg_scale: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub karras: Option<bool>,
    /// A noise schedule that `karras` cannot express, by its name in the AI Horde API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_skip: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loras: Vec<Lora>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inversions: Vec<TextualInversion>,
    /// The client's API lists textual inversions separately: polling workers load no others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lists_inversions: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceImage>,
    /// `None`: decided by the presence of a mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_use: Option<SourceUse>,
    /// Denoising strength, up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// Fits to itself at opposite edges.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tiling: bool,
    /// Generates at the model's own size first, if the image is larger.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hires_fix: bool,
    /// Denoising strength of the second pass of `hires_fix`, up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hires_strength: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<ControlMap>,
    /// Post-processors to apply, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub post_processing: Vec<String>,
    /// How much post-processors change faces, up to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub face_strength: Option<f64>,
    /// Generated without a background.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub transparent: bool,
    /// The worker hides an image that is not safe for work.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub censored: bool,
    #[serde(skip_serializing_if = "SolverSettings::is_empty")]
    pub solver: SolverSettings,
    /// A way to draw that few workers know, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workflow_texts: Vec<WorkflowText>,
    /// For models of one account, in their own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub special: Option<Map<String, Value>>,
    /// Which of the request's images with this seed.
    pub index: u32,
    /// Previews that the client wants at most.
    #[serde(skip_serializing_if = "is_zero")]
    pub previews: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Settings of a solver besides its name and its noise schedule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SolverSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub churn: Option<f64>,
    /// Noise levels between which `churn` counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_level: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub most_level: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correction: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_shift: Option<f64>,
}

/// Lines that the image follows, taken from the source image.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControlMap {
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// The source image is the map.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_given: bool,
    /// The map is wanted, and no image.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub returns_map: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceUse {
    Start,
    Inpainting,
    Outpainting,
    Remix,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkflowText {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lora {
    pub name: String,
    pub model: f64,
    pub clip: f64,
    pub is_version: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject_trigger: Option<String>,
}

/// A textual inversion listed separately. Prompts name others as `embedding:NAME`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextualInversion {
    pub name: String,
    /// How much it counts where the worker adds it to a prompt.
    pub strength: f64,
    /// The prompt that the worker adds it to; `None` if a prompt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<PromptSide>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptSide {
    Shown,
    Excluded,
}

impl SolverSettings {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl ImageRequest {
    /// Both prompts as one text. The mark between them separates nothing in the first.
    pub fn prompt_text(&self) -> String {
        let shown = self.prompt.replace(NEGATIVE, "# # #");
        match &self.negative_prompt {
            Some(negative) => format!("{shown}{NEGATIVE}{negative}"),
            None => shown,
        }
    }

    /// Takes both prompts from one text.
    pub fn set_prompt_text(&mut self, text: &str) {
        let (shown, negative) = match text.split_once(NEGATIVE) {
            Some((shown, negative)) => (shown, Some(negative.to_owned())),
            None => (text, None),
        };
        self.prompt = shown.to_owned();
        self.negative_prompt = negative;
    }

    /// A setting that this program's own engine does not have.
    pub fn foreign_setting(&self) -> Option<&'static str> {
        let is_foreign_use = matches!(
            self.source_use,
            Some(SourceUse::Outpainting | SourceUse::Remix)
        );
        let settings = [
            ("source_use", is_foreign_use),
            ("control", self.control.is_some()),
            ("post_processing", !self.post_processing.is_empty()),
            ("transparent", self.transparent),
            ("censored", self.censored),
            ("solver", !self.solver.is_empty()),
            ("workflow", self.workflow.is_some()),
            ("special", self.special.is_some()),
        ];
        let mut set = settings.into_iter().filter(|(_, is_set)| *is_set);
        set.next().map(|(name, _)| name)
    }
}

/// Steps of most models.
const USUAL_STEPS: u32 = 30;
/// Size if neither the client nor the model states one.
pub const USUAL_SIZE: (u32, u32) = (1024, 1024);
/// Sides of images are multiples of it.
const SIDE_STEP: u32 = 64;
/// Sides that are chosen for models of ours are multiples of it.
const FINE_SIDE_STEP: u32 = 16;
/// Smallest side of any model.
const LEAST_SIDE: u32 = 64;

impl ImageRequest {
    /// The requested size, or the default.
    pub fn size_or_usual(&self) -> (u32, u32) {
        match self.width {
            0 => USUAL_SIZE,
            width => (width, self.height),
        }
    }
}

/// The size of this shape with about as many pixels as the model's own, or fewer where small images stay small.
fn fitted(shape: (u32, u32), own: (u32, u32), step: u32, enlarges: bool) -> (u32, u32) {
    let [width, height] = [shape.0, shape.1].map(|side| f64::from(side.max(1)));
    let scale = (f64::from(own.0) * f64::from(own.1) / (width * height)).sqrt();
    let scale = match enlarges {
        true => scale,
        false => scale.min(1.0),
    };
    // Longer shapes are limited to those that models generate.
    let longest = (own.0.max(own.1) * 3 / 2).max(LEAST_SIDE);
    let side = |side: f64| {
        let steps = (side * scale / f64::from(step)).round();
        // A cast saturates.
        (steps as u32).clamp(LEAST_SIDE / step, longest / step) * step
    };
    (side(width), side(height))
}

/// The largest size of this shape that has no more pixels.
fn within(size: (u32, u32), most: u32, step: u32) -> (u32, u32) {
    let pixels = f64::from(size.0) * f64::from(size.1);
    if pixels <= f64::from(most) {
        return size;
    }
    let scale = (f64::from(most) / pixels).sqrt();
    let side = |side: u32| {
        let steps = f64::from(side) * scale / f64::from(step);
        (steps as u32).max(1) * step
    };
    (side(size.0), side(size.1))
}

impl JobRequest for ImageRequest {
    fn is_unbound(&self) -> bool {
        self.width == 0
    }

    fn bind(&mut self, model: &ModelDefaults) {
        if self.is_unbound() {
            let usual = || within(USUAL_SIZE, model.reach.media.pixels, SIDE_STEP);
            let shape = self.source.as_mut().and_then(|source| source.size.take());
            (self.width, self.height) = match (shape, model.size) {
                (Some(shape), Some(own)) => {
                    let size = fitted(shape, own, FINE_SIDE_STEP, true);
                    within(size, model.reach.media.pixels, FINE_SIDE_STEP)
                }
                // Public workers do not say a size.
                (Some(shape), None) => {
                    let size = fitted(shape, usual(), SIDE_STEP, false);
                    within(size, model.reach.media.pixels, SIDE_STEP)
                }
                (None, own) => own.unwrap_or_else(usual),
            };
        }
    }

    fn seed(&self) -> Option<u64> {
        self.seed
    }

    fn set_seed(&mut self, seed: u64) {
        self.seed = Some(seed);
    }

    fn output(&self) -> OutputForm {
        OutputForm::File(MediaFile::Image)
    }

    fn size(&self) -> u64 {
        let (width, height) = self.size_or_usual();
        let pixels = u64::from(width) * u64::from(height);
        pixels.saturating_mul(self.steps.unwrap_or(USUAL_STEPS).into())
    }

    fn picture_size(&self) -> Option<(u32, u32)> {
        Some((self.width, self.height))
    }

    /// An image of 1024x1024 in 30 steps is a typical job.
    fn work(&self, limits: &Limits) -> u64 {
        const PIXELSTEPS: u64 = 1024 * 1024 * 30 / 1000;
        match limits.needs {
            Needs::Media(image) if image.pixels > 0 => {
                u64::from(image.pixels) * u64::from(image.steps) / PIXELSTEPS
            }
            _ => self.size() / PIXELSTEPS,
        }
    }

    fn steps(&self) -> Option<u32> {
        self.steps
    }

    fn previews(&self) -> u32 {
        self.previews
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
}

/// In a prompt, before the name of a textual inversion.
const INVERSION: &str = "embedding:";

/// The textual inversions that a prompt names, as far as their names end at a space, a comma or a bracket.
pub fn named_inversions(prompt: &str) -> impl Iterator<Item = &str> {
    let places = prompt.match_indices(INVERSION);
    places.filter_map(|(at, _)| {
        let before = prompt[..at].chars().next_back();
        let is_start = before.is_none_or(|it| it.is_whitespace() || matches!(it, '(' | ')'));
        let rest = &prompt[at + INVERSION.len()..];
        let ends = |it: char| it.is_whitespace() || matches!(it, ',' | ':' | '(' | ')');
        let name = &rest[..rest.find(ends).unwrap_or(rest.len())];
        (is_start && !name.is_empty()).then_some(name)
    })
}

/// The images it begins with, by their keys in the media store; on the link to a worker, by signed links.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceImage {
    pub image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<String>,
    /// Further source images, with their weights.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra: Vec<(String, f64)>,
    /// Width and height of the first, until an image without a size is fitted to its shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<(u32, u32)>,
}

impl SourceImage {
    pub fn keys(&self) -> Vec<&str> {
        let extra = self.extra.iter().map(|(image, _)| &**image);
        let first = std::iter::once(&*self.image).chain(self.mask.as_deref());
        first.chain(extra).collect()
    }

    pub fn keys_mut(&mut self) -> Vec<&mut String> {
        let extra = self.extra.iter_mut().map(|(image, _)| image);
        let first = std::iter::once(&mut self.image).chain(self.mask.as_mut());
        first.chain(extra).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{ImageRequest, SourceImage, named_inversions};
    use crate::job::{JobRequest, ModelDefaults, Reach};

    #[test]
    fn both_prompts_are_one_text_and_come_back() {
        let check = |text: &str, prompt: &str, negative: Option<&str>| {
            let mut image = ImageRequest::default();
            image.set_prompt_text(text);
            assert_eq!(image.prompt, prompt);
            assert_eq!(image.negative_prompt.as_deref(), negative);
            assert_eq!(image.prompt_text(), text);
        };
        check("a cat", "a cat", None);
        check("a cat ### a dog", "a cat ", Some(" a dog"));
        check("a cat###a###b", "a cat", Some("a###b"));
        check("a cat###", "a cat", Some(""));
        let marked = ImageRequest {
            prompt: "a ### b".to_owned(),
            negative_prompt: Some("c".to_owned()),
            ..ImageRequest::default()
        };
        assert_eq!(marked.prompt_text(), "a # # # b###c");
    }

    #[test]
    fn prompts_name_textual_inversions() {
        let check = |prompt: &str, expected: &[&str]| {
            let found: Vec<_> = named_inversions(prompt).collect();
            assert_eq!(found, expected, "{prompt}");
        };
        check("a cat", &[]);
        check("embedding: a", &[]);
        check("disembedding:x", &[]);
        check(
            "embedding:owl, (embedding:fox-2:1.2)\nembedding:a.b",
            &["owl", "fox-2", "a.b"],
        );
    }

    #[test]
    fn an_image_without_a_size_has_the_shape_of_its_source() {
        let check = |source, own, most, expected| {
            let mut reach = Reach::ENDLESS;
            reach.media.pixels = most;
            let mut image = ImageRequest {
                source: Some(SourceImage {
                    size: Some(source),
                    ..SourceImage::default()
                }),
                ..ImageRequest::default()
            };
            image.bind(&ModelDefaults {
                size: own,
                reach,
                ..ModelDefaults::default()
            });
            assert_eq!((image.width, image.height), expected, "{source:?}");
            assert_eq!(image.source.unwrap().size, None);
        };
        for (source, expected) in [
            ((1024, 768), (1024, 768)),
            ((128, 128), (128, 128)),
            ((1, 1), (64, 64)),
            ((300, 200), (320, 192)),
            ((2048, 2048), (1024, 1024)),
            ((3000, 1000), (1536, 576)),
            ((1, 16_000), (64, 1536)),
        ] {
            check(source, None, u32::MAX, expected);
        }
        let own = Some((512, 512));
        check((4000, 3000), own, u32::MAX, (592, 448));
        check((128, 128), own, u32::MAX, (512, 512));
        check((3000, 1000), own, u32::MAX, (768, 288));
        check((4000, 3000), own, 512 * 512, (576, 432));
    }

    #[test]
    fn a_size_that_nobody_names_is_the_models_or_fits_it() {
        let check = |asked: (u32, u32), size, most, expected| {
            let mut reach = Reach::ENDLESS;
            reach.media.pixels = most;
            let model = ModelDefaults {
                size,
                reach,
                ..ModelDefaults::default()
            };
            let mut image = ImageRequest {
                width: asked.0,
                height: asked.1,
                ..ImageRequest::default()
            };
            image.bind(&model);
            assert_eq!((image.width, image.height), expected);
        };
        check((0, 0), Some((64, 64)), u32::MAX, (64, 64));
        check((0, 0), None, u32::MAX, (1024, 1024));
        check((0, 0), None, 512 * 512, (512, 512));
        check((0, 0), None, 300 * 300, (256, 256));
        check((128, 192), Some((64, 64)), u32::MAX, (128, 192));
    }
}
