//! Tones: a kind for tests of the list of kinds.

use serde_json::json;

use super::{Content, MediaRoute, reference};

const PATH: &str = "/v1/audio/tones";

pub const ROUTES: &[MediaRoute] = &[MediaRoute {
    body: || {
        let schema = json!({
            "type": "object",
            "required": ["hertz"],
            "properties": {
                "model": {"type": "string"},
                "hertz": {"type": "number", "minimum": 20, "maximum": 20_000},
            },
        });
        vec![Content::json(schema)]
    },
    replies: || vec![(200, "Success.", vec![Content::json(reference("Audio"))])],
    is_whole: true,
    ..MediaRoute::post(PATH)
}];
