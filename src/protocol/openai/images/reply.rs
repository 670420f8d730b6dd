//! Images on their way to the client: one JSON object, or the events of a stream as OpenAI names them.

use serde_json::{Map, Value, json};

use super::{ImageDelivery, ImageEncoding, ImageFormat};
use crate::job::ImageRequest;

pub const COMPLETED: &str = "image_generation.completed";
pub const PARTIAL: &str = "image_generation.partial_image";

/// A finished image.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedImage {
    pub index: u32,
    /// The link, or the bytes as base64.
    pub data: String,
    pub seed: Option<u64>,
}

/// What all images of a reply share.
#[derive(Debug, Clone, PartialEq)]
pub struct ImagesHead {
    /// Seconds since the epoch.
    pub created: i64,
    /// As it was served, which the filters of the service may have rewritten.
    pub prompt: String,
    pub size: (u32, u32),
    pub delivery: ImageDelivery,
}

/// About the network that made the images.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ImagesGrid {
    pub job: String,
    pub worker: Option<String>,
    pub model: String,
    /// Of the slowest image.
    pub seconds: f64,
}

impl ImagesHead {
    pub fn new(created: i64, image: &ImageRequest, delivery: ImageDelivery) -> Self {
        Self {
            created,
            prompt: image.prompt.clone(),
            size: (image.width, image.height),
            delivery,
        }
    }

    /// The whole reply.
    pub fn render(&self, images: &[FinishedImage], grid: &ImagesGrid) -> Value {
        let data: Vec<Value> = images.iter().map(|image| self.entry(image)).collect();
        json!({
            "created": self.created,
            "data": data,
            "output_format": self.delivery.format.word(),
            "size": self.size_text(),
            "grid": grid.render(),
        })
    }

    fn entry(&self, image: &FinishedImage) -> Value {
        let mut entry = json!({"revised_prompt": self.prompt, "seed": image.seed});
        entry[self.data_name()] = image.data.as_str().into();
        entry
    }

    fn data_name(&self) -> &'static str {
        match self.delivery.encoding {
            ImageEncoding::Url => "url",
            ImageEncoding::Base64 => "b64_json",
        }
    }

    fn size_text(&self) -> String {
        let (width, height) = self.size;
        format!("{width}x{height}")
    }

    /// The event of a finished image.
    pub fn completed(&self, image: &FinishedImage, grid: &ImagesGrid) -> String {
        let mut event = self.event(COMPLETED, image.index);
        event.insert(self.data_name().into(), image.data.as_str().into());
        event.insert("revised_prompt".into(), self.prompt.as_str().into());
        event.insert("seed".into(), json!(image.seed));
        event.insert("grid".into(), grid.render());
        sse(COMPLETED, &Value::Object(event))
    }

    /// The event of a preview, which is number `number` of its image. Previews are base64 always, and in the format that
    /// the worker chose.
    pub fn partial(&self, index: u32, number: u32, format: ImageFormat, base64: &str) -> String {
        let mut event = self.event(PARTIAL, index);
        event.insert("output_format".into(), format.word().into());
        event.insert("partial_image_index".into(), number.into());
        event.insert("b64_json".into(), base64.into());
        sse(PARTIAL, &Value::Object(event))
    }

    fn event(&self, name: &str, index: u32) -> Map<String, Value> {
        let fields = [
            ("type", json!(name)),
            ("created_at", json!(self.created)),
            ("index", json!(index)),
            ("output_format", json!(self.delivery.format.word())),
            ("size", json!(self.size_text())),
            ("background", json!("opaque")),
            ("quality", json!("auto")),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        fields.into_iter().collect()
    }
}

impl ImagesGrid {
    fn render(&self) -> Value {
        // Two places are enough for people; the clock of the worker is not exact.
        let seconds = (self.seconds * 100.0).round() / 100.0;
        json!({
            "job_id": self.job,
            "worker": self.worker,
            "model": self.model,
            "gen_time": seconds,
        })
    }
}

/// The event of a failure after the stream has begun.
pub fn failed(body: &Value) -> String {
    sse("error", body)
}

fn sse(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
