//! Every field of a request for images.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::inputs::ImageInputs;
use super::settings::{loras, sampler, schedule};
use super::{ImageDelivery, ImageDoor, ImageFormat, ImagesRequest, LARGEST_SEED};
use crate::job::{ImageRequest, Lora, USUAL_SIZE, samplers};
use crate::openai::field::Field;
use crate::openai::form::FormFile;
use crate::openai::media::{self, MediaEncoding, MediaTracking};
use crate::openai::nearest::shortened;
use crate::openai::shape::{text, whole};
use crate::openai::{Problem, Shape};

/// The request so far.
pub struct ImagesDraft {
    model: Option<String>,
    count: u32,
    prompt: Option<String>,
    negative_prompt: Option<String>,
    size: Option<(u32, u32)>,
    sides: (Option<u32>, Option<u32>),
    steps: Option<u32>,
    cfg_scale: Option<f64>,
    sampler: Option<String>,
    schedule: Schedule,
    seed: Option<u64>,
    loras: Vec<Lora>,
    clip_skip: Option<u32>,
    has_tiling: bool,
    has_second_pass: bool,
    second_strength: Option<f64>,
    encoding: Option<MediaEncoding>,
    format: ImageFormat,
    stream: bool,
    previews: Option<u32>,
    tracking: MediaTracking,
    strength: Option<f64>,
    inputs: ImageInputs,
    ignored: Vec<String>,
}

/// A noise schedule as the neutral request has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    pub karras: Option<bool>,
    pub other: Option<String>,
}

impl Default for ImagesDraft {
    fn default() -> Self {
        Self {
            model: None,
            count: 1,
            prompt: None,
            negative_prompt: None,
            size: None,
            sides: (None, None),
            steps: None,
            cfg_scale: None,
            sampler: None,
            schedule: Schedule::default(),
            seed: None,
            loras: Vec::new(),
            clip_skip: None,
            has_tiling: false,
            has_second_pass: false,
            second_strength: None,
            encoding: None,
            format: ImageFormat::default(),
            stream: false,
            previews: None,
            tracking: MediaTracking::default(),
            strength: None,
            inputs: ImageInputs::default(),
            ignored: Vec::new(),
        }
    }
}

const LEAST_SIDE: u32 = 256;
/// Limits of our engine.
const LONGEST_SIDE: u32 = 4096;
const SIDE_STEP: u32 = 16;
/// Limits of public workers.
const USUAL_LONGEST_SIDE: u32 = 1536;
const USUAL_SIDE_STEP: u32 = 64;
const MOST_USUAL_STEPS: u32 = 80;
/// The shortest side of a video.
const LEAST_VIDEO_SIDE: u32 = 64;
/// Images of a request.
const MOST_IMAGES: i64 = 10;
/// As in OpenAI's API, in characters.
const LONGEST_PROMPT: usize = 32_000;
const LONGEST_NAME: usize = 256;
const SIDE: Shape = Shape::Either(&[Shape::Integer(0..=i64::MAX), Shape::Text]);
/// Denoising strength of a variation.
const VARIATION: f64 = 0.6;
/// The largest seed of the AI Horde API.
const POLLED_SEED: u64 = u32::MAX as u64;

/// One field of a request.
const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut ImagesDraft, Value) -> Result<(), Problem>,
) -> Field<ImagesDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

/// In place of `size`.
const SIDE_FIELDS: [&str; 2] = ["width", "height"];
/// Fields of `/v1/generate`.
const PLAIN: [&str; 15] = [
    "prompt",
    "model",
    "n",
    "width",
    "height",
    "negative_prompt",
    "steps",
    "seed",
    "cfg_scale",
    "sampler",
    "output_format",
    "response_format",
    "progress_token",
    "async",
    "client_ref",
];
/// Fields that variations lack.
const OF_PROMPTS: [&str; 7] = [
    "prompt",
    "negative_prompt",
    "mask",
    "images",
    "input_fidelity",
    "stream",
    "partial_images",
];

