//! Every field of a request for a video.

use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::{VideoDoor, VideosRequest};
use crate::job::{LONGEST_VIDEO, MOST_FRAMES, VideoRequest};
use crate::openai::field::Field;
use crate::openai::form::FormFile;
use crate::openai::images::inputs::{ImageInput, ImageInputs};
use crate::openai::images::{LARGEST_SEED, SideRule, bounded, number, sampler, size};
use crate::openai::media::{self, MediaEncoding, MediaTracking};
use crate::openai::shape::{text, whole};
use crate::openai::{Problem, Shape};

const SECONDS: std::ops::RangeInclusive<f64> = 1.0..=LONGEST_VIDEO;
const LONGEST_PROMPT: usize = 32_000;
const LONGEST_NAME: usize = 256;

/// The request so far.
#[derive(Default)]
pub struct VideoDraft {
    model: Option<String>,
    prompt: Option<String>,
    size: Option<(u32, u32)>,
    seconds: Option<f64>,
    fps: Option<u32>,
    video: VideoRequest,
    inputs: ImageInputs,
    tracking: MediaTracking,
    encoding: MediaEncoding,
}

/// One field of a request.
const fn field(
    name: &'static str,
    shape: Shape,
    about: &'static str,
    take: fn(&mut VideoDraft, Value) -> Result<(), Problem>,
) -> Field<VideoDraft> {
    Field {
        name,
        about,
        shape,
        take,
    }
}

/// Fields of one route alone.
const ONLY_CREATE: [&str; 1] = ["input_reference"];
const ONLY_GENERATE: [&str; 5] = ["image", "n", "async", "response_format", "progress_token"];

impl VideoDoor {
    /// Every field of a route.
    pub fn fields(self) -> &'static [Field<VideoDraft>] {
        static DOORS: LazyLock<[Vec<Field<VideoDraft>>; 2]> = LazyLock::new(|| {
            VideoDoor::ALL.map(|door| {
                let mut fields = fields();
                fields.retain(|field| !door.lacks(field.name));
                fields
            })
        });
        &DOORS[self as usize]
    }

    fn lacks(self, name: &str) -> bool {
        match self {
            Self::Generate => ONLY_CREATE.contains(&name),
            Self::Create => ONLY_GENERATE.contains(&name),
        }
    }
}

