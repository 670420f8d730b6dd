//! Users: what they and others see of them, and what may be changed about them.
//!
//! | file | what it is |
//! | --- | --- |
//! | `view` | a user as strangers, the user and moderators see them |
//! | `find` | by a key, by a number, or all of them |
//! | `modify` | what is changed about a user, and who may |
//! | `leave` | accounts on their way out |
//! | `trial` | users for tests of other programs, in development mode alone |

mod find;
mod leave;
mod modify;
mod trial;
mod view;

pub use find::{find_user, list, show};
pub use leave::leave;
pub use modify::modify;
pub use trial::try_out;

use super::refused::Refused;
use crate::people::{People, number};
use crate::storage::{PersonRow, StorageError};
use muster_protocol::job::AccountId;
use muster_protocol::legacy::{Code, Refusal};

/// Only digits say who is meant.
async fn person(people: &People, id: &str) -> Result<PersonRow, Refused> {
    let account = number(id).map(AccountId).ok_or(Code::UserNotFound)?;
    let found = people.find(account).await.map_err(unreadable)?;
    found.ok_or_else(|| Code::UserNotFound.into())
}

fn unreadable(_: StorageError) -> Refusal {
    Refusal::plain(503, "the database is unavailable; retry later")
}