impl ImageDoor {
    /// Whether a route has the field.
    fn has(self, name: &str) -> bool {
        match self {
            Self::Generate => {
                !["images", "input_fidelity"].contains(&name) && !SIDE_FIELDS.contains(&name)
            }
            Self::Edit => !SIDE_FIELDS.contains(&name),
            Self::Vary => !OF_PROMPTS.contains(&name) && !SIDE_FIELDS.contains(&name),
            Self::Plain => PLAIN.contains(&name),
        }
    }

    /// Every field of a route.
    pub fn fields(self) -> &'static [Field<ImagesDraft>] {
        static DOORS: LazyLock<[Vec<Field<ImagesDraft>>; 4]> = LazyLock::new(|| {
            ImageDoor::ALL.map(|door| {
                let mut fields = fields();
                fields.retain(|field| door.has(field.name));
                fields
            })
        });
        &DOORS[self as usize]
    }
}

#[rustfmt::skip]
fn fields() -> Vec<Field<ImagesDraft>> { vec![
    field("prompt", Shape::Text, "Text that describes the image; at most 32000 characters.", |draft, value| {
        draft.prompt = Some(bounded("prompt", value, LONGEST_PROMPT)?);
        Ok(())
    }),
    field("model", Shape::Text, "Model name as listed by /v1/models?type=all; if absent, the online image model with the most workers.", |draft, value| {
        draft.model = Some(bounded("model", value, LONGEST_NAME)?);
        Ok(())
    }),
    field("n", Shape::Integer(1..=MOST_IMAGES), "Number of images; all are made or the request fails.", |draft, value| {
        draft.count = number(&value).unwrap_or(1);
        Ok(())
    }),
    field("size", Shape::Text, "auto, or WIDTHxHEIGHT with multiples of 16 from 256 to 4096, of 64 up to 1536 for public workers; if absent or auto, the model's own size, or 1024x1024 where no worker says it.", |draft, value| {
        draft.size = size(&text(value), SideRule::IMAGE)?;
        Ok(())
    }),
    field("width", SIDE, "Width in pixels: a multiple of 16 from 256 to 4096, of 64 up to 1536 for public workers; if absent, that of the model, or 1024 beside a height.", |draft, value| {
        draft.sides.0 = Some(side("width", &value)?);
        Ok(())
    }),
    field("height", SIDE, "Height in pixels; as width.", |draft, value| {
        draft.sides.1 = Some(side("height", &value)?);
        Ok(())
    }),
    field("response_format", Shape::Word(&["url", "b64_json"]), "url: a signed link that expires after an hour. b64_json: the image as base64. If absent, both; in streams, b64_json.", |draft, value| {
        draft.encoding = Some(MediaEncoding::named(&value));
        Ok(())
    }),
    field("output_format", Shape::Word(&["webp", "png", "jpeg", "jpg"]), "Type of the image file; webp if absent.", |draft, value| {
        draft.format = match value.as_str() {
            Some("png") => ImageFormat::Png,
            Some("jpeg" | "jpg") => ImageFormat::Jpeg,
            _ => ImageFormat::Webp,
        };
        Ok(())
    }),
    field("output_compression", Shape::Integer(0..=100), "Only 100: the coordinator chooses the compression by the size of the image.", |_, value| {
        only("output_compression", whole(&value) == Some(100), "100")
    }),
    field("background", Shape::Word(&["auto", "opaque", "transparent"]), "Only auto and opaque: no worker is asked for transparent images.", |_, value| {
        only("background", value != "transparent", "auto or opaque")
    }),
    field("moderation", Shape::Word(&["auto", "low"]), "auto or low; no effect: the filters of the operator apply to every prompt.", |draft, _| draft.ignore("moderation")),
    field("quality", Shape::Word(&["standard", "hd", "low", "medium", "high", "auto"]), "Quality of OpenAI's models; no effect: set steps.", |draft, _| draft.ignore("quality")),
    field("style", Shape::Text, "Not supported: describe the style in the prompt.", |_, _| {
        let message = "style is not supported here: describe the style in the prompt";
        Err(Problem::unsupported("style", message))
    }),
    field("user", Shape::Text, "Your identifier of the end user; no effect.", |draft, _| draft.ignore("user")),
    field("safety_identifier", Shape::Text, "Your identifier of the end user; no effect.", |draft, _| draft.ignore("safety_identifier")),
    field("seed", Shape::Integer(0..=LARGEST_SEED), "Seed of the first image; each further image has the next one. Polling workers take seeds below 2^32.", |draft, value| {
        draft.seed = whole(&value).and_then(|seed| u64::try_from(seed).ok());
        Ok(())
    }),
    field("negative_prompt", Shape::Text, "Text that describes the opposite of the image; at most 32000 characters.", |draft, value| {
        draft.negative_prompt = Some(bounded("negative_prompt", value, LONGEST_PROMPT)?);
        Ok(())
    }),
    field("steps", Shape::Integer(1..=500), "Denoising steps, up to 80 for public workers on sockets; if absent, as many as suit the model.", |draft, value| {
        draft.steps = number(&value);
        Ok(())
    }),
    field("cfg_scale", Shape::Number(0.0..=30.0), "How closely the image follows the prompt; if absent, as suits the model.", |draft, value| {
        draft.cfg_scale = value.as_f64();
        Ok(())
    }),
    field("sampler", Shape::Text, "Sampler by its name in the AI Horde API or in ComfyUI, such as k_euler or euler; if absent, one that suits the model.", |draft, value| {
        draft.sampler = Some(sampler(&text(value))?);
        Ok(())
    }),
    field("scheduler", Shape::Text, "Noise schedule, such as karras, normal or simple; not by public media workers. If absent, one that suits the model.", |draft, value| {
        draft.schedule = schedule(&text(value))?;
        Ok(())
    }),
    field("clip_skip", Shape::Integer(1..=12), "Layers at the end of the text encoder that are left out, 1 being none; if absent, as suits the model. Not by public media workers.", |draft, value| {
        draft.clip_skip = number(&value);
        Ok(())
    }),
    field("tiling", Shape::Flag, "Draw an image that fits to itself at opposite edges; not by public media workers.", |draft, value| {
        draft.has_tiling = value == Value::Bool(true);
        Ok(())
    }),
    field("hires_fix", Shape::Flag, "Draw an image above the model's own size smaller first; not by public media workers.", |draft, value| {
        draft.has_second_pass = value == Value::Bool(true);
        Ok(())
    }),
    field("hires_fix_denoising_strength", Shape::Number(0.01..=1.0), "How much of the enlarged image is drawn anew. Requires hires_fix.", |draft, value| {
        draft.second_strength = value.as_f64();
        Ok(())
    }),
    field("loras", Shape::List, "At most 5 LoRAs: objects with name, and optionally model and clip (strengths from -2 to 2), is_version and inject_trigger.", |draft, value| {
        draft.loras = loras(value)?;
        Ok(())
    }),
    field("image", Shape::Either(&[Shape::Text, Shape::List]), "Image to begin with, or an array of images: base64, a data URL, or an http(s) link; a PNG, JPEG or WebP of one frame and at most 67108864 pixels. More than 9437184 are made fewer.", |draft, value| {
        draft.inputs.take_images("image", value)
    }),
    field("images", Shape::List, "Images as objects with image_url: a data URL or an http(s) link. Not beside image.", |draft, value| {
        if draft.inputs.images.is_empty() {
            return draft.inputs.take_images("images", value);
        }
        Err(Problem::invalid("images", "images must not be sent beside image"))
    }),
    field("mask", Shape::Either(&[Shape::Text, Shape::Object]), "Image of the size of the first one, transparent, or white on black, where that is drawn anew; as image.", |draft, value| {
        draft.inputs.take_mask(value)
    }),
    field("input_fidelity", Shape::Word(&["low", "high"]), "Effort to keep features of the image in OpenAI's models; no effect: set strength.", |draft, _| draft.ignore("input_fidelity")),
    field("strength", Shape::Number(0.0..=1.0), "How much of the image is drawn anew; if absent, as suits the model. Requires image.", |draft, value| {
        draft.strength = value.as_f64();
        Ok(())
    }),
    field("denoise", Shape::Number(0.0..=1.0), "Alias of strength.", |draft, value| {
        draft.strength = value.as_f64();
        Ok(())
    }),
    field("stream", Shape::Flag, "Send server-sent events: one image_generation.completed for each image.", |draft, value| {
        draft.stream = value == true;
        Ok(())
    }),
    field("partial_images", Shape::Integer(0..=3), "Previews of each image in a stream, at most; workers that make no previews send none.", |draft, value| {
        draft.previews = number(&value);
        Ok(())
    }),
    field("progress_token", Shape::Text, media::PROGRESS_TOKEN, |draft, value| draft.tracking.take_progress_token(value)),
    field("async", Shape::Flag, media::ASYNC, |draft, value| draft.tracking.take_async(&value)),
    field("client_ref", Shape::Text, media::CLIENT_REF, |draft, value| draft.tracking.take_client_ref(value)),
] }

