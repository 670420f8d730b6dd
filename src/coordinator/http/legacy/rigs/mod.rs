//! Workers for people: who they are, what may be changed about them.
//!
//! | file | what it is |
//! | --- | --- |
//! | `list` | all that are online, one by its id, one by its name |
//! | `view` | a worker as the one who looks may see it |
//! | `door` | what all pops have in common |
//! | `messages` | what they are told |
//! | `change` | changed and deleted, by its owner or a moderator |

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

/// A malformed id is nobody's.
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
