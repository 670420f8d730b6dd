//! `/v1/videos/generations`, a route of our own, and OpenAI's `/v1/videos`.
//!
//! | file | contents |
//! | --- | --- |
//! | `fields` | every field of a request |
//! | [`reply`] | videos as OpenAI's API shows them |
//! | [`schema`] | requests and replies as JSON Schema |

mod fields;
pub mod reply;
pub mod schema;

use std::sync::Arc;

use serde_json::Value;

use super::field::{self, FieldRow};
use super::form::FormBody;
use super::images::inputs::ImageInputs;
use super::media::{MediaEncoding, MediaTracking};
use super::shape::kind;
use super::{Problem, Strictness};
use crate::job::VideoRequest;

use fields::VideoDraft;

/// A route that takes requests for videos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoDoor {
    /// `/v1/videos/generations`, which waits for the video.
    Generate,
    /// `/v1/videos`, which does not.
    Create,
}

/// A video to make.
#[derive(Debug, Clone, PartialEq)]
pub struct VideosRequest {
    /// `None` if any video model will do.
    pub model: Option<Arc<str>>,
    /// Size, length and frames a second are 0 where the client leaves them unset.
    pub video: VideoRequest,
    /// The first frame, which is not read yet.
    pub inputs: ImageInputs,
    pub tracking: MediaTracking,
    pub encoding: MediaEncoding,
}

impl VideoDoor {
    pub const ALL: [Self; 2] = [Self::Generate, Self::Create];
}

/// Every field of a request.
pub fn rows(door: VideoDoor) -> Vec<FieldRow> {
    field::rows(door.fields())
}

impl VideosRequest {
    pub fn read(body: Value, door: VideoDoor) -> Result<Self, Problem> {
        let Value::Object(entries) = body else {
            let found = kind(&body);
            let message = format!("the body must be a JSON object, found {found}");
            return Err(Problem::malformed(message));
        };
        let mut draft = VideoDraft::default();
        field::read(door.fields(), entries, Strictness::Refuse, &mut draft)?;
        draft.finish(door)
    }

    pub fn read_form(form: FormBody, door: VideoDoor) -> Result<Self, Problem> {
        let mut draft = VideoDraft::default();
        let entries = form.json(door.fields())?;
        field::read(door.fields(), entries, Strictness::Refuse, &mut draft)?;
        for file in form.files {
            draft.take_file(file)?;
        }
        draft.finish(door)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{VideoDoor, VideosRequest};
    use crate::job::JobRequest;

    fn read(more: Value, door: VideoDoor) -> Result<VideosRequest, String> {
        let mut body = json!({"prompt": "a river"});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let read = VideosRequest::read(body, door);
        read.map_err(|problem| format!("{}: {problem}", problem.param.as_deref().unwrap_or("")))
    }

    #[test]
    fn what_is_unset_stays_so() {
        let video = read(json!({}), VideoDoor::Generate).unwrap().video;
        assert!(video.is_unbound());
        assert_eq!((video.width, video.height), (0, 0));
        assert_eq!((video.seconds, video.fps), (0.0, 0));
        let video = read(
            json!({"seconds": "8", "size": "512x768"}),
            VideoDoor::Create,
        );
        let video = video.unwrap().video;
        assert_eq!((video.millis(), video.width), (8000, 512));
        assert!(
            read(json!({}), VideoDoor::Create)
                .unwrap()
                .tracking
                .is_async
        );
    }

    #[test]
    fn wrong_fields_are_refused_by_their_names() {
        let check = |more: Value, door, name: &str| {
            let error = read(more, door).unwrap_err();
            assert!(error.starts_with(&format!("{name}: ")), "{error}");
        };
        for (more, name) in [
            (json!({"prompt": " "}), "prompt"),
            (json!({"size": "1000000000x512"}), "size"),
            (json!({"size": "0x0"}), "size"),
            (json!({"seconds": 11}), "seconds"),
            (json!({"seconds": 10, "fps": 30}), "seconds"),
            (json!({"fps": 31}), "fps"),
            (json!({"n": 2}), "n"),
            (json!({"client_ref": "mine"}), "client_ref"),
            (
                json!({"async": true, "response_format": "b64_json"}),
                "response_format",
            ),
            (json!({"input_reference": "a"}), "input_reference"),
            (json!({"timeline": "a"}), "timeline"),
        ] {
            check(more, VideoDoor::Generate, name);
        }
        check(json!({"seconds": "soon"}), VideoDoor::Create, "seconds");
        check(json!({"image": "a"}), VideoDoor::Create, "image");
    }
}
