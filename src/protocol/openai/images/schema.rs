//! The route as JSON Schema.

use serde_json::{Map, Value, json};

use super::fields::FIELDS;
use super::reply::{COMPLETED, PARTIAL};
use crate::openai::field;

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    vec![
        ("ImagesRequest", field::schema(FIELDS, &["prompt"])),
        ("Images", images()),
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
            "size": {"type": "string"},
            "grid": grid(),
        },
    })
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

fn grid() -> Value {
    json!({
        "type": "object",
        "required": ["job_id", "worker", "model", "gen_time"],
        "properties": {
            "job_id": {"type": "string", "description": "Job of the first image; X-Job-Id names all."},
            "worker": {"type": ["string", "null"]},
            "model": {"type": "string"},
            "gen_time": {"type": "number", "description": "Seconds of the slowest image, without the queue."},
        },
    })
}

/// An event of a stream: a preview, or a finished image.
fn event() -> Value {
    let mut properties = data();
    let more = [
        (
            "type",
            json!({"type": "string", "enum": [COMPLETED, PARTIAL]}),
        ),
        ("created_at", json!({"type": "integer"})),
        ("index", json!({"type": "integer", "minimum": 0})),
        (
            "partial_image_index",
            json!({"type": "integer", "minimum": 0}),
        ),
        ("output_format", format()),
        ("size", json!({"type": "string"})),
        ("background", json!({"type": "string"})),
        ("quality", json!({"type": "string"})),
        ("grid", grid()),
    ];
    properties.extend(more.map(|(name, schema)| (name.to_owned(), schema)));
    json!({
        "type": "object",
        "required": ["type", "created_at", "index", "output_format", "size"],
        "properties": properties,
    })
}
