//! Images.

use serde_json::{Value, json};

use super::{MediaRoute, Replies, form, later, success, with_example};
use crate::http::openapi::operation::{Content, reference};
use muster_protocol::openai::images::schema;

pub fn schemas() -> Vec<(&'static str, Value)> {
    schema::schemas()
}

pub const ROUTES: &[MediaRoute] = &[
    MediaRoute {
        body: || with_example("ImagesRequest", schema::example()),
        replies: streamed,
        ..MediaRoute::post("/v1/images/generations")
    },
    MediaRoute {
        body: || form("ImageEditRequest"),
        replies: streamed,
        ..MediaRoute::post("/v1/images/edits")
    },
    MediaRoute {
        body: || form("ImageVariationRequest"),
        replies: || later("Images"),
        is_whole: true,
        ..MediaRoute::post("/v1/images/variations")
    },
    MediaRoute {
        body: || vec![Content::json(reference("GenerateRequest"))],
        replies: || later("GeneratedImages"),
        is_whole: true,
        ..MediaRoute::post("/v1/generate")
    },
];

fn streamed() -> Replies {
    let events = json!({"anyOf": [reference("ImageEvent"), reference("Error")]});
    let events = Content::of("text/event-stream", events);
    success(vec![Content::json(reference("Images")), events], true)
}
