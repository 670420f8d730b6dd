//! Image replies: a JSON object, or the events of a stream as OpenAI names them.

use serde_json::{Map, Value, json};

use super::{ImageDelivery, ImageDoor, ImageFormat};
use crate::job::{ImageRequest, JobRequest};
use crate::openai::media::{FinishedMedia, MediaGrid};

/// Event names of a finished image and of a preview.
pub const GENERATION: [&str; 2] = [
    "image_generation.completed",
    "image_generation.partial_image",
];
pub const EDIT: [&str; 2] = ["image_edit.completed", "image_edit.partial_image"];

/// Common fields of all images of a reply.
#[derive(Debug, Clone, PartialEq)]
pub struct ImagesHead {
    /// Seconds since the epoch.
    pub created: i64,
    /// The prompt as served, perhaps rewritten by moderation.
    pub prompt: String,
    /// `None` if the client leaves the size to the model.
    pub size: Option<(u32, u32)>,
    pub delivery: ImageDelivery,
    /// The route that the client called, which names the events.
    pub door: ImageDoor,
}

impl ImagesHead {
    pub fn new(
        created: i64,
        image: &ImageRequest,
        delivery: ImageDelivery,
        door: ImageDoor,
    ) -> Self {
        Self {
            created,
            prompt: image.prompt.clone(),
            size: (!image.is_unbound()).then_some((image.width, image.height)),
            delivery,
            door,
        }
    }

    fn events(&self) -> [&'static str; 2] {
        match self.door {
            ImageDoor::Generate | ImageDoor::Plain => GENERATION,
            ImageDoor::Edit | ImageDoor::Vary => EDIT,
        }
    }

    /// The whole reply.
    pub fn render(&self, images: &[FinishedMedia], grid: &MediaGrid) -> Value {
        let data: Vec<Value> = images.iter().map(|image| self.entry(image)).collect();
        let mut reply = json!({
            "created": self.created,
            "data": data,
            "output_format": self.delivery.format.word(),
            "size": self.size_text(images.first()),
            "grid": grid.render(),
        });
        if self.door == ImageDoor::Plain {
            let links: Vec<&str> = images
                .iter()
                .filter_map(|image| image.url.as_deref())
                .collect();
            reply["id"] = grid.job.as_str().into();
            reply["status"] = "completed".into();
            reply["url"] = json!(links.first());
            reply["images"] = json!(links);
        }
        reply
    }

    fn entry(&self, image: &FinishedMedia) -> Value {
        let fields = [
            ("revised_prompt", json!(self.prompt)),
            ("seed", json!(image.seed)),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        let mut entry = Map::from_iter(fields);
        image.insert_into(&mut entry);
        Value::Object(entry)
    }

    /// The requested size, or that of a finished image.
    fn size_text(&self, image: Option<&FinishedMedia>) -> String {
        let made = image.and_then(|image| image.size);
        match self.size.or(made) {
            Some((width, height)) => format!("{width}x{height}"),
            None => "auto".to_owned(),
        }
    }

    /// The event of a finished image.
    pub fn completed(&self, image: &FinishedMedia, grid: &MediaGrid) -> String {
        let [completed, _] = self.events();
        let mut event = self.event(completed, image.index, Some(image));
        image.insert_into(&mut event);
        event.insert("revised_prompt".into(), self.prompt.as_str().into());
        event.insert("seed".into(), json!(image.seed));
        event.insert("grid".into(), grid.render());
        sse(completed, &Value::Object(event))
    }

    /// The event of a preview, which is number `number` of its image. Previews are base64 always, and in the format that
    /// the worker chose.
    pub fn partial(&self, index: u32, number: u32, format: ImageFormat, base64: &str) -> String {
        let [_, partial] = self.events();
        let mut event = self.event(partial, index, None);
        event.insert("output_format".into(), format.word().into());
        event.insert("partial_image_index".into(), number.into());
        event.insert("b64_json".into(), base64.into());
        sse(partial, &Value::Object(event))
    }

    fn event(&self, name: &str, index: u32, image: Option<&FinishedMedia>) -> Map<String, Value> {
        let fields = [
            ("type", json!(name)),
            ("created_at", json!(self.created)),
            ("index", json!(index)),
            ("output_format", json!(self.delivery.format.word())),
            ("size", json!(self.size_text(image))),
            ("background", json!("opaque")),
            ("quality", json!("auto")),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        fields.into_iter().collect()
    }
}

/// The event of a failure after the stream has begun.
pub fn failed(body: &Value) -> String {
    sse("error", body)
}

fn sse(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