impl ImagesDraft {
    fn ignore(&mut self, name: &str) -> Result<(), Problem> {
        self.ignored.push(name.to_owned());
        Ok(())
    }

    /// The images of a form.
    pub fn take_file(&mut self, file: FormFile, door: ImageDoor) -> Result<(), Problem> {
        match door {
            ImageDoor::Generate | ImageDoor::Plain => Err(file.unwanted()),
            ImageDoor::Edit | ImageDoor::Vary => {
                self.inputs.take_file(file, door == ImageDoor::Edit)
            }
        }
    }

    pub fn finish(self, door: ImageDoor) -> Result<ImagesRequest, Problem> {
        let prompt = match (self.prompt, door) {
            (Some(prompt), _) => prompt,
            (None, ImageDoor::Vary) => String::new(),
            (None, _) => {
                let message = "prompt is missing: send a text for the image";
                return Err(Problem::invalid("prompt", message));
            }
        };
        let is_inline = self.encoding == Some(MediaEncoding::Base64);
        self.tracking.check(!is_inline, "response_format")?;
        self.tracking.check(!self.stream, "stream")?;
        check_inputs(&self.inputs, self.strength, door)?;
        if self.previews.is_some_and(|most| most > 0) && !self.stream {
            let message = "partial_images requires stream to be true";
            return Err(Problem::unsupported("partial_images", message));
        }
        let usual = match self.stream {
            true => MediaEncoding::Base64,
            false => MediaEncoding::UrlAndBase64,
        };
        let has_schedule = self.schedule != Schedule::default();
        let is_newer = self.sampler.as_deref().is_some_and(samplers::is_newer);
        let is_long_seed = self
            .seed
            .is_some_and(|seed| seed > POLLED_SEED - (MOST_IMAGES as u64 - 1));
        let names = |list: &[(bool, &'static str)]| {
            let named = list.iter().filter(|(is_set, _)| *is_set);
            named.map(|(_, name)| *name).collect()
        };
        if self.second_strength.is_some() && !self.has_second_pass {
            let message = "hires_fix_denoising_strength requires hires_fix";
            return Err(Problem::invalid("hires_fix_denoising_strength", message));
        }
        // The model's own is not known here.
        let (width, height) = match self.sides {
            (None, None) => self.size.unwrap_or_default(),
            (width, height) => (
                width.unwrap_or(USUAL_SIZE.0),
                height.unwrap_or(USUAL_SIZE.1),
            ),
        };
        let is_unusual = [width, height]
            .iter()
            .any(|side| *side > USUAL_LONGEST_SIDE || !side.is_multiple_of(USUAL_SIDE_STEP));
        Ok(ImagesRequest {
            door,
            model: self.model.map(Arc::from),
            count: self.count,
            image: ImageRequest {
                prompt,
                negative_prompt: self.negative_prompt.filter(|text| !text.is_empty()),
                width,
                height,
                steps: self.steps,
                cfg_scale: self.cfg_scale,
                sampler: self.sampler,
                karras: self.schedule.karras,
                scheduler: self.schedule.other,
                seed: self.seed,
                loras: self.loras,
                clip_skip: self.clip_skip,
                tiling: self.has_tiling,
                hires_fix: self.has_second_pass,
                hires_strength: self.second_strength,
                strength: self.strength.or(match door {
                    ImageDoor::Vary => Some(VARIATION),
                    ImageDoor::Generate | ImageDoor::Edit | ImageDoor::Plain => None,
                }),
                ..ImageRequest::default()
            },
            delivery: ImageDelivery {
                encoding: self.encoding.unwrap_or(usual),
                format: self.format,
            },
            stream: self.stream,
            previews: self.previews.unwrap_or_default(),
            tracking: self.tracking,
            only_polled: names(&[
                (has_schedule, "scheduler"),
                (is_newer, "sampler"),
                (self.clip_skip.is_some(), "clip_skip"),
                (self.has_tiling, "tiling"),
                (self.has_second_pass, "hires_fix"),
                (self.inputs.mask.is_some(), "mask"),
                (self.inputs.images.len() > 1, "image"),
                (is_unusual, "size"),
                (
                    self.steps.is_some_and(|steps| steps > MOST_USUAL_STEPS),
                    "steps",
                ),
            ]),
            inputs: self.inputs,
            never_polled: names(&[(is_long_seed, "seed"), (is_unusual, "size")]),
            ignored: self.ignored,
        })
    }
}

fn check_inputs(
    inputs: &ImageInputs,
    strength: Option<f64>,
    door: ImageDoor,
) -> Result<(), Problem> {
    let missing = |field: &'static str| {
        let message = format!("{field} requires image: send the image to begin with");
        Problem::invalid(field, message)
    };
    match inputs.images.len() {
        0 if matches!(door, ImageDoor::Edit | ImageDoor::Vary) => {
            let message = "image is missing: send the image to begin with";
            Err(Problem::invalid("image", message))
        }
        0 if inputs.mask.is_some() => Err(missing("mask")),
        0 if strength.is_some() => Err(missing("strength")),
        2.. if door == ImageDoor::Vary => {
            Err(Problem::invalid("image", "image must be one image here"))
        }
        _ => Ok(()),
    }
}

