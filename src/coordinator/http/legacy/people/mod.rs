//! Users: their public and private details, and changes to them.
//!
//! | file | contents |
//! | --- | --- |
//! | `view` | a user as strangers, the user and moderators see them |
//! | `find` | users by key, by number, or all of them |
//! | `modify` | changes of a user, and their permissions |
//! | `leave` | deletion of accounts |
//! | `trial` | test users, in development mode only |

mod find;
mod leave;
mod modify;
mod trial;
mod view;

pub use find::{find_user, list, show};
pub use leave::leave;
pub use modify::modify;
pub use trial::try_out;

use crate::http::horde_refusal::Refused;
use crate::people::People;
use crate::storage::{PersonRow, StorageError};
use crate::values::alias::number;
use muster_protocol::job::AccountId;
use muster_protocol::legacy::{Code, Refusal};

/// `id` must be the user's number.
async fn person(people: &People, id: &str) -> Result<PersonRow, Refused> {
    let account = number(id).map(AccountId).ok_or(Code::UserNotFound)?;
    let found = people.find(account).await.map_err(unreadable)?;
    found.ok_or_else(|| Code::UserNotFound.into())
}

fn unreadable(_: StorageError) -> Refusal {
    Refusal::plain(503, "the database is unavailable; retry later")
}
