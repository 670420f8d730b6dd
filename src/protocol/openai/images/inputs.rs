//! Images that come along with a request: files of a form, or texts in JSON.

use bytes::Bytes;
use serde_json::Value;

use crate::openai::Problem;
use crate::openai::form::FormFile;
use crate::openai::shape::{kind, text};

/// An image that came along.
#[derive(Debug, Clone, PartialEq)]
pub enum ImageInput {
    File(Bytes),
    /// base64, a data URL, or an http(s) link.
    Text(String),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImageInputs {
    pub images: Vec<ImageInput>,
    /// Transparent where the first image is painted.
    pub mask: Option<ImageInput>,
}

/// Limit of images, as in OpenAI's API.
const MOST_IMAGES: usize = 16;

impl ImageInputs {
    pub fn is_empty(&self) -> bool {
        self.images.is_empty() && self.mask.is_none()
    }

    /// An image, or a list of them.
    pub fn take_images(&mut self, field: &'static str, value: Value) -> Result<(), Problem> {
        let values = match value {
            Value::Array(values) => values,
            one => vec![one],
        };
        for value in values {
            let image = input(field, value)?;
            self.add(image)?;
        }
        Ok(())
    }

    pub fn take_mask(&mut self, value: Value) -> Result<(), Problem> {
        self.mask = Some(input("mask", value)?);
        Ok(())
    }

    /// A file of a form, in the field that it names.
    pub fn take_file(&mut self, file: FormFile, takes_mask: bool) -> Result<(), Problem> {
        match file.field() {
            "image" => self.add(ImageInput::File(file.bytes)),
            "mask" if takes_mask && self.mask.is_none() => {
                self.mask = Some(ImageInput::File(file.bytes));
                Ok(())
            }
            _ => Err(file.unwanted()),
        }
    }

    fn add(&mut self, image: ImageInput) -> Result<(), Problem> {
        self.images.push(image);
        match self.images.len() > MOST_IMAGES {
            true => {
                let message = format!("image must be at most {MOST_IMAGES} images");
                Err(Problem::invalid("image", message))
            }
            false => Ok(()),
        }
    }
}

/// A text, or an object with `image_url`.
fn input(field: &'static str, value: Value) -> Result<ImageInput, Problem> {
    let invalid = |found: String| {
        let message = format!(
            "{field} must be base64, a data URL, an http(s) link, or an object with image_url, found {found}"
        );
        Problem::invalid(field, message)
    };
    let given = match value {
        Value::Object(entries) if entries.contains_key("file_id") => {
            let message = format!("{field}.file_id is not supported: no files are stored here");
            return Err(Problem::unsupported(field, message));
        }
        Value::Object(mut entries) => entries.remove("image_url").unwrap_or_default(),
        value => value,
    };
    match given {
        Value::String(_) => {
            let given = text(given);
            match given.trim().is_empty() {
                true => Err(invalid("an empty string".to_owned())),
                false => Ok(ImageInput::Text(given)),
            }
        }
        other => Err(invalid(kind(&other))),
    }
}
