//! Every field of a request for images.

use std::sync::Arc;

use serde_json::Value;

use super::settings::{loras, sampler, schedule};
use super::{ImageDelivery, ImageEncoding, ImageFormat, ImagesRequest, LARGEST_SEED};
use crate::job::{ImageRequest, Lora};
use crate::legacy::image::neutral;
use crate::legacy::words::Sampler;
use crate::openai::field::Field;
use crate::openai::nearest::shortened;
use crate::openai::shape::whole;
use crate::openai::{Problem, Shape};

/// The request so far.
pub struct ImagesDraft {
    model: Option<String>,
    count: u32,
    prompt: Option<String>,
    negative_prompt: Option<String>,
    size: Option<(u32, u32)>,
    steps: Option<u32>,
    cfg_scale: Option<f64>,
    sampler: Option<String>,
    schedule: Schedule,
    seed: Option<u64>,
    loras: Vec<Lora>,
    encoding: Option<ImageEncoding>,
    format: ImageFormat,
    stream: bool,
    previews: Option<u32>,
    progress_token: Option<String>,
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
            steps: None,
            cfg_scale: None,
            sampler: None,
            schedule: Schedule::default(),
            seed: None,
            loras: Vec::new(),
            encoding: None,
            format: ImageFormat::default(),
            stream: false,
            previews: None,
            progress_token: None,
        }
    }
}

/// The size for models whose own is unknown.
pub const USUAL_SIZE: (u32, u32) = (1024, 1024);
const SIDES: std::ops::RangeInclusive<u32> = 256..=1536;
const SIDE_STEP: u32 = 64;
/// As OpenAI's API has it, in characters.
const LONGEST_PROMPT: usize = 32_000;
const LONGEST_NAME: usize = 256;
const LONGEST_TOKEN: usize = 128;
/// The largest seed of the poll API.
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

