//! Bodies and replies of the routes for images, music and video.

use serde_json::{Value, json};

use crate::http::route::Route;
use muster_protocol::openai::audio::schema as audio;
use muster_protocol::openai::hearing::schema as hearing;
use muster_protocol::openai::images::schema as images;
use muster_protocol::openai::media::{self, MediaResults};
use muster_protocol::openai::speech::schema as speech;
use muster_protocol::openai::videos::schema as videos;

use super::operation::{Content, query, reference};

/// Replies by their statuses.
pub type Replies = Vec<(u16, &'static str, Vec<Content>)>;

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

/// The targets of links: media, and the documents that transcripts become.
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

pub fn replies(route: &Route) -> Option<Replies> {
    let schema = match (route.method, route.path) {
        ("POST", "/v1/images/generations" | "/v1/images/edits" | "/v1/images/variations") => {
            "Images"
        }
        ("POST", "/v1/audio/generations") => "Audio",
        ("POST", "/v1/audio/transcriptions" | "/v1/audio/translations") => "Transcription",
        ("POST", "/v1/audio/speech") => return Some(spoken()),
        ("GET", "/v1/audio/voices") => "Voices",
        ("POST", "/v1/generate") => "GeneratedImages",
        ("GET", "/v1/media/results") => "MediaResults",
        ("POST", "/v1/videos/generations") => "Videos",
        ("POST", "/v1/videos") | ("GET", "/v1/videos/{id}") => "Video",
        ("GET", "/v1/videos") => "VideoList",
        ("DELETE", "/v1/videos/{id}") => "VideoDeleted",
        _ => return None,
    };
    let mut contents = vec![Content::json(reference(schema))];
    if matches!(route.path, "/v1/images/generations" | "/v1/images/edits") {
        let events = json!({"anyOf": [reference("ImageEvent"), reference("Error")]});
        contents.push(Content::of("text/event-stream", events));
    }
    if schema == "Transcription" {
        let text = || json!({"type": "string"});
        contents.push(Content::of("text/plain", text()));
        contents.push(Content::of("text/vtt", text()));
    }
    if route.path == "/v1/audio/transcriptions" {
        let events = json!({"anyOf": [reference("TranscriptionEvent"), reference("Error")]});
        contents.push(Content::of("text/event-stream", events));
    }
    let mut replies = vec![(200, "Success.", contents)];
    if makes_media(route) {
        replies.push(accepted());
    }
    Some(replies)
}

fn spoken() -> Replies {
    let binary = || json!({"type": "string", "format": "binary"});
    let types = [
        "audio/mpeg",
        "audio/wav",
        "audio/flac",
        "audio/ogg",
        "audio/pcm",
    ]
    .into_iter();
    let mut contents: Vec<Content> = types.map(|name| Content::of(name, binary())).collect();
    let events = json!({"anyOf": [reference("SpeechEvent"), reference("Error")]});
    contents.push(Content::of("text/event-stream", events));
    vec![(200, "Success.", contents), accepted()]
}

fn accepted() -> (u16, &'static str, Vec<Content>) {
    let body = vec![Content::json(reference("MediaAccepted"))];
    (202, "Accepted: the results come later.", body)
}

/// Whether its requests may be served later.
fn makes_media(route: &Route) -> bool {
    const PATHS: [&str; 8] = [
        "/v1/images/generations",
        "/v1/images/edits",
        "/v1/images/variations",
        "/v1/audio/generations",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/videos/generations",
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
        ("POST", "/v1/videos/generations") => with_example("VideosRequest", videos::example()),
        ("POST", "/v1/videos") => form("VideoCreateRequest"),
        ("POST", "/v1/audio/speech") => with_example("SpeechRequest", speech::example()),
        ("POST", "/v1/audio/transcriptions") => {
            vec![Content::of(FORM, reference("TranscriptionForm"))]
        }
        ("POST", "/v1/audio/translations") => {
            vec![Content::of(FORM, reference("TranslationForm"))]
        }
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
        ("GET", "/v1/audio/voices") => {
            vec![query("model", "string", "Voices of this model alone.")]
        }
        ("GET", "/v1/videos") => vec![
            query("order", "string", "asc or desc; desc if absent."),
            query("limit", "integer", "1 to 100; 20 if absent."),
            query("after", "string", "Id of the last video that you have."),
        ],
        ("GET", "/v1/videos/{id}/content") => vec![query(
            "variant",
            "string",
            "video, thumbnail (the first frame) or spritesheet (frames side by side), as small WebP.",
        )],
        _ => Vec::new(),
    }
}

/// Schemas by their names.
pub fn schemas() -> Vec<(&'static str, Value)> {
    let mut schemas = images::schemas();
    schemas.extend(audio::schemas());
    schemas.extend(videos::schemas());
    schemas.extend(hearing::schemas());
    schemas.extend(speech::schemas());
    schemas.extend([
        ("MediaAccepted", media::accepted_schema()),
        ("MediaResults", MediaResults::schema()),
    ]);
    schemas
}
