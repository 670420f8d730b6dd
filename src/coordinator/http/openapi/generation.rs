//! Bodies and replies of the routes for images, music and video.

use serde_json::{Value, json};

use crate::http::route::Route;
use muster_protocol::openai::audio::schema as audio;
use muster_protocol::openai::images::schema as images;
use muster_protocol::openai::media::{self, MediaResults};

use super::operation::{Content, query, reference};

/// Replies by their statuses.
pub type Replies = Vec<(u16, &'static str, Vec<Content>)>;

const FORM: &str = "multipart/form-data";

pub fn replies(route: &Route) -> Option<Replies> {
    let schema = match (route.method, route.path) {
        ("POST", "/v1/images/generations" | "/v1/images/edits" | "/v1/images/variations") => {
            "Images"
        }
        ("POST", "/v1/audio/generations") => "Audio",
        ("POST", "/v1/generate") => "GeneratedImages",
        ("GET", "/v1/media/results") => "MediaResults",
        _ => return None,
    };
    let mut contents = vec![Content::json(reference(schema))];
    if matches!(route.path, "/v1/images/generations" | "/v1/images/edits") {
        let events = json!({"anyOf": [reference("ImageEvent"), reference("Error")]});
        contents.push(Content::of("text/event-stream", events));
    }
    let mut replies = vec![(200, "Success.", contents)];
    if makes_media(route) {
        let accepted = vec![Content::json(reference("MediaAccepted"))];
        replies.push((202, "Accepted: the results come later.", accepted));
    }
    Some(replies)
}

/// Whether its requests may be served later.
fn makes_media(route: &Route) -> bool {
    const PATHS: [&str; 5] = [
        "/v1/images/generations",
        "/v1/images/edits",
        "/v1/images/variations",
        "/v1/audio/generations",
        "/v1/generate",
    ];
    PATHS.contains(&route.path)
}

pub fn body(route: &Route) -> Vec<Content> {
    let with_example = |schema: &str, example: Value| {
        let mut content = Content::json(reference(schema));
        content.example = Some(example);
        vec![content]
    };
    let form = |schema: &str| {
        vec![
            Content::json(reference(schema)),
            Content::of(FORM, reference(schema)),
        ]
    };
    match (route.method, route.path) {
        ("POST", "/v1/images/generations") => with_example("ImagesRequest", images::example()),
        ("POST", "/v1/images/edits") => form("ImageEditRequest"),
        ("POST", "/v1/images/variations") => form("ImageVariationRequest"),
        ("POST", "/v1/generate") => vec![Content::json(reference("GenerateRequest"))],
        ("POST", "/v1/audio/generations") => with_example("AudioRequest", audio::example()),
        _ => Vec::new(),
    }
}

pub fn parameters(route: &Route) -> Vec<Value> {
    match (route.method, route.path) {
        ("GET", "/v1/media/results") => vec![
            query("job_id", "string", "Id of a job of the request."),
            query(
                "client_ref",
                "string",
                "The client_ref of the request. Send exactly one of both.",
            ),
        ],
        _ => Vec::new(),
    }
}

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let mut schemas = images::schemas();
    schemas.extend(audio::schemas());
    schemas.extend([
        ("MediaAccepted", media::accepted_schema()),
        ("MediaResults", MediaResults::schema()),
    ]);
    schemas
}
