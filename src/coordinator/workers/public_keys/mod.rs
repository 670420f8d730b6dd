//! Media requests in the flat fields of the public protocol, one file per kind. The worker chooses the noise schedule,
//! for which the protocol has no field.

mod image;
mod music;
mod video;

use serde_json::{Map, Value, json};

use muster_protocol::job::{Body, Failure, FailureKind};

/// Dispatch offers no other media to public workers.
pub fn of(body: &Body, model: &str) -> Result<Map<String, Value>, Failure> {
    let mut keys = match body {
        Body::Image(request) => image::keys(request, model),
        Body::Music(request) => music::keys(request),
        Body::Video(request) => video::keys(request),
        _ => {
            let message = "the job has no form in the public protocol";
            return Err(Failure::new(FailureKind::Internal, message));
        }
    };
    if let Some(source) = body.sources().first() {
        keys.insert("source_image_url".into(), json!(source));
    }
    Ok(keys)
}