/// Sides that a kind of media takes.
#[derive(Debug, Clone, Copy)]
pub struct SideRule {
    step: u32,
    least: u32,
    most: u32,
}

impl SideRule {
    const IMAGE: Self = Self {
        step: SIDE_STEP,
        least: LEAST_SIDE,
        most: LONGEST_SIDE,
    };
    pub const VIDEO: Self = Self {
        step: SIDE_STEP,
        least: LEAST_VIDEO_SIDE,
        most: LONGEST_SIDE,
    };

    fn takes(self, side: u32) -> bool {
        (self.least..=self.most).contains(&side) && side.is_multiple_of(self.step)
    }
}

/// `auto`, or width and height.
pub fn size(text: &str, rule: SideRule) -> Result<Option<(u32, u32)>, Problem> {
    if text == "auto" {
        return Ok(None);
    }
    let side = |text: &str| text.parse().ok().filter(|side| rule.takes(*side));
    let sides = text.split_once('x');
    let sides = sides.and_then(|(width, height)| Some((side(width)?, side(height)?)));
    sides.map(Some).ok_or_else(|| {
        let SideRule { step, least, most } = rule;
        let found = shortened(text);
        let message = format!(
            "size must be auto or WIDTHxHEIGHT with multiples of {step} from {least} to {most}, found {found:?}"
        );
        Problem::invalid("size", message)
    })
}

