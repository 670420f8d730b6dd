//! Bodies and replies of the routes for media, one file for each kind.

mod images;
mod music;
mod speech;
#[cfg(feature = "tone")]
mod tones;
mod transcription;
mod videos;

use serde_json::{Value, json};

use crate::http::route::Route;
use muster_protocol::openai::media::{self, MediaResults};

use super::operation::query;
pub use super::operation::{Content, reference};

/// Replies by their statuses.
pub type Replies = Vec<(u16, &'static str, Vec<Content>)>;

/// The routes of each kind.
const ROUTES: &[&[MediaRoute]] = &[
    images::ROUTES,
    videos::ROUTES,
    music::ROUTES,
    speech::ROUTES,
    transcription::ROUTES,
    RESULTS,
    #[cfg(feature = "tone")]
    tones::ROUTES,
];

const FORM: &str = "multipart/form-data";

const OBJECTS: [&str; 8] = [
    "image/webp",
    "image/png",
    "image/jpeg",
    "audio/wav",
    "audio/flac",
    "audio/ogg",
    "audio/mpeg",
    "video/mp4",
];

/// Targets of links: media, and transcripts as documents.
pub fn objects() -> Vec<Content> {
    let texts = ["text/plain", "text/vtt", "application/x-subrip"];
    let texts = texts.map(|kind| Content::of(kind, json!({"type": "string"})));
    let json = Content::of("application/json", reference("Transcription"));
    media_files()
        .into_iter()
        .chain(texts)
        .chain([json])
        .collect()
}

pub fn media_files() -> Vec<Content> {
    OBJECTS.map(binary).into()
}

fn binary(kind: &'static str) -> Content {
    Content::of(kind, json!({"type": "string", "contentMediaType": kind}))
}

const RESULTS: &[MediaRoute] = &[MediaRoute {
    parameters: result_parameters,
    replies: || at_once("MediaResults"),
    ..MediaRoute::get("/v1/media/results")
}];

fn result_parameters() -> Vec<Value> {
    vec![
        query("job_id", "string", "Id of a job of the request."),
        query(
            "client_ref",
            "string",
            "The client_ref of the request. Send exactly one of both.",
        ),
    ]
}

/// A route for media, as the document shows it.
pub struct MediaRoute {
    pub method: &'static str,
    pub path: &'static str,
    pub parameters: fn() -> Vec<Value>,
    pub body: fn() -> Vec<Content>,
    /// The successful replies; none if they are stored objects.
    pub replies: fn() -> Replies,
    /// Whether a single job's output is the whole reply.
    pub is_whole: bool,
}

impl MediaRoute {
    pub const fn get(path: &'static str) -> Self {
        Self {
            method: "GET",
            path,
            parameters: Vec::new,
            body: Vec::new,
            replies: Vec::new,
            is_whole: false,
        }
    }

    pub const fn post(path: &'static str) -> Self {
        Self {
            method: "POST",
            ..Self::get(path)
        }
    }
}

pub fn described(method: &str, path: &str) -> Option<&'static MediaRoute> {
    let mut routes = ROUTES.iter().copied().flatten();
    routes.find(|route| route.method == method && route.path == path)
}

pub fn replies(route: &Route) -> Option<Replies> {
    let replies = (described(route.method, route.path)?.replies)();
    (!replies.is_empty()).then_some(replies)
}

fn success(contents: Vec<Content>, may_come_later: bool) -> Replies {
    let accepted = || {
        let body = vec![Content::json(reference("MediaAccepted"))];
        (202, "Accepted: the results come later.", body)
    };
    let later = may_come_later.then(accepted);
    [(200, "Success.", contents)]
        .into_iter()
        .chain(later)
        .collect()
}

fn at_once(schema: &str) -> Replies {
    success(vec![Content::json(reference(schema))], false)
}

fn later(schema: &str) -> Replies {
    success(vec![Content::json(reference(schema))], true)
}

fn with_example(schema: &str, example: Value) -> Vec<Content> {
    let mut content = Content::json(reference(schema));
    content.example = Some(example);
    vec![content]
}

pub fn form(schema: &str) -> Vec<Content> {
    vec![
        Content::json(reference(schema)),
        Content::of(FORM, reference(schema)),
    ]
}

pub fn body(route: &Route) -> Vec<Content> {
    described(route.method, route.path).map_or_else(Vec::new, |route| (route.body)())
}

pub fn parameters(route: &Route) -> Vec<Value> {
    described(route.method, route.path).map_or_else(Vec::new, |route| (route.parameters)())
}

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let mut schemas = images::schemas();
    schemas.extend(music::schemas());
    schemas.extend(videos::schemas());
    schemas.extend(transcription::schemas());
    schemas.extend(speech::schemas());
    schemas.extend([
        ("MediaAccepted", media::accepted_schema()),
        ("MediaResults", MediaResults::schema()),
    ]);
    schemas
}