#[rustfmt::skip]
fn fields() -> Vec<Field<VideoDraft>> { vec![
    field("prompt", Shape::Text, "Text that describes the video; at most 32000 characters.", |draft, value| {
        draft.prompt = Some(bounded("prompt", value, LONGEST_PROMPT)?);
        Ok(())
    }),
    field("model", Shape::Text, "Model name as listed by /v1/models?type=all; if absent, the online video model with the most workers.", |draft, value| {
        draft.model = Some(bounded("model", value, LONGEST_NAME)?);
        Ok(())
    }),
    field("n", Shape::Integer(1..=1), "Only 1: a request makes one video.", |_, _| Ok(())),
    field("size", Shape::Text, "WIDTHxHEIGHT with multiples of 16 from 64 to 4096, of 64 from 256 to 1536 for public workers; if absent, the model's own size, or 768x512.", |draft, value| {
        draft.size = size(&text(value), SideRule::VIDEO)?;
        Ok(())
    }),
    field("seconds", Shape::Either(&[Shape::Number(1.0..=10.0), Shape::Text]), "Length of the video, 1 to 10, as a number or a text of one; if absent, what suits the model, or 4. At most 257 frames, 240 for public workers.", |draft, value| {
        draft.seconds = Some(seconds(&value)?);
        Ok(())
    }),
    field("fps", Shape::Integer(8..=30), "Frames a second; if absent, what suits the model, or 24.", |draft, value| {
        draft.fps = number(&value);
        Ok(())
    }),
    field("image", Shape::Text, "The first frame: base64, a data URL, or an http(s) link; a PNG, JPEG or WebP of one frame.", |draft, value| {
        draft.inputs.take_images("image", value)
    }),
    field("input_reference", Shape::Either(&[Shape::Text, Shape::Object]), "The first frame: a file of a form, or an object with image_url.", |draft, value| {
        draft.inputs.take_images("input_reference", value)
    }),
    field("negative_prompt", Shape::Text, "Text that describes the opposite of the video; at most 32000 characters.", |draft, value| {
        draft.video.negative_prompt = Some(bounded("negative_prompt", value, LONGEST_PROMPT)?);
        Ok(())
    }),
    field("steps", Shape::Integer(1..=500), "Denoising steps, up to 80 for public workers; if absent, as many as suit the model.", |draft, value| {
        draft.video.steps = number(&value);
        Ok(())
    }),
    field("cfg_scale", Shape::Number(0.0..=30.0), "How closely the video follows the prompt; if absent, as suits the model.", |draft, value| {
        draft.video.cfg_scale = value.as_f64();
        Ok(())
    }),
    field("sampler", Shape::Text, "Sampler by its name in the AI Horde API or in ComfyUI; if absent, one that suits the model.", |draft, value| {
        draft.video.sampler = Some(sampler(&text(value))?);
        Ok(())
    }),
    field("seed", Shape::Integer(0..=LARGEST_SEED), "Seed of the video; random if absent.", |draft, value| {
        draft.video.seed = whole(&value).and_then(|seed| u64::try_from(seed).ok());
        Ok(())
    }),
    field("response_format", Shape::Word(&["url", "b64_json"]), "url: a signed link to an MP4 file that expires after an hour. b64_json: the file as base64. If absent, url.", |draft, value| {
        draft.encoding = MediaEncoding::named(&value);
        Ok(())
    }),
    field("user", Shape::Text, "Your identifier of the end user; no effect.", |_, _| Ok(())),
    field("progress_token", Shape::Text, media::PROGRESS_TOKEN, |draft, value| draft.tracking.take_progress_token(value)),
    field("async", Shape::Flag, media::ASYNC, |draft, value| draft.tracking.take_async(&value)),
    field("client_ref", Shape::Text, media::CLIENT_REF, |draft, value| draft.tracking.take_client_ref(value)),
] }

impl VideoDraft {
    /// The first frame in a form.
    pub fn take_file(&mut self, file: FormFile) -> Result<(), Problem> {
        match file.field() {
            "input_reference" if self.inputs.images.is_empty() => {
                self.inputs.images.push(ImageInput::File(file.bytes));
                Ok(())
            }
            _ => Err(file.unwanted()),
        }
    }

    pub fn finish(self, door: VideoDoor) -> Result<VideosRequest, Problem> {
        let prompt = self.prompt.ok_or_else(|| {
            Problem::invalid("prompt", "prompt is missing: send a text for the video")
        })?;
        let tracking = match door {
            VideoDoor::Generate => self.tracking,
            VideoDoor::Create => MediaTracking {
                is_async: true,
                ..self.tracking
            },
        };
        tracking.check(!self.encoding.has_base64(), "response_format")?;
        let (width, height) = self.size.unwrap_or_default();
        let video = VideoRequest {
            prompt,
            width,
            height,
            seconds: self.seconds.unwrap_or_default(),
            fps: self.fps.unwrap_or_default(),
            ..self.video
        };
        let frames = video.frames();
        if frames > MOST_FRAMES {
            let message = format!(
                "seconds times fps must be at most {MOST_FRAMES} frames, found {frames}: send fewer of either"
            );
            return Err(Problem::invalid("seconds", message));
        }
        Ok(VideosRequest {
            model: self.model.map(Arc::from),
            video,
            inputs: self.inputs,
            tracking,
            encoding: self.encoding,
        })
    }
}

fn seconds(value: &Value) -> Result<f64, Problem> {
    let given = match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_f64(),
    };
    given
        .filter(|seconds| SECONDS.contains(seconds))
        .ok_or_else(|| {
            let (least, most) = (SECONDS.start(), SECONDS.end());
            let message = format!("seconds must be a number from {least} to {most}");
            Problem::invalid("seconds", message)
        })
}
