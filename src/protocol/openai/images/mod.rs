//! `/v1/images/generations`, `edits` and `variations`, as OpenAI has them, and the plainer `/v1/generate`, with the
//! settings that image models have beyond.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of a request |
//! | [`inputs`] | source images |
//! | `settings` | samplers, schedules and LoRAs |
//! | [`reply`] | the images as JSON and as events of a stream |
//! | [`schema`] | requests and replies as JSON Schema |
//!
//! A request becomes one neutral image, which its jobs vary by their seeds.

mod fields;
pub mod inputs;
pub mod reply;
pub mod schema;
mod settings;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

use super::field::{self, FieldRow};
use super::form::FormBody;
use super::media::{MediaEncoding, MediaTracking};
use super::shape::kind;
use super::{Problem, Strictness};
use crate::job::ImageRequest;

use fields::ImagesDraft;
pub(super) use fields::{SideRule, bounded, number, size};
use inputs::ImageInputs;
pub(super) use settings::sampler;

/// The largest seed: every number up to here survives a program that knows doubles only.
pub const LARGEST_SEED: i64 = (1 << 53) - 1;

/// Images to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ImagesRequest {
    /// The route that the client called.
    pub door: ImageDoor,
    /// The client's name of the model; `None` if any image model will do.
    pub model: Option<Arc<str>>,
    /// How many images.
    pub count: u32,
    pub image: ImageRequest,
    /// The source and the mask of the image, which are not read yet.
    pub inputs: ImageInputs,
    pub delivery: ImageDelivery,
    /// Send server-sent events.
    pub stream: bool,
    /// Previews of each image, at most.
    pub previews: u32,
    pub tracking: MediaTracking,
    /// Fields that only polling workers support, then those that they do not.
    pub only_polled: Vec<&'static str>,
    pub never_polled: Vec<&'static str>,
    /// Fields of the request that have no effect.
    pub ignored: Vec<String>,
}

/// A route that takes requests for images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageDoor {
    Generate,
    Edit,
    Vary,
    /// `/v1/generate`.
    Plain,
}

impl ImageDoor {
    pub const ALL: [Self; 4] = [Self::Generate, Self::Edit, Self::Vary, Self::Plain];
}

/// How the client gets its images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImageDelivery {
    pub encoding: MediaEncoding,
    pub format: ImageFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageFormat {
    #[default]
    Webp,
    Png,
    Jpeg,
}

impl ImageFormat {
    pub fn word(self) -> &'static str {
        match self {
            Self::Webp => "webp",
            Self::Png => "png",
            Self::Jpeg => "jpeg",
        }
    }
}

/// Every field of a request.
pub fn rows(door: ImageDoor) -> Vec<FieldRow> {
    field::rows(door.fields())
}

impl ImagesRequest {
    pub fn read(body: Value, door: ImageDoor) -> Result<Self, Problem> {
        let Value::Object(entries) = body else {
            let found = kind(&body);
            let message = format!("the body must be a JSON object, found {found}");
            return Err(Problem::malformed(message));
        };
        let mut draft = ImagesDraft::default();
        field::read(door.fields(), entries, Strictness::Refuse, &mut draft)?;
        draft.finish(door)
    }

    pub fn read_form(form: FormBody, door: ImageDoor) -> Result<Self, Problem> {
        let mut draft = ImagesDraft::default();
        let entries = form.json(door.fields())?;
        field::read(door.fields(), entries, Strictness::Refuse, &mut draft)?;
        for file in form.files {
            draft.take_file(file, door)?;
        }
        draft.finish(door)
    }
}
