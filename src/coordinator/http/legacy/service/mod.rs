//! The service's status routes in this API.
//!
//! | file | contents |
//! | --- | --- |
//! | `modes` | service modes |
//! | `load` | queue lengths, workers and their speed |
//! | `stats` | totals of generated images and texts |
//! | `words` | documents and news |

mod load;
mod modes;
mod stats;
mod words;

pub use load::{model, models, performance, wanted_worker};
pub use modes::{show as show_modes, switch as switch_modes, takes_requests};
pub use stats::{image_models, images, text_models, texts};
pub use words::{news, privacy, sponsors, terms};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::http::reply;
use crate::names::Names;
use crate::storage::{StorageError, Store};
use muster_protocol::job::Kind;
use muster_protocol::legacy::Refusal;
use muster_protocol::legacy::image::reference;
use muster_protocol::legacy::service::{Health, HeartbeatResponse};

/// Models with this prefix are reserved for some users, and not listed.
pub const SPECIAL: &str = "horde_special::";

/// `GET /api/v2/status/heartbeat`: 200 in any case.
pub async fn heartbeat(State(store): State<Store>) -> Response {
    let is_reachable = store.is_reachable();
    let beat = HeartbeatResponse {
        message: match is_reachable {
            true => Health::Ok,
            false => Health::Down,
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        queue: None,
        threads: None,
        active_count: None,
        db_connection: Some(is_reachable),
    };
    reply::json(StatusCode::OK, &beat)
}

/// Whether the model is listed by this coordinator or in the public image model reference.
pub fn is_known(kind: Kind, name: &str, names: &Names) -> bool {
    names.listed(name).is_some() || kind == Kind::Image && reference::knows(name)
}

/// The model's name for clients of this API: the public name of an image model, if it has one.
pub fn public_name<'a>(kind: Kind, id: &'a str, names: &'a Names) -> &'a str {
    let mut others = names.others(id).iter().map(|name| &**name);
    let public = others.find(|name| kind == Kind::Image && reference::knows(name));
    public.unwrap_or(id)
}

fn unknown_numbers(_: StorageError) -> Refusal {
    Refusal::plain(503, "statistics are unavailable; retry later")
}
