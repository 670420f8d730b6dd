//! Image requests of the AI Horde API.
//!
//! | file | contents |
//! | --- | --- |
//! | `ask` | creating a request |
//! | `paying` | its price before it runs |
//! | `sources` | its source images |
//! | `look` | status and results |
//! | `sent` | the request's own fields, for its owner |
//! | `pop`, `payload` | `pop`, and the payload for the worker |
//! | `submit` | `submit` of an image |
//! | `steps` | progress reports of workers |
//! | `rate` | ratings by the requester |

mod ask;
mod look;
mod paying;
mod payload;
mod pop;
mod rate;
mod sent;
mod sources;
mod steps;
mod submit;

pub use ask::ask;
pub use look::{cancel, check, status};
pub use pop::pop;
pub use rate::rate;
pub use sent::sent;
pub use sources::{give_back, look_at};
pub use steps::progress;
pub use submit::submit;

use crate::media::{Area, Key, MediaType};
use crate::requests::results::LINKS;
use muster_protocol::job::JobId;

/// The key of the image with this job ticket: every attempt has its own.
pub fn key_of(id: JobId) -> Key {
    Key::new(Area::Results, id.0, 1, MediaType::Webp)
}
