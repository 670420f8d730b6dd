//! The routes as JSON Schema.

use serde_json::{Value, json};

use super::VideoDoor;
use super::reply::VideoStatus;
use crate::openai::{field, media};

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let request = |door: VideoDoor| field::schema(door.fields(), &["prompt"]);
    vec![
        ("VideosRequest", request(VideoDoor::Generate)),
        ("VideoCreateRequest", request(VideoDoor::Create)),
        ("Videos", media::reply_schema()),
        ("Video", video()),
        ("VideoList", list()),
        ("VideoDeleted", deleted()),
    ]
}

/// An example of a request.
pub fn example() -> Value {
    json!({"prompt": "a river in autumn", "seconds": 4, "size": "768x512"})
}

fn video() -> Value {
    let error = json!({
        "type": ["object", "null"],
        "required": ["code", "message"],
        "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
    });
    json!({
        "type": "object",
        "required": [
            "id", "object", "model", "status", "progress", "created_at", "completed_at", "expires_at", "prompt",
            "size", "seconds", "remixed_from_video_id", "error",
        ],
        "properties": {
            "id": {"type": "string"},
            "object": {"const": "video"},
            "model": {"type": "string"},
            "status": {"type": "string", "enum": VideoStatus::WORDS},
            "progress": {"type": "integer", "minimum": 0, "maximum": 100},
            "created_at": {"type": "integer"},
            "completed_at": {"type": ["integer", "null"]},
            "expires_at": {"type": "integer", "description": "When the video is deleted."},
            "prompt": {"type": "string"},
            "size": {"type": ["string", "null"], "description": "null until the video is made, where the request names none."},
            "seconds": {"type": ["string", "null"], "description": "null until the video is made, where the request names none."},
            "remixed_from_video_id": {"type": "null"},
            "error": error,
        },
    })
}

fn list() -> Value {
    json!({
        "type": "object",
        "required": ["object", "data", "first_id", "last_id", "has_more"],
        "properties": {
            "object": {"const": "list"},
            "data": {"type": "array", "items": {"$ref": "#/components/schemas/Video"}},
            "first_id": {"type": ["string", "null"]},
            "last_id": {"type": ["string", "null"]},
            "has_more": {"type": "boolean"},
        },
    })
}

fn deleted() -> Value {
    json!({
        "type": "object",
        "required": ["id", "object", "deleted"],
        "properties": {
            "id": {"type": "string"},
            "object": {"const": "video.deleted"},
            "deleted": {"const": true},
        },
    })
}
