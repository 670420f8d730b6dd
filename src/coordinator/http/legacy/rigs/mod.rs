//! Workers of the AI Horde API.
//!
//! | file | contents |
//! | --- | --- |
//! | `list` | all online workers, or one by id or name |
//! | `view` | a worker as the caller may see it |
//! | `door` | checks common to all pops |
//! | `messages` | messages to workers |
//! | `change` | change and delete, by the owner or a moderator |

mod change;
pub mod door;
mod list;
pub mod messages;
pub mod view;

pub use change::{change, delete};
pub use list::{by_name, list, show};

use uuid::Uuid;

use crate::rigs::{Rig, Rigs};
use muster_protocol::legacy::{Code, Refusal};

/// A malformed id counts as an unknown worker.
async fn find(rigs: &Rigs, id: &str) -> Result<Rig, Refusal> {
    let Ok(id) = Uuid::parse_str(id) else {
        return Err(Code::WorkerNotFound.into());
    };
    let found = rigs.find(id).await.map_err(|_| unavailable())?;
    found.ok_or_else(|| Code::WorkerNotFound.into())
}

fn unavailable() -> Refusal {
    Refusal::plain(503, "the database is unavailable; retry later")
}
