//! Images of the poll API: asked for, drawn, looked at, rated.
//!
//! | file | what it is |
//! | --- | --- |
//! | `ask` | a request comes in |
//! | `paying` | what it costs before it is drawn |
//! | `sources` | the images that it begins with |
//! | `look` | how it is doing, and what is there of it |
//! | `sent` | what was sent, for whoever sent it |
//! | `pop`, `payload` | a worker comes for images to draw, and is told of them |
//! | `submit` | a worker brings one |
//! | `steps` | a worker says how far it is |
//! | `rate` | what whoever asked thinks of them |

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

/// Where that image is which a worker calls so: every attempt has an id of its own.
pub fn key_of(id: JobId) -> Key {
    Key::new(Area::Results, id.0, 1, MediaType::Webp)
}
