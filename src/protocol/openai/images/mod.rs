//! `/v1/images/generations`, as OpenAI has it, with the settings that image models have beyond.
//!
//! | file | what it is |
//! | --- | --- |
//! | `fields` | every field of a request |
//! | `settings` | samplers, schedules and LoRAs |
//! | [`reply`] | the images as JSON and as events of a stream |
//! | [`schema`] | requests and replies as JSON Schema |
//!
//! A request becomes one neutral image, which its jobs vary by their seeds.

mod fields;
pub mod reply;
pub mod schema;
mod settings;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;

use super::field::{self, FieldRow};
use super::shape::kind;
use super::{Problem, Strictness};
use crate::job::ImageRequest;

pub use fields::USUAL_SIZE;
use fields::{FIELDS, ImagesDraft};
pub(super) use fields::{bounded, number, progress_token, text};

/// The largest seed: every number up to here survives a program that knows doubles only.
pub const LARGEST_SEED: i64 = (1 << 53) - 1;

/// Images to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ImagesRequest {
    /// As the client calls it; none where any image model will do.
    pub model: Option<Arc<str>>,
    /// How many images.
    pub count: u32,
    pub image: ImageRequest,
    pub delivery: ImageDelivery,
    /// Send server-sent events.
    pub stream: bool,
    /// Previews of each image, at most.
    pub previews: u32,
    pub progress_token: Option<String>,
    /// Fields that only polling workers can honour, then those that they cannot.
    pub only_polled: Vec<&'static str>,
    pub never_polled: Vec<&'static str>,
}

/// How the client gets its images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImageDelivery {
    pub encoding: ImageEncoding,
    pub format: ImageFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageEncoding {
    #[default]
    Url,
    Base64,
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
pub fn rows() -> Vec<FieldRow> {
    field::rows(FIELDS)
}

impl ImagesRequest {
    pub fn read(body: Value) -> Result<Self, Problem> {
        let Value::Object(entries) = body else {
            let found = kind(&body);
            let message = format!("the body must be a JSON object, found {found}");
            return Err(Problem::malformed(message));
        };
        let mut draft = ImagesDraft::default();
        field::read(FIELDS, entries, Strictness::Refuse, &mut draft)?;
        draft.finish()
    }

    /// The seed of an image, where the client named one.
    pub fn seed_of(&self, index: u32) -> Option<u64> {
        let seed = self.image.seed?;
        Some((seed + u64::from(index)) % (LARGEST_SEED.cast_unsigned() + 1))
    }
}