#[rustfmt::skip]
pub const FIELDS: &[Field<ImagesDraft>] = &[
    field("prompt", Shape::Text, "Text that describes the image; at most 32000 characters.", |draft, value| {
        draft.prompt = Some(bounded("prompt", value, LONGEST_PROMPT)?);
        Ok(())
    }),
    field("model", Shape::Text, "Model name as listed by /v1/models?type=all; if absent, the online image model with the most workers.", |draft, value| {
        draft.model = Some(bounded("model", value, LONGEST_NAME)?);
        Ok(())
    }),
    field("n", Shape::Integer(1..=4), "Number of images; all are made or the request fails.", |draft, value| {
        draft.count = number(&value).unwrap_or(1);
        Ok(())
    }),
    field("size", Shape::Text, "auto, or WIDTHxHEIGHT with multiples of 64 from 256 to 1536; if absent or auto, the model's own size, or 1024x1024 where no worker says it.", |draft, value| {
        draft.size = size(&text(value))?;
        Ok(())
    }),
    field("response_format", Shape::Word(&["url", "b64_json"]), "url: a signed link that expires after an hour. b64_json: the image as base64. If absent, url; in streams, b64_json.", |draft, value| {
        draft.encoding = Some(match value == "url" {
            true => ImageEncoding::Url,
            false => ImageEncoding::Base64,
        });
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
    field("moderation", Shape::Word(&["auto", "low"]), "auto or low; no effect: the filters of the operator apply to every prompt.", |_, _| Ok(())),
    field("quality", Shape::Word(&["standard", "hd", "low", "medium", "high", "auto"]), "Quality of OpenAI's models; no effect: set steps.", |_, _| Ok(())),
    field("style", Shape::Text, "Not supported: describe the style in the prompt.", |_, _| {
        let message = "style is not supported here: describe the style in the prompt";
        Err(Problem::unsupported("style", message))
    }),
    field("user", Shape::Text, "Your identifier of the end user; no effect.", |_, _| Ok(())),
    field("seed", Shape::Integer(0..=LARGEST_SEED), "Seed of the first image; each further image has the next one. Polling workers take seeds below 2^32.", |draft, value| {
        draft.seed = whole(&value).and_then(|seed| u64::try_from(seed).ok());
        Ok(())
    }),
    field("negative_prompt", Shape::Text, "Text that describes the opposite of the image; at most 32000 characters.", |draft, value| {
        draft.negative_prompt = Some(bounded("negative_prompt", value, LONGEST_PROMPT)?);
        Ok(())
    }),
    field("steps", Shape::Integer(1..=80), "Denoising steps; if absent, as many as suit the model.", |draft, value| {
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
    field("loras", Shape::List, "At most 5 LoRAs: objects with name, and optionally model and clip (strengths from -2 to 2), is_version and inject_trigger.", |draft, value| {
        draft.loras = loras(value)?;
        Ok(())
    }),
    field("image", Shape::Text, "Not supported: no source image is accepted.", |_, _| never("image")),
    field("strength", Shape::Number(0.0..=1.0), "Not supported: no source image is accepted.", |_, _| never("strength")),
    field("stream", Shape::Flag, "Send server-sent events: one image_generation.completed for each image.", |draft, value| {
        draft.stream = value == true;
        Ok(())
    }),
    field("partial_images", Shape::Integer(0..=3), "Previews of each image in a stream, at most; workers that make no previews send none.", |draft, value| {
        draft.previews = number(&value);
        Ok(())
    }),
    field("progress_token", Shape::Text, "A name that is hard to guess, of at most 128 bytes: /v1/progress/{token} shows how far the request is.", |draft, value| {
        draft.progress_token = Some(progress_token(text(value))?);
        Ok(())
    }),
];

impl ImagesDraft {
    pub fn finish(self) -> Result<ImagesRequest, Problem> {
        let prompt = self.prompt.ok_or_else(|| {
            Problem::invalid("prompt", "prompt is missing: send a text for the image")
        })?;
        if self.previews.is_some_and(|most| most > 0) && !self.stream {
            let message = "partial_images requires stream to be true";
            return Err(Problem::unsupported("partial_images", message));
        }
        let usual = match self.stream {
            true => ImageEncoding::Base64,
            false => ImageEncoding::Url,
        };
        let has_schedule = self.schedule != Schedule::default();
        let sampler = self.sampler.as_deref().and_then(neutral::sampler);
        let is_newer = sampler.is_some_and(Sampler::is_newer);
        let is_long_seed = self.seed.is_some_and(|seed| seed > POLLED_SEED - 3);
        let names = |list: &[(bool, &'static str)]| {
            let named = list.iter().filter(|(is_set, _)| *is_set);
            named.map(|(_, name)| *name).collect()
        };
        // The model's own is not known here.
        let (width, height) = self.size.unwrap_or_default();
        Ok(ImagesRequest {
            model: self.model.map(Arc::from),
            count: self.count,
            image: ImageRequest {
                prompt,
                negative_prompt: self.negative_prompt,
                width,
                height,
                steps: self.steps,
                cfg_scale: self.cfg_scale,
                sampler: self.sampler,
                karras: self.schedule.karras,
                scheduler: self.schedule.other,
                seed: self.seed,
                loras: self.loras,
                ..ImageRequest::default()
            },
            delivery: ImageDelivery {
                encoding: self.encoding.unwrap_or(usual),
                format: self.format,
            },
            stream: self.stream,
            previews: self.previews.unwrap_or_default(),
            progress_token: self.progress_token,
            only_polled: names(&[(has_schedule, "scheduler"), (is_newer, "sampler")]),
            never_polled: names(&[(is_long_seed, "seed")]),
        })
    }
}

/// `auto`, or width and height.
fn size(text: &str) -> Result<Option<(u32, u32)>, Problem> {
    if text == "auto" {
        return Ok(None);
    }
    let side = |text: &str| {
        let side: u32 = text.parse().ok()?;
        (SIDES.contains(&side) && side.is_multiple_of(SIDE_STEP)).then_some(side)
    };
    let sides = text.split_once('x');
    let sides = sides.and_then(|(width, height)| Some((side(width)?, side(height)?)));
    sides.map(Some).ok_or_else(|| {
        let (least, most) = (SIDES.start(), SIDES.end());
        let found = shortened(text);
        let message = format!(
            "size must be auto or WIDTHxHEIGHT with multiples of {SIDE_STEP} from {least} to {most}, found {found:?}"
        );
        Problem::invalid("size", message)
    })
}

pub fn progress_token(token: String) -> Result<String, Problem> {
    match token.len() {
        1..=LONGEST_TOKEN => Ok(token),
        found => {
            let message =
                format!("progress_token must have 1 to {LONGEST_TOKEN} bytes, found {found}");
            Err(Problem::invalid("progress_token", message))
        }
    }
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

pub fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        _ => String::new(),
    }
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

fn never(name: &'static str) -> Result<(), Problem> {
    let message = format!("{name} is not supported here");
    Err(Problem::unsupported(name, message))
}
