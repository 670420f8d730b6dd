//! The route as JSON Schema.

use serde_json::{Map, Value, json};

use super::ImageDoor;
use super::reply::{EDIT, GENERATION};
use crate::openai::field;
use crate::openai::media::MediaGrid;

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("ImagesRequest", request(ImageDoor::Generate, &["prompt"])),
        ("ImageEditRequest", request(ImageDoor::Edit, &["prompt"])),
        (
            "ImageVariationRequest",
            request(ImageDoor::Vary, &["image"]),
        ),
        ("GenerateRequest", request(ImageDoor::Plain, &["prompt"])),
        ("Images", images()),
        ("GeneratedImages", generated()),
        ("ImageEvent", event()),
    ]
}

/// An example of a request.
pub fn example() -> Value {
    json!({
        "model": "stable_diffusion",
        "prompt": "a lighthouse at dusk",
        "size": "1024x768",
        "output_format": "png",
    })
}

fn request(door: ImageDoor, required: &[&str]) -> Value {
    field::schema(door.fields(), required)
}

fn images() -> Value {
    let image = json!({
        "type": "object",
        "required": ["revised_prompt", "seed"],
        "properties": data(),
    });
    json!({
        "type": "object",
        "required": ["created", "data", "output_format", "size", "grid"],
        "properties": {
            "created": {"type": "integer"},
            "data": {"type": "array", "items": image, "description": "In the order of the request."},
            "output_format": format(),
            "size": {"type": "string", "description": "WIDTHxHEIGHT."},
            "grid": MediaGrid::schema(),
        },
    })
}

/// The reply of `/v1/generate`.
fn generated() -> Value {
    let mut schema = images();
    let more = json!({
        "id": {"type": "string", "description": "Job of the first image."},
        "status": {"const": "completed"},
        "url": {"type": ["string", "null"], "description": "The first link."},
        "images": {"type": "array", "items": {"type": "string"}, "description": "All links."},
    });
    if let (Some(properties), Value::Object(more)) = (schema["properties"].as_object_mut(), more) {
        properties.extend(more);
    }
    schema
}

fn data() -> Map<String, Value> {
    let entries = [
        (
            "url",
            json!({"type": "string", "description": "Signed link."}),
        ),
        (
            "b64_json",
            json!({"type": "string", "contentEncoding": "base64"}),
        ),
        (
            "revised_prompt",
            json!({"type": "string", "description": "The prompt, as the filters of the service changed it."}),
        ),
        ("seed", json!({"type": ["integer", "null"]})),
    ];
    let entries = entries.map(|(name, schema)| (name.to_owned(), schema));
    entries.into_iter().collect()
}

fn format() -> Value {
    json!({"type": "string", "enum": ["webp", "png", "jpeg"]})
}

/// An event of a stream: a preview, or a finished image.
fn event() -> Value {
    let mut properties = data();
    let names = [GENERATION, EDIT].concat();
    let more = [
        ("type", json!({"type": "string", "enum": names})),
        ("created_at", json!({"type": "integer"})),
        ("index", json!({"type": "integer", "minimum": 0})),
        (
            "partial_image_index",
            json!({"type": "integer", "minimum": 0}),
        ),
        ("output_format", format()),
        (
            "size",
            json!({"type": "string", "description": "WIDTHxHEIGHT; auto in a preview whose request names no size."}),
        ),
        ("background", json!({"type": "string"})),
        ("quality", json!({"type": "string"})),
        ("grid", MediaGrid::schema()),
    ];
    properties.extend(more.map(|(name, schema)| (name.to_owned(), schema)));
    json!({
        "type": "object",
        "required": ["type", "created_at", "index", "output_format", "size"],
        "properties": properties,
    })
}