/// A number, or a text of one.
fn side(name: &'static str, value: &Value) -> Result<u32, Problem> {
    let given = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => number(value),
    };
    let rule = SideRule::IMAGE;
    given.filter(|side| rule.takes(*side)).ok_or_else(|| {
        let SideRule { step, least, most } = rule;
        let message = format!("{name} must be a multiple of {step} from {least} to {most}");
        Problem::invalid(name, message)
    })
}

/// A text with at least one character. Control characters alone are none.
pub fn bounded(name: &'static str, value: Value, most: usize) -> Result<String, Problem> {
    let text = text(value);
    let is_blank = text
        .chars()
        .all(|one| one.is_control() || one.is_whitespace());
    match text.chars().count() {
        _ if is_blank => Err(Problem::invalid(name, format!("{name} is empty"))),
        count if count > most => {
            let message = format!("{name} must have at most {most} characters, found {count}");
            Err(Problem::invalid(name, message))
        }
        _ => Ok(text),
    }
}

pub fn number(value: &Value) -> Option<u32> {
    whole(value).and_then(|number| u32::try_from(number).ok())
}

fn only(name: &'static str, is_honoured: bool, values: &str) -> Result<(), Problem> {
    match is_honoured {
        true => Ok(()),
        false => {
            let message = format!("{name} must be {values} here");
            Err(Problem::unsupported(name, message))
        }
    }
}
