//! Videos.

use serde_json::Value;

use super::{MediaRoute, at_once, form, later, with_example};
use crate::http::openapi::operation::query;
use muster_protocol::openai::videos::schema;

pub fn schemas() -> Vec<(&'static str, Value)> {
    schema::schemas()
}

pub const ROUTES: &[MediaRoute] = &[
    MediaRoute {
        body: || with_example("VideosRequest", schema::example()),
        replies: || later("Videos"),
        is_whole: true,
        ..MediaRoute::post("/v1/videos/generations")
    },
    MediaRoute {
        body: || form("VideoCreateRequest"),
        replies: || at_once("Video"),
        is_whole: true,
        ..MediaRoute::post("/v1/videos")
    },
    MediaRoute {
        parameters: list_parameters,
        replies: || at_once("VideoList"),
        ..MediaRoute::get("/v1/videos")
    },
    MediaRoute {
        replies: || at_once("Video"),
        ..MediaRoute::get("/v1/videos/{id}")
    },
    MediaRoute {
        method: "DELETE",
        replies: || at_once("VideoDeleted"),
        ..MediaRoute::get("/v1/videos/{id}")
    },
    MediaRoute {
        parameters: content_parameters,
        ..MediaRoute::get("/v1/videos/{id}/content")
    },
];

fn list_parameters() -> Vec<Value> {
    vec![
        query("order", "string", "asc or desc; desc if absent."),
        query("limit", "integer", "1 to 100; 20 if absent."),
        query("after", "string", "Id of the last video that you have."),
    ]
}

fn content_parameters() -> Vec<Value> {
    vec![query(
        "variant",
        "string",
        "video, thumbnail (the first frame) or spritesheet (frames side by side), as small WebP.",
    )]
}
